"""The open jobs, cached between ticks so that only changes are read; which of them to visit; the queue of visits.

A cached view is valid while the number of the job's last event is the same; holds and spend are valid while the balance
is. Invalid values are read again.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime

from broker.core.errors import UnreadableJob
from broker.core.events.views import JobView
from broker.core.market.offers import MoneyKind, Offer
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import Balance, Sum, balances
from broker.ledger.meter import Meter
from broker.reconciler.controller import KnownMoney
from broker.store.store import Store

log = logging.getLogger(__name__)
_NONE: Mapping[MoneyKind, Balance] = {}


class WorkQueue:
    """The ids of the jobs to visit, each once. For one thread, so a job is never visited twice at a time."""

    def __init__(self) -> None:
        self._jobs = OrderedDict[str, None]()

    def add(self, job_ids: Iterable[str]) -> None:
        """Append jobs in that order; those in the queue keep their place."""
        self._jobs |= dict.fromkeys(job_ids)

    def news(self, job_id: str) -> None:
        """Move the job to the front of the queue."""
        self._jobs[job_id] = None
        self._jobs.move_to_end(job_id, last=False)

    def next(self) -> str | None:
        """Remove and return the first job; None if the queue is empty."""
        return self._jobs.popitem(last=False)[0] if self._jobs else None


class Worklist:
    """The cache of open jobs. ``journal``: the store. For one thread. A job that this version cannot read is omitted
    and logged."""

    def __init__(self, journal: Store) -> None:
        self._journal = journal
        self._logged_reasons: dict[str, str] = {}
        self._views: dict[str, JobView] = {}
        self._sums: dict[str, Sequence[Sum]] = {}
        self._meters: dict[str, Mapping[int, Meter]] = {}
        self._balances: dict[str, Mapping[MoneyKind, Balance]] = {}
        self._money: dict[str, tuple[Sequence[Sum], Mapping[MoneyKind, Balance]]] = {}
        self._prices: dict[tuple[str, Money], Sequence[tuple[datetime, Money]]] = {}

    def look(self) -> list[JobView]:
        """Every open job that can be read, oldest first. Raises `StoreProblem`."""
        self._prices.clear()
        with self._journal.reading() as snapshot:
            last = snapshot.last_events()
            changed = [id for id, seq in last.items() if id not in self._views or self._views[id].seq != seq]
            changed_views = {view.id: view for view in snapshot.views(changed)}
            self._tell(snapshot.unreadable)
            unchanged = self._views.keys() - changed
            self._views = {
                id: changed_views.get(id) or self._views[id] for id in last if id in changed_views or id in unchanged
            }
            self._balances = dict(snapshot.open_balances())
            unknown = [id for id in last if id not in self._sums or not self._agrees(id)]
            self._sums = {id: sums for id, sums in self._sums.items() if id in last}
            self._sums |= dict.fromkeys(unknown, ()) | dict(snapshot.sums(unknown))
            self._meters = {id: meters for id, meters in self._meters.items() if id in last}
            self._meters |= {id: {} for id in unknown} | dict(snapshot.meters(unknown))
            self._money = {id: money for id, money in self._money.items() if id in last}
        return list(self._views.values())

    def _tell(self, unreadable: Sequence[UnreadableJob]) -> None:
        """Log each unreadable job, once per reason."""
        for job in unreadable:
            if self._logged_reasons.get(job.job_id) != job.because:
                log.error("%s; it is left alone (%s)", job, job.hint)
        self._logged_reasons = {job.job_id: job.because for job in unreadable}

    def _agrees(self, job_id: str) -> bool:
        return self.money(job_id) == self.balances(job_id)

    def money(self, job_id: str) -> Mapping[MoneyKind, Balance]:
        """The balances, as computed from the cached sums of the job's entries."""
        sums = self.sums(job_id)
        cached = self._money.get(job_id)
        if cached is None or cached[0] is not sums:
            cached = self._money[job_id] = sums, balances(sums)
        return cached[1]

    def balances(self, job_id: str) -> Mapping[MoneyKind, Balance]:
        """The cached balances of the job as stored; without dates of a hold where they are not known."""
        return self._balances.get(job_id, _NONE)

    def view(self, job_id: str) -> JobView | None:
        """The cached view of the job; None if it was closed."""
        return self._views.get(job_id)

    def again(self, job_id: str) -> JobView | None:
        """Read the job again; None if it is closed. Raises `StoreProblem` and `UnreadableJob`."""
        with self._journal.reading() as snapshot:
            view = snapshot.job(job_id)
            if view is None or view.closed:
                self._drop(job_id)
                return None
            self._views[job_id] = view
            self._sums[job_id] = snapshot.sums([job_id]).get(job_id, ())
            self._meters[job_id] = snapshot.meters([job_id]).get(job_id, {})
            self._balances[job_id] = snapshot.balance(job_id)
        return view

    def took(self, views: Mapping[str, JobView | None]) -> None:
        """Cache the new views of jobs that were just recorded (None: unknown, to be read), and read their balances
        again. Raises `StoreProblem`.
        """
        known_views = {id: view for id, view in views.items() if view is not None}
        with self._journal.reading() as snapshot:
            if unknown := [id for id in views if id not in known_views]:
                known_views |= {view.id: view for view in snapshot.views(unknown)}
            open_ids = [id for id, view in known_views.items() if not view.closed]
            if open_ids:
                sums, meters, money = snapshot.sums(open_ids), snapshot.meters(open_ids), snapshot.balances(open_ids)
        for id in views:
            if id not in open_ids:
                self._drop(id)
                continue
            self._views[id], self._balances[id] = known_views[id], money.get(id, _NONE)
            self._sums[id], self._meters[id] = sums.get(id, ()), meters.get(id, {})

    def refresh(self, job_ids: Sequence[str]) -> None:
        """Read those of these jobs again that have changed. Raises `StoreProblem`."""
        if not job_ids:
            return
        with self._journal.asking() as snapshot:
            last = snapshot.last_events(job_ids)
        if changed := [id for id in job_ids if id not in self._views or self._views[id].seq != last.get(id)]:
            self.took(dict.fromkeys(changed))

    def _drop(self, job_id: str) -> None:
        for cache in (self._views, self._sums, self._meters, self._balances):
            cache.pop(job_id, None)

    def sums(self, job_id: str) -> Sequence[Sum]:
        """The cached sums of the job's entries (`Reading.sums`)."""
        return self._sums.get(job_id, ())

    def meters(self, job_id: str) -> Mapping[int, Meter]:
        """The cached meters of the job's attempts (`Reading.meters`)."""
        return self._meters.get(job_id, {})

    def known(self, job_id: str) -> KnownMoney:
        return KnownMoney(self.sums(job_id), self.meters(job_id), self.balances(job_id))

    def burn(self, job_id: str, kind: MoneyKind) -> Burn | None:
        """The job's cached hold of that kind of money, with the time for which it was judged; None without a hold."""
        return self.balances(job_id).get(kind, Balance()).burn

    def price_series(self, offer: Offer, start: datetime, end: datetime) -> Sequence[tuple[datetime, Money]]:
        """As `Reading.price_series`. A price at a single moment is cached until the tick ends, whatever the moment."""
        cached = self._prices.get((offer.id, offer.disk)) if start == end else None
        if cached is None:
            with self._journal.reading() as snapshot:
                cached = snapshot.price_series(offer, start, end)
            if start == end:
                self._prices[offer.id, offer.disk] = cached
        return cached


TURN_TICKS = 8

Balances = Mapping[MoneyKind, Balance]


class VisitTurns:
    """Selects the jobs to visit in a tick if very many run: those with news, and some of the others in turn. For one
    thread.

    A visit costs the same whether anything happened or not. So if more jobs run than are visited in one tick, each
    further job adds little to the duration of a tick. A job without news waits at most `TURN_TICKS` ticks for its turn.

    ``at_once``: the number of running jobs without news visited in one tick; if a `TURN_TICKS`-th of them is more, that
    many are. ``money``: returns the balances of a job.
    """

    def __init__(self, at_once: int, money: Callable[[str], Balances]) -> None:
        self._at_once, self._money = at_once, money
        self._visited: dict[str, tuple[JobView, Balances]] = {}  # those not visited for the longest time first

    def choose(self, views: Sequence[JobView], besides: Collection[str] = ()) -> set[str]:
        """The ids of the jobs to visit in this tick: jobs without machines, jobs that changed, those in ``besides``,
        and others in turn.
        """
        if len(views) <= self._at_once:
            self._visited.clear()
            return {view.id for view in views}
        current = {view.id: (view, self._money(view.id)) for view in views}
        selected = {
            id for id, (view, money) in current.items() if not _runs(view) or not self._is_unchanged(id, view, money)
        }
        selected |= current.keys() & besides
        idle_ids = [id for id in self._visited if id in current and id not in selected]
        selected.update(idle_ids[: max(self._at_once, len(views) // TURN_TICKS)])
        rest = {id: self._visited[id] for id in idle_ids if id not in selected}
        self._visited = rest | {id: entry for id, entry in current.items() if id in selected}
        return selected

    def again(self, ids: Collection[str]) -> None:
        """Visit these jobs in the next tick: their engine could not be asked in this one."""
        for id in ids:
            self._visited.pop(id, None)

    def _is_unchanged(self, id: str, view: JobView, money: Balances) -> bool:
        """Whether view and balances, with the dates of holds, are the same objects as at the last visit."""
        last = self._visited.get(id)
        if last is None or last[0] is not view or len(last[1]) != len(money):
            return False
        return all(last[1].get(kind) is balance for kind, balance in money.items())


def _runs(view: JobView) -> bool:
    return any(attempt.handle is not None and not attempt.over for attempt in view.attempts)
