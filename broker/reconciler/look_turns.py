"""Which jobs a look visits where very many run: those with news, and of the others some in turn.

A visit costs the same whether anything happened or not. So with more running jobs than `LookTurns` visits at once, a
look costs little more for each further one, and a job without news waits for its turn for at most `SHARE` looks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from broker.core.events.views import JobView
from broker.core.market.offers import MoneyKind
from broker.ledger.entries import Balance

SHARE = 8

Money = Mapping[MoneyKind, Balance]


class LookTurns:
    """Keeps the jobs in the order of their last visits. ``at_once``: so many running jobs without news are visited in
    one look, or every `SHARE`-th if that is more. ``money``: the balances of a job. For one thread."""

    def __init__(self, at_once: int, money: Callable[[str], Money]) -> None:
        self._at_once, self._money = at_once, money
        self._visited: dict[str, tuple[JobView, Money]] = {}  # the longest unvisited first

    def choose(self, views: Sequence[JobView], besides: Collection[str] = ()) -> set[str]:
        """The ids of the jobs that this look visits: those without machines, those that changed, those ``besides``, and
        others in turn."""
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
        """The next look visits these jobs: this one could not ask about them."""
        for id in ids:
            self._visited.pop(id, None)

    def _as_before(self, id: str, view: JobView, money: Money) -> bool:
        """Whether view and balances are those of the last visit, the dates of a hold included: the very objects."""
        before = self._visited.get(id)
        if before is None or before[0] is not view or len(before[1]) != len(money):
            return False
        return all(before[1].get(kind) is balance for kind, balance in money.items())


def _runs(view: JobView) -> bool:
    return any(attempt.handle is not None and not attempt.over for attempt in view.attempts)
