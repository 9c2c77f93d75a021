"""The routes that change nothing. Each shows what its caller may see, and leaves the rest out of counts and totals."""

from __future__ import annotations

from collections import deque
from typing import Annotated

from fastapi import Depends, Query
from fastapi.responses import Response

from broker.app.alerts import approvers
from broker.app.billing.budgets import budgets, visible
from broker.app.jobs import approvals, details, jobs
from broker.app.jobs import queue as queues
from broker.app.market.market import listing
from broker.app.market.offer_rows import ListedOffer, OfferFilter, wanted_rows
from broker.app.results.access import CallerIdentity
from broker.app.results.approvals import ApprovalList, ApprovalRequest, StandingGrantResult
from broker.app.results.budgets import BudgetList, BudgetResult
from broker.app.results.jobs import JobDetails, JobLogs, LoggedLine, UnreadableResult
from broker.app.results.offers import OfferResult
from broker.app.results.purchases import PurchaseResult
from broker.app.results.queue import QueueResult
from broker.app.results.values import Result
from broker.core.access.permissions import Permission
from broker.core.errors import InvalidInput
from broker.core.events.outcomes import JobState
from broker.core.market.machine_filter import counts_by_accelerator
from broker.core.market.offers import CapacityType, OfferQuery
from broker.core.policy.approvals import StandingGrant
from broker.core.purchases.purchases import PurchaseState
from broker.server.callers import Caller, caller_of
from broker.server.pages import MOST, JobPage, OfferPage, cursor_of, moment_of, place_of
from broker.store.jobs.pages import JobPlace, WantedJobs

_MOST_LINES = 5_000
_MOST_OUTPUT = 2_000_000  # characters in one answer

By = Annotated[Caller, Depends(caller_of)]
Limit = Annotated[int, Query(ge=1, le=MOST, description="Rows of the page.")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next_cursor` of the page before.")]


def answer(result: Result, status: int = 200) -> Response:
    """A result as the command line's ``--json`` has it."""
    return Response(result.model_dump_json(by_alias=True), status, media_type="application/json")


def me(by: By) -> Response:
    """Who the token belongs to, and what it is good for."""
    return answer(CallerIdentity.of(by.access))


def list_jobs(
    by: By,
    state: Annotated[list[JobState] | None, Query(description="Only jobs in these states.")] = None,
    team: Annotated[str | None, Query(description="Only jobs of this team.")] = None,
    user: Annotated[str | None, Query(description="Only jobs of this person.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Jobs of the teams that the caller may see, newest first."""
    after = None
    if cursor is not None:
        at, id = place_of(cursor, str, str)
        after = JobPlace(moment_of(at), id)
    wanted = WantedJobs(
        states=tuple(one.value for one in state or ()), user=user, team=team, teams=by.access.teams(Permission.SEE_JOBS)
    )
    found = jobs.page(by.broker, wanted, after=after, limit=limit)
    now = by.broker.clock.now()
    return answer(
        JobPage(
            jobs=[JobDetails.of(view, jobs.bill(by.broker, view), None, now) for view in found.views],
            unreadable=[UnreadableResult.of(one) for one in found.unreadable],
            next_cursor=None if found.next is None else cursor_of(found.next.submitted_at.isoformat(), found.next.id),
        )
    )


def show_job(by: By, id: str) -> Response:
    """One job with its bill, its progress and its events."""
    return answer(details.history(by.broker, by.job(id)))


def job_attempts(by: By, id: str) -> Response:
    """Every attempt of a job: where, how long, why it ended."""
    return answer(details.attempts(by.broker, by.job(id)))


def job_logs(
    by: By,
    id: str,
    attempt: Annotated[int | None, Query(ge=1, description="Only this attempt.")] = None,
    node: Annotated[int | None, Query(ge=0, description="Only this node; 0 is the first.")] = None,
    tail: Annotated[int, Query(ge=1, le=_MOST_LINES, description="The last lines.")] = 500,
) -> Response:
    """What a job's command printed last: at most 5,000 lines and two million characters, oldest first."""
    view = by.job(id, Permission.SEE_OUTPUT)
    if attempt is not None and attempt > view.attempt_count:
        raise InvalidInput(f"{view.id} has no attempt {attempt}; it has {view.attempt_count}", where="attempt")
    numbers = [attempt] if attempt else [one.number for one in view.attempts]
    printed: deque[tuple[int, str]] = deque(maxlen=tail)
    size = 0
    for number in numbers:
        for text in jobs.logs(by.broker, view, number, node):
            size += len(text) - (len(printed[0][1]) if len(printed) == tail else 0)
            printed.append((number, text[-_MOST_OUTPUT:]))
            while size > _MOST_OUTPUT and len(printed) > 1:
                size -= len(printed.popleft()[1])
    return answer(JobLogs(id=view.id, lines=[LoggedLine(attempt=number, line=text) for number, text in printed]))


def list_offers(
    by: By,
    gpu: Annotated[list[str] | None, Query(description="Only these: H100, H100:8, cpu.")] = None,
    provider: Annotated[list[str] | None, Query(description="Only these providers.")] = None,
    region: Annotated[list[str] | None, Query(description="Only these regions, or patterns.")] = None,
    capacity_type: Annotated[list[CapacityType] | None, Query(description="Only these capacity types.")] = None,
    available: Annotated[bool, Query(description="Only what is known to be available.")] = False,
    live: Annotated[bool, Query(description="No reference, imported or stale prices.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Current offers, the cheapest GPU first."""
    counts = counts_by_accelerator(gpu or (), where="gpu")
    query = OfferQuery(accelerators=tuple(counts), providers=tuple(provider or ()), regions=tuple(region or ()))
    found = listing(by.broker, query)
    wanted = OfferFilter(
        counts={name: frozenset(some) for name, some in counts.items()},
        capacity_types=frozenset(capacity_type or ()),
        available=available,
        live=live,
    )
    rows = sorted(wanted_rows(found.offers, found.now, wanted), key=_place)
    rest = rows
    if cursor is not None:
        after = place_of(cursor, int, int, str)
        rest = [row for row in rows if _place(row) > after]
    shown = rest[:limit]
    return answer(
        OfferPage(
            as_of=found.now,
            matching=len(rows),
            offers=[OfferResult.of(row) for row in shown],
            next_cursor=cursor_of(*_place(shown[-1])) if len(rest) > limit else None,
        )
    )


def _place(row: ListedOffer) -> tuple[int, int, str]:
    """Its place in the list: by price of a GPU (of a machine without one), unknown prices last."""
    price = row.per_gpu or row.offer.price
    return (0, price.micros, row.offer.id) if price is not None else (1, 0, row.offer.id)


def list_budgets(by: By) -> Response:
    """Budgets in their current periods: those that count nothing but teams that the caller may see."""
    teams = by.access.teams(Permission.SEE_BUDGETS)
    return answer(BudgetList(budgets=[BudgetResult.of(line) for line in visible(budgets(by.broker), teams)]))


def list_approvals(
    by: By, decided: Annotated[bool, Query(description="Also requests that were decided.")] = False
) -> Response:
    """Requests for approval of jobs that the caller may see, the oldest first; and standing grants that are good now,
    for these teams alone, for the caller, or by the caller; and purchases of capacity that wait for approval."""
    found = approvals.requests(by.broker, all_of_them=decided, teams=by.access.teams(Permission.SEE_JOBS))
    told = {
        one.view.id: approvers.told_of(by.broker, one.view)
        for one in found
        if one.state is approvals.ApprovalState.WAITING
    }
    requests = [ApprovalRequest.of(one, told.get(one.view.id, ()), by=by.actor) for one in found]
    now = by.broker.clock.now()
    grants = [StandingGrantResult.of(one, now) for one in approvals.standing_grants(by.broker) if _concerns(by, one)]
    buying = [
        PurchaseResult.of(one)
        for one in by.broker.store.purchases()
        if one.state is PurchaseState.ASKING and by.access.may(Permission.SEE_JOBS, one.team)
    ]
    return answer(ApprovalList(requests=requests, standing=grants, purchases=buying))


def _concerns(by: Caller, grant: StandingGrant) -> bool:
    name, teams = by.actor.identity, by.access.teams(Permission.SEE_JOBS)
    return teams is None or name == grant.by or name in grant.users or bool(grant.teams and set(grant.teams) <= teams)


def show_queue(by: By) -> Response:
    """The waiting jobs that the caller may see, in turn. Turns count these alone."""
    teams = by.access.teams(Permission.SEE_JOBS)
    return answer(QueueResult.of(queues.of_teams(by.broker, teams)))
