"""Selects the jobs to visit in a tick if very many run: those with news, and some of the others in turn.

A visit costs the same whether anything happened or not. So if more jobs run than `LookTurns` visits in one tick, each
further job adds little to the duration of a tick. A job without news waits at most `SHARE` ticks for its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from broker.core.events.views import JobView
from broker.core.market.offers import MoneyKind
from broker.ledger.entries import Balance

SHARE = 8

Money = Mapping[MoneyKind, Balance]


class LookTurns:
    """Keeps the jobs in the order of their last visits. For one thread.

    ``at_once``: the number of running jobs without news visited in one tick; if a `SHARE`-th of them is more, that many
    are. ``money``: returns the balances of a job.
    """

    def __init__(self, at_once: int, money: Callable[[str], Money]) -> None:
        self._at_once, self._money = at_once, money
        self._visited: dict[str, tuple[JobView, Money]] = {}  # those not visited for the longest time first

    def choose(self, views: Sequence[JobView], besides: Collection[str] = ()) -> set[str]:
        """The ids of the jobs to visit in this tick: jobs without machines, jobs that changed, those in ``besides``,
        and others in turn.
        """
        if len(views) <= self._at_once:
            self._visited.clear()
            return {view.id for view in views}
        present = {view.id: (view, self._money(view.id)) for view in views}
        chosen = {
            id for id, (view, money) in present.items() if not _runs(view) or not self._as_before(id, view, money)
        }
        chosen |= present.keys() & besides
        quiet = [id for id in self._visited if id in present and id not in chosen]
        chosen.update(quiet[: max(self._at_once, len(views) // SHARE)])
        kept = {id: self._visited[id] for id in quiet if id not in chosen}
        self._visited = kept | {id: one for id, one in present.items() if id in chosen}
        return chosen

    def again(self, ids: Collection[str]) -> None:
        """Visit these jobs in the next tick: their engine could not be asked in this one."""
        for id in ids:
            self._visited.pop(id, None)

    def _as_before(self, id: str, view: JobView, money: Money) -> bool:
        """Whether view and balances, with the dates of holds, are the same objects as at the last visit."""
        before = self._visited.get(id)
        if before is None or before[0] is not view or len(before[1]) != len(money):
            return False
        return all(before[1].get(kind) is balance for kind, balance in money.items())


def _runs(view: JobView) -> bool:
    return any(attempt.handle is not None and not attempt.over for attempt in view.attempts)
