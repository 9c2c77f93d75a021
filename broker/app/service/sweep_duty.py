"""The duty of `broker.app.service.serve` that sweeps periodically, in one process of a store at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable

from broker.app.alerts.routes import recipients
from broker.app.service.periodic_duty import Rounds
from broker.app.service.sweep import GRACE, Swept, end, notice_of, sweep
from broker.app.wiring import Broker
from broker.reconciler.sweep import LeftoverState

EVERY = 600.0  # seconds of the wall clock; each sweep asks every cloud for its machines
_FIRST_AFTER = 60.0


class Sweeping:
    """Sends a notice of each orphan, once, and ends it if the active policy says so (``end_orphans_after``). ``say``:
    receives each orphan and error once."""

    name = "sweeping"

    def __init__(self, broker: Broker, *, say: Callable[[str], None], every: float = EVERY) -> None:
        self._broker = Broker(broker.settings, broker.registries, broker.account)  # its own engines for this thread
        self._rounds = Rounds(say, _FIRST_AFTER, every)

    def run(self, stop: threading.Event) -> None:
        """Sweep until ``stop`` is set. Errors are reported, and the next sweep tries again."""
        self._rounds.run(self._broker.store, self.once, stop)

    def once(self) -> Swept:
        """One sweep. Raises `StoreProblem`, and `InvalidInput` if the active policy cannot be read."""
        broker = self._broker
        after = broker.policy().defaults.end_orphans_after
        swept = sweep(broker, GRACE if after is None else after)
        done = {one.leftover.id: one for one in end(broker, swept)} if after is not None else {}
        said = {f"{name} could not be swept: {why}" for name, why in swept.trouble.items()}
        for one in swept.found:
            if one.standing is LeftoverState.ORPHAN:
                result = done.get(one.id)
                notice = notice_of(one, ended=result is not None and not result.error)
                broker.store.outbox.add(notice, recipients(broker.settings, notice), broker.clock.now())
                said.add(f"{notice.title}: {notice.body}" + (f" {result.error}" if result and result.error else ""))
        self._rounds.tell(said)
        return swept
