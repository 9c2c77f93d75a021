"""The documents that a caller may see, for the API and the page. What the caller may not see is left out, and not
counted in totals."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from broker.app.billing import job_ledger as ledger
from broker.app.jobs import approval_lists, details, jobs
from broker.app.jobs import details as why
from broker.app.jobs import queue as queues
from broker.app.jobs.bills import bills_of
from broker.app.market.market import listing
from broker.app.market.offer_lists import matching_offers
from broker.app.market.offer_rows import ListedOffer, OfferFilter, wanted_rows
from broker.app.results.approvals import ApprovalList
from broker.app.results.job_history import JobHistory, JobLedger, PlacementDecisions
from broker.app.results.jobs import AttemptList, JobLogs, LoggedLine
from broker.app.results.offers import OfferResult
from broker.app.results.queue import QueueResult
from broker.app.wiring import Broker
from broker.core.access.permissions import Permission
from broker.core.errors import InvalidInput
from broker.core.events.outcomes import JobState
from broker.core.market.offer_order import OfferOrder
from broker.core.market.offers import SANDBOX, Availability, CapacityType, Offer, OfferQuery
from broker.server.callers import Caller
from broker.server.pages import JobPage, OfferPage, cursor_of, moment_of, place_of
from broker.server.shared_results import shared
from broker.store.jobs.pages import JobPlace, WantedJobs

_NOT_TO_BE_HAD = (Availability.UNAVAILABLE, Availability.NO_QUOTA)
_MOST_OUTPUT = 2_000_000  # characters in one answer


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A filter of jobs: those that match all given fields. ``teams``, ``users``: names or patterns. ``reference``: an
    id, a name, or the beginning of an id."""

    states: Sequence[JobState] = ()
    teams: Sequence[str] = ()
    users: Sequence[str] = ()
    reference: str | None = None


def job_page(by: Caller, wanted: JobFilter, *, limit: int, cursor: str | None = None) -> JobPage:
    """Jobs of the teams that the caller may see, newest first. Raises `InvalidInput` for a bad cursor."""
    if wanted.reference is not None:
        return _matching(by, wanted.reference, limit)
    after = None
    if cursor is not None:
        at, id = place_of(cursor, str, str)
        after = JobPlace(moment_of(at), id)
    among = WantedJobs(
        states=tuple(one.value for one in wanted.states),
        users=wanted.users,
        teams=wanted.teams,
        visible=by.access.teams(Permission.SEE_JOBS),
    )
    found = jobs.page(by.broker, among, after=after, limit=limit)
    following = None if found.next is None else cursor_of(found.next.submitted_at.isoformat(), found.next.id)
    return _page(by, jobs.FoundJobs(found.views, found.unreadable), following)


def _matching(by: Caller, reference: str, limit: int) -> JobPage:
    teams = by.access.teams(Permission.SEE_JOBS)
    return _page(by, jobs.FoundJobs(jobs.matches(by.broker, reference, teams, limit), ()), None)


def _page(by: Caller, found: jobs.FoundJobs, following: str | None) -> JobPage:
    listed = details.listed(by.broker, found, bills_of(by.broker, found.views))
    return JobPage.from_parts(listed, next_cursor=following)


def job(by: Caller, id: str) -> JobHistory:
    """One job with its bill, its progress and its events."""
    return details.history(by.broker, by.job(id))


def job_ledger(by: Caller, id: str) -> JobLedger:
    """The ledger entries of a job, each with the source and age of its price."""
    return ledger.job_ledger(by.broker, by.job(id))


def why_here(by: Caller, id: str, *, limit: int) -> PlacementDecisions:
    """Why a job runs where it does: the offers considered, and the rules' verdicts."""
    return why.why_here(by.broker, by.job(id), limit=limit)


def attempts(by: Caller, id: str) -> AttemptList:
    """Every attempt of a job."""
    return details.attempts(by.broker, by.job(id))


def logs(
    by: Caller, id: str, *, attempt: int | None = None, node: int | None = None, tail: int, start: int | None = None
) -> JobLogs:
    """The end of a job's output, oldest first: at most ``tail`` lines and two million characters; with ``start``,
    instead the lines after the first ``start`` ones. Raises `InvalidInput` for an attempt or a node that does not
    exist."""
    view = by.job(id, Permission.SEE_OUTPUT)
    if attempt is not None and attempt > view.attempt_count:
        raise InvalidInput(f"{view.id} has no attempt {attempt}; it has {view.attempt_count}", where="attempt")
    numbers = [attempt] if attempt else [one.number for one in view.attempts]
    every = ((n, text) for n in numbers for text in jobs.logs(by.broker, view, n, node))
    kept = _last(every, tail) if start is None else _next(every, start, tail)
    return JobLogs(id=view.id, lines=[LoggedLine(attempt=number, line=text) for number, text in kept])


def _last(every: Iterable[tuple[int, str]], most: int) -> Sequence[tuple[int, str]]:
    kept: deque[tuple[int, str]] = deque(maxlen=most)
    size = 0
    for number, text in every:
        size += len(text) - (len(kept[0][1]) if len(kept) == most else 0)
        kept.append((number, text[-_MOST_OUTPUT:]))
        while size > _MOST_OUTPUT and len(kept) > 1:
            size -= len(kept.popleft()[1])
    return list(kept)


def _next(every: Iterable[tuple[int, str]], start: int, most: int) -> Sequence[tuple[int, str]]:
    kept: list[tuple[int, str]] = []
    size = 0
    for number, text in islice(every, start, start + most):
        size += len(text)
        if kept and size > _MOST_OUTPUT:
            break
        kept.append((number, text[-_MOST_OUTPUT:]))
    return kept


def offer_page(
    by: Caller,
    wanted: OfferFilter,
    order: OfferOrder = OfferOrder.GPU_PRICE,
    *,
    limit: int,
    cursor: str | None = None,
) -> OfferPage:
    """Current offers in that order; only that by the price of a GPU-hour has pages. Raises `InvalidInput` for a bad
    cursor, `UnknownName`."""
    found = matching_offers(by.broker, wanted, order)
    if order is not OfferOrder.GPU_PRICE:
        if cursor is not None:
            raise InvalidInput("only the order gpu-price has pages", where="cursor")
        return OfferPage.from_parts(found, offers=found.rows[:limit], next_cursor=None)
    rest = sorted(found.rows, key=_place)
    if cursor is not None:
        after = place_of(cursor, int, int, str)
        rest = [row for row in rest if _place(row) > after]
    shown = rest[:limit]
    more = cursor_of(*_place(shown[-1])) if len(rest) > limit else None
    return OfferPage.from_parts(found, offers=shown, next_cursor=more)


@dataclass(frozen=True, slots=True)
class CheapestNow:
    """The cheapest offer of a capacity type now, and earlier; None if none is recorded."""

    offer: OfferResult
    earlier: OfferResult | None


def cheapest(by: Caller, gpu: str, ago: timedelta) -> list[CheapestNow]:
    """For each capacity type, the cheapest offer of the accelerator that is neither sold out nor in doubt, and the
    cheapest one ``ago``."""
    return shared(by, ("cheapest", gpu, ago), lambda: _cheapest_of(by.broker, gpu, ago))


def _cheapest_of(broker: Broker, gpu: str, ago: timedelta) -> list[CheapestNow]:
    query = OfferQuery(accelerators=(gpu,))
    found = listing(broker, query)
    then = found.now - ago
    past = broker.store.market.offers_at(then, query=query)
    before = _cheapest([one.offer for one in past if one.offer.provider != SANDBOX], then)
    return [
        CheapestNow(OfferResult.of(row), OfferResult.of(before[kind]) if kind in before else None)
        for kind, row in _cheapest(found.offers, found.now).items()
    ]


def _cheapest(offers: Iterable[Offer], at: datetime) -> dict[CapacityType, ListedOffer]:
    best: dict[CapacityType, ListedOffer] = {}
    for row in wanted_rows(offers, at, OfferFilter()):
        offer = row.offer
        if offer.price is not None and offer.doubt is None and offer.availability not in _NOT_TO_BE_HAD:
            best.setdefault(offer.capacity_type, row)
    return best


def _place(row: ListedOffer) -> tuple[int, int, str]:
    """The sort key of an offer: the price per GPU. As on the command line, unknown and doubtful prices come after known
    ones, then commitments of months, then machines without a GPU."""
    offer, price = row.offer, row.per_gpu or row.offer.price
    after = (offer.count == 0, offer.term_months is not None, offer.doubt is not None, price is None)
    rank = sum(2**place for place, yes in enumerate(reversed(after)) if yes)
    return rank, price.micros if price is not None else 0, offer.id


def approval_list(by: Caller, *, decided: bool = False, mine: bool = False) -> ApprovalList:
    """Approval requests of jobs that the caller may see, oldest first; standing grants for these teams only, for
    the caller, or by the caller; and purchases of capacity that wait for approval. ``decided``: also decided requests
    and ended grants; ``mine``: only what the caller may decide."""
    teams = by.access.teams(Permission.SEE_JOBS)
    return approval_lists.approval_list(by.broker, by=by.actor, decided=decided, mine=mine, teams=teams)


def queue(by: Caller) -> QueueResult:
    """The waiting jobs that the caller may see, in queue order. Their positions count only these jobs."""
    return QueueResult.of(queues.of_teams(by.broker, by.access.teams(Permission.SEE_JOBS)))
