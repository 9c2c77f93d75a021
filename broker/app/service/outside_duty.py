"""The duty of `broker.app.service.serve` that ends overdue launches of other tools."""

from __future__ import annotations

from collections.abc import Sequence

from broker.app.outside.launches import OpenLaunch
from broker.app.outside.overdue import end_overdue
from broker.app.service.periodic_duty import PeriodicDuty
from broker.store.engine.leader import LeaderRole


class EndingLaunches(PeriodicDuty):
    """``say``: receives each launch that became overdue."""

    name = "outside launches"
    first_after, every = 60.0, 60.0
    role = LeaderRole.OUTSIDE

    def once(self) -> Sequence[OpenLaunch]:
        """One round. Raises `StoreProblem`."""
        late = end_overdue(self._broker)
        self._tell(
            {
                f"{one.id}: the time for which {one.tags.user} launched with {one.tool} is over, and nobody reported"
                f" its end: {one.held} counts as spent; check whether it still runs"
                for one in late
            }
        )
        return late
