"""The duty of `broker.app.service.serve` that keeps reports quick however many jobs there have been."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from broker.app.service.periodic_duty import Rounds
from broker.app.wiring import Broker
from broker.store.engine.leader import LeaderRole

_EVERY, _FIRST_AFTER = 3600.0, 300.0  # seconds of the wall clock
# Most of what providers bill later is known by then; a job that is charged for afterwards leaves the sums, and the next
# round adds it again.
SETTLED_AFTER = timedelta(days=2)


def fold(broker: Broker) -> int:
    """Add what has been closed for long enough to the sums; returns the number of transactions. Raises
    `StoreProblem`."""
    return broker.store.fold_use(broker.clock.now() - SETTLED_AFTER)


class FoldingHistory:
    """Adds what closed jobs used and spent to the sums that reports read. ``say``: receives each error once."""

    name = "folding history"

    def __init__(self, broker: Broker, *, say: Callable[[str], None], every: float = _EVERY) -> None:
        self._broker = Broker(broker.settings, broker.registries, broker.account, clock=broker.clock)
        self._rounds = Rounds(say, _FIRST_AFTER, every, LeaderRole.HISTORY)

    def run(self, stop: threading.Event) -> None:
        """Fold until ``stop`` is set. Errors are reported, and the next round tries again."""
        self._rounds.run(self._broker.store, self.once, stop)

    def once(self) -> int:
        """One round. Raises `StoreProblem`."""
        return fold(self._broker)
