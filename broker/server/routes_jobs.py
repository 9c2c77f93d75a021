"""The read-only routes. Each shows what its caller may see."""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Annotated, Any

from fastapi import Depends, Query

from broker.app.billing import job_ledger as ledger
from broker.app.jobs import approval_lists, details, jobs
from broker.app.jobs import queue as queues
from broker.app.jobs.bills import bills_of
from broker.app.market import offer_lists
from broker.app.market.market import find_offers
from broker.app.market.offer_lists import matching_offers
from broker.app.market.offer_rows import ListedOffer, OfferFilter, PriceKind, rows
from broker.app.results.access import CallerIdentity
from broker.app.results.approvals import ApprovalList
from broker.app.results.job_history import JobHistory, JobLedger, PlacementDecisions
from broker.app.results.jobs import AttemptList, JobList, JobLogs, LoggedLine
from broker.app.results.offers import OfferGroupList, OfferList, OfferResult, OfferRiskList
from broker.app.results.queue import QueueResult
from broker.app.wiring import Broker
from broker.core.access.permissions import Permission
from broker.core.errors import InvalidInput
from broker.core.events.outcomes import JobState
from broker.core.market.offer_order import OfferOrder
from broker.core.market.offers import SANDBOX, Availability, CapacityType, Offer, OfferQuery
from broker.core.values.money import Money
from broker.server.callers import By, Caller
from broker.server.paths import MAX_OFFERS
from broker.server.shared_results import share_result
from broker.store.jobs.pages import JobListFilter, JobPlace

_MAX_LINES = 5_000

MAX_ROWS = 200
"""The most rows of a page."""
Limit = Annotated[int, Query(ge=1, le=MAX_ROWS, description="Rows of the page.")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next_cursor` of the page before.")]


def me(by: By) -> CallerIdentity:
    """The token's owner, and what the token allows."""
    return CallerIdentity.of(by.access)


def list_jobs(
    by: By,
    state: Annotated[list[JobState] | None, Query(description="Only jobs in these states.")] = None,
    team: Annotated[list[str] | None, Query(description="Only jobs of these teams, or patterns.")] = None,
    user: Annotated[list[str] | None, Query(description="Only jobs of these persons, or patterns.")] = None,
    reference: Annotated[
        str | None,
        Query(max_length=100, description="What a person calls a job: its id, its name, or how its id begins."),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> JobPage:
    """Jobs of the teams that the caller may see, newest first."""
    job_filter = JobFilter(state or (), team or (), user or (), reference)
    return job_page(by, job_filter, limit=limit, cursor=cursor)


def show_job(by: By, id: str) -> JobHistory:
    """One job with its bill, its progress and its events."""
    return details.history(by.broker, by.job(id))


def job_attempts(by: By, id: str) -> AttemptList:
    """Every attempt of a job: place, duration, cause of its end."""
    return details.attempts(by.broker, by.job(id))


def job_ledger(by: By, id: str) -> JobLedger:
    """The ledger entries of a job, each with the source and age of its price; they add up to its cost."""
    return ledger.job_ledger(by.broker, by.job(id))


def job_placements(by: By, id: str, limit: Annotated[int, Query(ge=1, le=100)] = 10) -> PlacementDecisions:
    """Why a job runs where it does: its newest placement decisions, with the offers considered."""
    return details.placement_decisions(by.broker, by.job(id), limit=limit)


def job_logs(
    by: By,
    id: str,
    attempt: Annotated[int | None, Query(ge=1, description="Only this attempt.")] = None,
    node: Annotated[int | None, Query(ge=0, description="Only this node; 0 is the first.")] = None,
    tail: Annotated[int, Query(ge=1, le=_MAX_LINES, description="The last lines; with `start`, the next ones.")] = 500,
    start: Annotated[int | None, Query(ge=0, description="Number of lines to skip from the beginning.")] = None,
) -> JobLogs:
    """The end of a job's output, or what follows its first ``start`` lines: at most 5,000 lines and two million
    characters, oldest first."""
    view = by.job(id, Permission.SEE_OUTPUT)
    if attempt is not None and attempt > view.attempt_count:
        raise InvalidInput(f"{view.id} has no attempt {attempt}; it has {view.attempt_count}", where="attempt")
    numbers = [attempt] if attempt else [attempt_view.number for attempt_view in view.attempts]
    all_lines = ((n, text) for n in numbers for text in jobs.logs(by.broker, view, n, node))
    lines = _last_lines(all_lines, tail) if start is None else _next_lines(all_lines, start, tail)
    return JobLogs(id=view.id, lines=[LoggedLine(attempt=number, line=text) for number, text in lines])


@dataclass(frozen=True)
class WantedMachines:
    """Which machines."""

    gpu: Annotated[list[str] | None, Query(description="Only these: H100, H100:8, cpu.")] = None
    provider: Annotated[list[str] | None, Query(description="Only these providers, or patterns.")] = None
    region: Annotated[list[str] | None, Query(description="Only these regions, or patterns.")] = None
    capacity_type: Annotated[list[CapacityType] | None, Query(description="Only these capacity types.")] = None
    instance_type: Annotated[list[str] | None, Query(description="Only these machine types, or patterns.")] = None

    def filter(self) -> OfferFilter:
        """Raises `InvalidInput` for a bad count, `UnknownName`."""
        return OfferFilter.of(vars(self))


@dataclass(frozen=True)
class WantedOffers(WantedMachines):
    """Which machines, at which prices."""

    price_kind: Annotated[list[PriceKind] | None, Query(description="Only prices of these kinds.")] = None
    available: Annotated[bool, Query(description="Only what is known to be available.")] = False
    old: Annotated[bool, Query(description="Also reference prices of more than 180 days ago (spot: 60).")] = False
    max_price: Annotated[Decimal | None, Query(ge=0, description="At most this price per GPU-hour, in USD.")] = None

    def filter(self) -> OfferFilter:
        """As `WantedMachines.filter`."""
        max_price = None if self.max_price is None else Money.usd(self.max_price)
        machines = {name: value for name, value in vars(self).items() if isinstance(value, list)}
        return OfferFilter.of(machines, available=self.available, old=self.old, max_price=max_price)


Offers = Annotated[int, Query(ge=1, le=MAX_OFFERS, description="Rows.")]
Sort = Annotated[OfferOrder, Query(description="The order.")]


def list_offers(
    by: By,
    wanted: Annotated[WantedOffers, Depends()],
    sort: Sort = OfferOrder.GPU_PRICE,
    limit: Offers = 50,
    cursor: Cursor = None,
) -> OfferPage:
    """Current offers: cheapest GPU-hour first, then commitments of months, then machines without a GPU. Other orders
    have one page."""
    return offer_page(by, wanted.filter(), sort, limit=limit, cursor=cursor)


def group_offers(
    by: By,
    wanted: Annotated[WantedOffers, Depends()],
    dimensions: Annotated[str, Query(alias="by", max_length=200, description="gpu, provider, region, …")] = "gpu",
    limit: Offers = 50,
) -> OfferGroupList:
    """Current offers in groups, with the cheapest of each."""
    names = offer_lists.parse_dimensions(dimensions, where="by")
    return offer_lists.list_offer_groups(by.broker, wanted.filter(), names, limit)


def offer_risks(
    by: By, wanted: Annotated[WantedOffers, Depends()], sort: Sort = OfferOrder.GPU_PRICE, limit: Offers = 50
) -> OfferRiskList:
    """Current offers with their risk of interruption."""
    return offer_lists.list_offer_risks(by.broker, wanted.filter(), sort, limit)


def list_approvals(
    by: By,
    decided: Annotated[bool, Query(description="Also decided requests and ended standing grants.")] = False,
    mine: Annotated[bool, Query(description="Only requests and purchases that the caller may decide.")] = False,
) -> ApprovalList:
    """Approval requests of jobs that the caller may see, oldest first; standing grants for these teams only, for
    the caller, or by the caller; and purchases of capacity that wait for approval."""
    teams = by.access.teams(Permission.SEE_JOBS)
    return approval_lists.approval_list(by.broker, by=by.actor, decided=decided, mine=mine, teams=teams)


def show_queue(by: By) -> QueueResult:
    """The waiting jobs that the caller may see, in queue order. Their positions count only these jobs."""
    return QueueResult.of(queues.team_queue(by.broker, by.access.teams(Permission.SEE_JOBS)))


_NOT_AVAILABLE = (Availability.UNAVAILABLE, Availability.NO_QUOTA)
_MAX_OUTPUT = 2_000_000  # characters in one answer


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A filter of jobs: those that match all given fields. ``teams``, ``users``: names or patterns. ``reference``: an
    id, a name, or the beginning of an id."""

    states: Sequence[JobState] = ()
    teams: Sequence[str] = ()
    users: Sequence[str] = ()
    reference: str | None = None


def job_page(by: Caller, job_filter: JobFilter, *, limit: int, cursor: str | None = None) -> JobPage:
    """Jobs of the teams that the caller may see, newest first. Raises `InvalidInput` for a bad cursor."""
    if job_filter.reference is not None:
        return _matching(by, job_filter.reference, limit)
    after = None
    if cursor is not None:
        at, id = parse_cursor(cursor, str, str)
        after = JobPlace(cursor_time(at), id)
    query = JobListFilter(
        states=tuple(state.value for state in job_filter.states),
        users=job_filter.users,
        teams=job_filter.teams,
        visible=by.access.teams(Permission.SEE_JOBS),
    )
    page = jobs.job_page(by.broker, query, after=after, limit=limit)
    next_cursor = None if page.next is None else cursor_of(page.next.submitted_at.isoformat(), page.next.id)
    return _page(by, jobs.JobMatches(page.views, page.unreadable), next_cursor)


def _matching(by: Caller, reference: str, limit: int) -> JobPage:
    visible_teams = by.access.teams(Permission.SEE_JOBS)
    return _page(by, jobs.JobMatches(jobs.matching_jobs(by.broker, reference, visible_teams, limit), ()), None)


def _page(by: Caller, matches: jobs.JobMatches, next_cursor: str | None) -> JobPage:
    details_page = details.job_list(by.broker, matches, bills_of(by.broker, matches.views))
    return JobPage.from_parts(details_page, next_cursor=next_cursor)


def _last_lines(all_lines: Iterable[tuple[int, str]], limit: int) -> Sequence[tuple[int, str]]:
    lines: deque[tuple[int, str]] = deque(maxlen=limit)
    size = 0
    for number, text in all_lines:
        size += len(text) - (len(lines[0][1]) if len(lines) == limit else 0)
        lines.append((number, text[-_MAX_OUTPUT:]))
        while size > _MAX_OUTPUT and len(lines) > 1:
            size -= len(lines.popleft()[1])
    return list(lines)


def _next_lines(all_lines: Iterable[tuple[int, str]], start: int, limit: int) -> Sequence[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    size = 0
    for number, text in islice(all_lines, start, start + limit):
        size += len(text)
        if lines and size > _MAX_OUTPUT:
            break
        lines.append((number, text[-_MAX_OUTPUT:]))
    return lines


def offer_page(
    by: Caller,
    offer_filter: OfferFilter,
    order: OfferOrder = OfferOrder.GPU_PRICE,
    *,
    limit: int,
    cursor: str | None = None,
) -> OfferPage:
    """Current offers in that order; only that by the price of a GPU-hour has pages. Raises `InvalidInput` for a bad
    cursor, `UnknownName`."""
    result = matching_offers(by.broker, offer_filter, order)
    if order is not OfferOrder.GPU_PRICE:
        if cursor is not None:
            raise InvalidInput("only the order gpu-price has pages", where="cursor")
        return OfferPage.from_parts(result, offers=result.rows[:limit], next_cursor=None)
    rest = sorted(result.rows, key=_sort_key)
    if cursor is not None:
        after = parse_cursor(cursor, int, int, str)
        rest = [row for row in rest if _sort_key(row) > after]
    rows = rest[:limit]
    following = cursor_of(*_sort_key(rows[-1])) if len(rest) > limit else None
    return OfferPage.from_parts(result, offers=rows, next_cursor=following)


@dataclass(frozen=True, slots=True)
class CheapestNow:
    """The cheapest offer of a capacity type now, and earlier; None if none is recorded."""

    offer: OfferResult
    earlier: OfferResult | None


def cheapest(by: Caller, gpu: str, ago: timedelta) -> list[CheapestNow]:
    """For each capacity type, the cheapest offer of the accelerator that is neither sold out nor suspicious, and the
    cheapest one ``ago``."""
    return share_result(by, ("cheapest", gpu, ago), lambda: _cheapest_of(by.broker, gpu, ago))


def _cheapest_of(broker: Broker, gpu: str, ago: timedelta) -> list[CheapestNow]:
    query = OfferQuery(accelerators=(gpu,))
    current = find_offers(broker, query)
    earlier_time = current.now - ago
    past = broker.store.market.offers_at(earlier_time, query=query)
    earlier = _cheapest([offer for offer in past if offer.provider != SANDBOX], earlier_time)
    return [
        CheapestNow(OfferResult.of(row), OfferResult.of(earlier[kind]) if kind in earlier else None)
        for kind, row in _cheapest(current.offers, current.now).items()
    ]


def _cheapest(offers: Iterable[Offer], at: datetime) -> dict[CapacityType, ListedOffer]:
    best: dict[CapacityType, ListedOffer] = {}
    for row in sorted(rows(offers, at), key=_sort_key):
        offer = row.offer
        if offer.price is not None and offer.doubt is None and offer.availability not in _NOT_AVAILABLE:
            best.setdefault(offer.capacity_type, row)
    return best


def _sort_key(row: ListedOffer) -> tuple[int, int, str]:
    """The sort key of an offer: the price per GPU. As on the command line, unknown and doubtful prices come after known
    ones, then commitments of months, then machines without a GPU."""
    offer, price = row.offer, row.per_gpu or row.offer.price
    flags = (offer.count == 0, offer.term_months is not None, offer.doubt is not None, price is None)
    rank = sum(2**place for place, flag in enumerate(reversed(flags)) if flag)
    return rank, price.micros if price is not None else 0, offer.id


class JobPage(JobList):
    """``next_cursor``: that of the next page; null on the last page."""

    next_cursor: str | None


class OfferPage(OfferList):
    """Offers, cheapest GPU first. ``matching``: their number on all pages."""

    next_cursor: str | None


def cursor_of(*place: str | int) -> str:
    """The cursor of a place in the order."""
    return base64.urlsafe_b64encode(json.dumps(place, separators=(",", ":")).encode()).decode().rstrip("=")


def parse_cursor(cursor: str, *form: type) -> tuple[Any, ...]:
    """The place that a cursor encodes, with fields of the types ``form``. Raises `InvalidInput` for an invalid one."""
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except ValueError:  # no base64, no UTF-8, no JSON
        place = None
    if not isinstance(place, list) or [type(part) for part in place] != list(form):
        raise InvalidInput("not a cursor of this list", where="cursor", hint="take `next_cursor` of the page before")
    return tuple(place)


def cursor_time(text: str) -> datetime:
    """The time of a cursor. Raises `InvalidInput`."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise InvalidInput("not a cursor of this list", where="cursor", hint="take `next_cursor` of the page before")
    return at
