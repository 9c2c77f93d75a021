"""The duty of `broker.app.service.serve` that sweeps periodically, in one process of a store at a time."""

from __future__ import annotations

from broker.app.alerts.routes import recipients
from broker.app.service.periodic_duty import PeriodicDuty
from broker.app.service.sweep import GRACE, Swept, end, notice_of, sweep
from broker.reconciler.sweep import LeftoverState


class Sweeping(PeriodicDuty):
    """Sends a notice of each orphan, once, and ends it if the active policy says so (``end_orphans_after``). ``say``:
    receives each orphan and error once."""

    name = "sweeping"
    first_after, every = 60.0, 600.0  # each sweep asks every cloud for its machines

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
        self._tell(said)
        return swept
