"""The duty of `broker.app.service.serve` that keeps reports quick however many jobs there have been."""

from __future__ import annotations

from datetime import timedelta

from broker.app.service.periodic_duty import PeriodicDuty
from broker.app.wiring import Broker
from broker.store.engine.leader import LeaderRole

# Most of what providers bill later is known by then; a job that is charged for afterwards leaves the sums, and the next
# round adds it again.
SETTLED_AFTER = timedelta(days=2)


def fold(broker: Broker) -> int:
    """Add what has been closed for long enough to the sums; returns the number of transactions. Raises
    `StoreProblem`."""
    return broker.store.fold_use(broker.clock.now() - SETTLED_AFTER)


class FoldingHistory(PeriodicDuty):
    """Adds what closed jobs used and spent to the sums that reports read. ``say``: receives each error once."""

    name = "folding history"
    first_after, every = 300.0, 3600.0
    role = LeaderRole.HISTORY

    def once(self) -> int:
        """One round. Raises `StoreProblem`."""
        return fold(self._broker)
