"""The duty of sweeping, for `broker.app.serve`: now and then, by one process of a store at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable

from broker.app.sweep import GRACE, Swept, end, notice_of, sweep
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.launch.sweep import Standing
from broker.store.leader import Duty

EVERY = 600.0  # seconds of the wall clock; each sweep asks every cloud for its machines
_FIRST_AFTER = 60.0


class Sweeping:
    """People are told of each orphan once; it is ended where the active policy says so (``end_orphans_after``).

    ``say``: told of orphans and of trouble, once each time it changes.
    """

    name = "sweeping"

    def __init__(self, broker: Broker, *, say: Callable[[str], None], every: float = EVERY) -> None:
        # A broker belongs to one thread; the store itself may be shared, but not the engines made from it.
        self._broker = Broker(broker.settings, broker.registries)
        self._say = say
        self._every = every
        self._said: set[str] = set()

    def run(self, stop: threading.Event) -> None:
        """Until ``stop`` is set. What goes wrong is said, and tried again with the next sweep."""
        pause = min(_FIRST_AFTER, self._every)  # a service that is often started anew sweeps all the same
        while not stop.wait(pause):
            pause = self._every
            try:
                with self._broker.store.lead(Duty.SWEEP) as leading:
                    if leading is not None:
                        self.once()
            except BrokerError as error:
                self._tell({str(error)})

    def once(self) -> Swept:
        """One sweep. Raises `StoreProblem`, and `InvalidInput` where the active policy cannot be read."""
        broker = self._broker
        after = broker.policy().defaults.end_orphans_after
        swept = sweep(broker, GRACE if after is None else after)
        done = {one.leftover.id: one for one in end(broker, swept)} if after is not None else {}
        targets = tuple(broker.settings.notify)
        said = {f"{name} could not be swept: {why}" for name, why in swept.trouble.items()}
        for one in swept.found:
            if one.standing is Standing.ORPHAN:
                result = done.get(one.id)
                notice = notice_of(one, ended=result is not None and not result.error)
                broker.store.outbox.add(notice, targets, broker.clock.now())
                said.add(f"{notice.title}: {notice.body}" + (f" {result.error}" if result and result.error else ""))
        self._tell(said)
        return swept

    def _tell(self, said: set[str]) -> None:
        for sentence in sorted(said - self._said):
            self._say(sentence)
        self._said = said
