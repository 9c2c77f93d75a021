"""The duty of `broker.app.service.serve` that ends launches of other tools whose end is not reported."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from broker.app.outside.launches import OpenLaunch
from broker.app.outside.overdue import end_overdue
from broker.app.service.periodic_duty import Rounds
from broker.app.wiring import Broker
from broker.store.engine.leader import LeaderRole

EVERY = 60.0  # seconds of the wall clock


class EndingLaunches:
    """``say``: receives each launch whose judged time ran out."""

    name = "outside launches"

    def __init__(self, broker: Broker, *, say: Callable[[str], None], every: float = EVERY) -> None:
        self._broker = broker
        self._rounds = Rounds(say, every, every, LeaderRole.OUTSIDE)

    def run(self, stop: threading.Event) -> None:
        """Until ``stop`` is set. What goes wrong is said, and tried again in the next round."""
        self._rounds.run(self._broker.store, self.once, stop)

    def once(self) -> Sequence[OpenLaunch]:
        """One round. Raises `StoreProblem`."""
        late = end_overdue(self._broker)
        self._rounds.tell(
            {
                f"{one.id}: the time for which {one.tags.user} launched with {one.tool} is over, and nobody reported"
                f" its end: {one.held} counts as spent; look whether it still runs"
                for one in late
            }
        )
        return late
