"""Requests for approval and standing grants as results."""

from collections.abc import Sequence
from datetime import datetime
from typing import Self

from broker.app.alerts.notify import NoticeResult
from broker.app.billing.budget_documents import BudgetEffect
from broker.app.capacity.purchase_documents import PurchaseResult
from broker.app.documents import Moment, Result, Seconds
from broker.app.jobs.approvals import ApprovalState, TrackedApproval
from broker.core.actors import Actor
from broker.core.market.offers import MoneyKind
from broker.core.policy.approvals import StandingGrant
from broker.core.policy.coverage import coverage_text
from broker.core.policy.facts import Fact
from broker.core.values.money import Money
from broker.store.outbox import Dispatch


class QuestionResult(Result):
    """The request of one rule. ``covers``: the facts that an approval covers, in addition to the amount, the time and
    the GPUs; null where they are not on record."""

    rule: str
    source: str
    because: str
    approvers: list[str]
    own_requests: bool
    covers: list[Fact]
    approved_by: str | None


class ApprovalRequest(Result):
    """A request for approval. Amounts in USD. ``whom``: who can still decide, in words; ``mine``: whether the person
    who asked for the list may decide it; ``reason``: the reason given with the decision."""

    job: str
    name: str
    user: str
    asked_by: str
    team: str | None
    project: str | None
    state: ApprovalState
    asked_at: Moment
    expires_at: Moment | None
    total: Money
    covers: str
    held: dict[MoneyKind, Money]
    extension: bool
    max_cost: Money | None
    max_duration: Seconds | None
    questions: list[QuestionResult]
    whom: str
    mine: bool
    decided_at: Moment | None
    decided_by: list[str]
    reason: str
    notices: list[NoticeResult]

    @property
    def decisions(self) -> str:
        """All decisions so far, and who can still decide: ``approved by ann; open: bob or carl``."""
        approvers = dict.fromkeys(question.approved_by for question in self.questions if question.approved_by)
        decisions = [f"approved by {', '.join(approvers)}"] if approvers else []
        if self.state is ApprovalState.REFUSED:
            decisions.append(f"refused by {', '.join(self.decided_by)}")
        elif self.state is not ApprovalState.APPROVED:
            decisions.append(f"open: {self.whom}" if decisions else self.whom)
        return "; ".join(decisions)

    @classmethod
    def of(cls, tracked: TrackedApproval, notices: Sequence[Dispatch], *, by: Actor) -> Self:
        """``notices``: the notices about the request. ``by``: who asked for the list."""
        request = tracked.asked
        return cls.from_parts(
            request,
            job=tracked.view.id,
            name=tracked.view.job.name,
            user=tracked.view.user,
            asked_by=request.by or tracked.view.user,
            team=tracked.view.job.team,
            project=tracked.view.job.project,
            state=tracked.state,
            asked_at=request.at,
            covers=coverage_text(request),
            questions=[
                QuestionResult.from_parts(
                    question,
                    covers=list(question.facts),
                    approved_by=next((approver for rule, approver in request.yes if rule == question.rule), None),
                )
                for question in request.questions
            ],
            whom=request.whom(tracked.view.user),
            mine=tracked.state is ApprovalState.WAITING and bool(request.questions_for(by.identity, tracked.view.user)),
            decided_at=tracked.decided_at,
            decided_by=tracked.decided_by,
            reason=tracked.note,
            notices=notices,
        )


class StandingGrantResult(Result):
    """An approval given in advance: for whom, for which rules, how much over all jobs (USD), and until when."""

    number: int
    by: str
    at: Moment
    until: Moment
    users: list[str]
    teams: list[str]
    projects: list[str]
    rules: list[str]
    total: Money
    used: Money
    active: bool
    reason: str
    revoked_at: Moment | None
    revoked_by: str

    @classmethod
    def of(cls, grant: StandingGrant, now: datetime) -> Self:
        return cls.from_parts(grant, active=grant.active(now), reason=grant.note)


class ApprovalList(Result):
    """Requests for approval, the oldest first; standing grants; purchases of capacity that wait for approval.
    ``budgets``: what each open request and purchase does to budgets, by job or purchase."""

    requests: list[ApprovalRequest]
    standing: list[StandingGrantResult]
    purchases: list[PurchaseResult]
    budgets: dict[str, list[BudgetEffect]]
