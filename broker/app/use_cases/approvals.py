"""Approvals, extensions, which may need one, and the queue of waiting jobs."""

from collections.abc import Collection, Mapping
from typing import Annotated

from pydantic import Field

from broker.app.access.callers import Caller
from broker.app.alerts import approvers
from broker.app.billing.budgets import request_effects
from broker.app.capacity.purchase_documents import PurchaseResult
from broker.app.jobs import approvals, details, extension
from broker.app.jobs import queue as queues
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.approval_documents import ApprovalList, ApprovalRequest, StandingGrantResult
from broker.app.jobs.documents import JobDetails
from broker.app.jobs.queue_documents import QueueResult
from broker.app.use_cases.changes import Reason
from broker.app.use_cases.visible import changeable
from broker.core.access.people import Permission
from broker.core.errors import InvalidInput
from broker.core.market.offers import MoneyKind
from broker.core.policy.approvals import StandingGrant
from broker.core.purchases.purchases import PurchaseState
from broker.core.values.money import Money
from broker.core.values.units import parse_duration, parse_money

Amount = Annotated[str | None, Field(max_length=40)]


def extend_job(by: Caller, id: str, max_cost: Amount = None, max_duration: Amount = None) -> JobDetails:
    """Raise a job's limit of cost (``$900``) or machine time (``72h``). Status 202: it needs an approval; until then
    the old limits apply."""
    view = extension.extend(by.broker, changeable(by, id), _limits(max_cost, max_duration), by=by.actor)
    approvers.notify_approvers(by.broker, view)
    return details.details(by.broker, view)


def _limits(cost: str | None, duration: str | None) -> JobLimits:
    field = "max_cost"
    try:
        max_cost = None if cost is None else parse_money(cost)
        field = "max_duration"
        return JobLimits(max_cost, None if duration is None else parse_duration(duration))
    except (ValueError, OverflowError) as error:
        raise InvalidInput(str(error), where=field) from error


def grant_approval(by: Caller, id: str, reason: Reason = "") -> JobDetails:
    """Approve the job's request, as far as the caller is an approver; nobody approves their own request."""
    view = by.job(id, Permission.APPROVE)
    return details.details(by.broker, approvals.grant(by.broker, view.id, reason, by=by.actor))


def refuse_approval(by: Caller, id: str, reason: Reason = "") -> JobDetails:
    """Refuse the job's request; the money held for it is released."""
    view = by.job(id, Permission.APPROVE)
    return details.details(by.broker, approvals.refuse(by.broker, view.id, reason, by=by.actor))


def revoke_grant(by: Caller, number: int) -> StandingGrantResult:
    """Revoke a standing grant of one's own; jobs launched under it go on."""
    return StandingGrantResult.of(approvals.revoke(by.broker, number, by=by.actor), by.broker.clock.now())


def list_approvals(
    by: Caller,
    decided: Annotated[bool, Field(description="Also decided requests and ended standing grants.")] = False,
    mine: Annotated[bool, Field(description="Only requests and purchases that the caller may decide.")] = False,
) -> ApprovalList:
    """Approval requests of jobs that the caller may see, oldest first; standing grants for these teams only, for
    the caller, or by the caller; and purchases of capacity that wait for approval; with what each does to the budgets
    that the caller may see."""
    listing = open_approvals(by, decided=decided, mine=mine)
    waiting: dict[str, Mapping[MoneyKind, Money] | None] = {
        request.job: request.held if request.extension else None
        for request in listing.requests
        if request.state is approvals.ApprovalState.WAITING
    }
    waiting |= dict.fromkeys(purchase.id for purchase in listing.purchases)
    effects = request_effects(by.broker, waiting, by.access.teams(Permission.SEE_BUDGETS))
    return listing.model_copy(update={"budgets": effects})


def open_approvals(by: Caller, *, decided: bool = False, mine: bool = False) -> ApprovalList:
    """As `list_approvals`, without the budgets."""
    teams = by.access.teams(Permission.SEE_JOBS)
    tracked_requests = approvals.requests(by.broker, include_decided=decided, teams=teams)
    waiting_views = [entry.view for entry in tracked_requests if entry.state is approvals.ApprovalState.WAITING]
    notices, now = approvers.notices_by_job(by.broker, waiting_views), by.broker.clock.now()
    requests = [ApprovalRequest.of(entry, notices.get(entry.view.id, ()), by=by.actor) for entry in tracked_requests]
    return ApprovalList(
        requests=[entry for entry in requests if entry.mine or not mine],
        standing=[
            StandingGrantResult.of(entry, now)
            for entry in approvals.standing_grants(by.broker, include_ended=decided)
            if teams is None or _concerns(entry, by.actor.identity, teams)
        ],
        purchases=[
            PurchaseResult.of(entry)
            for entry in by.broker.store.purchases()
            if entry.state is PurchaseState.ASKING
            and (teams is None or entry.team in teams)
            and (entry.may_approve(by.actor.identity) or not mine)
        ],
        budgets={},
    )


def _concerns(grant: StandingGrant, name: str, teams: Collection[str]) -> bool:
    return name == grant.by or name in grant.users or bool(grant.teams and set(grant.teams) <= set(teams))


def show_queue(by: Caller) -> QueueResult:
    """The waiting jobs that the caller may see, in queue order. Their positions count only these jobs."""
    return QueueResult.of(queues.team_queue(by.broker, by.access.teams(Permission.SEE_JOBS)))
