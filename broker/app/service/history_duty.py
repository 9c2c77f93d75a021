"""The duty of `broker.app.service.serve` that adds closed jobs to the sums that reports read, so that reports stay fast
with any number of jobs."""

from __future__ import annotations

from datetime import timedelta

from broker.app.service.periodic_duty import PeriodicDuty
from broker.app.wiring import Broker
from broker.store.engine.leader import LeaderRole

# Most charges of providers are known by then. A job with a later charge is taken out of the sums, and the next
# round adds it again.
SETTLED_AFTER = timedelta(days=2)


def fold(broker: Broker) -> int:
    """Add jobs that have been closed for long enough to the sums; returns the number of transactions. Idempotent.
    Raises `StoreProblem`."""
    return broker.store.fold_use(broker.clock.now() - SETTLED_AFTER)


class FoldingHistory(PeriodicDuty):
    """Adds the use and spend of closed jobs to the sums that reports read. ``say``: receives each error once."""

    name = "folding history"
    first_after, every = 300.0, 3600.0
    role = LeaderRole.HISTORY

    def once(self) -> int:
        """One round. Raises `StoreProblem`."""
        return fold(self._broker)
