"""What needs a person now, and what runs: of the jobs, the money and the prices that the caller may see."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from broker.app.access.callers import Caller
from broker.app.billing.budget_documents import BudgetResult, BudgetStanding, MoneyByKind
from broker.app.capacity.purchase_documents import PurchaseResult
from broker.app.documents import Moment, Result
from broker.app.jobs import reasons
from broker.app.jobs.bills import costs_of
from broker.app.jobs.story import placement_text
from broker.app.outside.launches import PREFIX
from broker.app.use_cases.approvals import open_approvals
from broker.app.use_cases.market import price_status
from broker.app.use_cases.money import list_budgets
from broker.app.use_cases.outside import list_launches
from broker.app.use_cases.shared_results import share_result
from broker.app.wiring import Broker
from broker.core.access.people import Permission
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.market.offers import MoneyKind
from broker.core.values.figures import length, money, plural
from broker.core.values.money import Money

_MAX_JOBS = 1_000  # open jobs of the caller's teams that are looked at, the newest
_STATES = (JobState.PAUSED_BUDGET, JobState.LAUNCHING, JobState.RUNNING, JobState.INTERRUPTED, JobState.QUEUED)
_SLOW_AFTER, _SLOW_FACTOR = timedelta(minutes=15), 3  # a launch is slow after this time and three usual ones


class ConcernKind(StrEnum):
    """What a concern is about."""

    BUDGET_EXCEEDED = "budget_exceeded"
    BUDGET_EXPECTED_OVER = "budget_expected_over"
    APPROVAL = "approval"
    PURCHASE = "purchase"
    JOB_PAUSED = "job_paused"
    LAUNCH_SLOW = "launch_slow"
    DEADLINE_MISSED = "deadline_missed"
    DEADLINE_AT_RISK = "deadline_at_risk"
    LAUNCH_OVERDUE = "launch_overdue"
    PRICES_SUSPICIOUS = "prices_suspicious"
    PRICES_FAILING = "prices_failing"


class Concern(Result):
    """Something that a person should act on. ``subject``: the id of the budget, job, purchase, launch or provider;
    ``summary``: the fact, ``because``: its reason. ``amount`` in USD: of a budget, how far it is or will be over its
    limit; of a request, what it asks for; of a job or a launch, what it has cost and holds; null where no money is
    concerned."""

    kind: ConcernKind
    subject: str
    summary: str
    because: str
    user: str | None = None
    team: str | None = None
    amount: Money | None = None
    since: Moment | None = None


class RunningNow(Result):
    """The jobs and tasks that have machines, their GPUs, and what the machines cost in an hour (USD)."""

    jobs: int
    gpus: int
    rate_per_hour: MoneyByKind


class Overview(Result):
    """``concerns``: exceeded budgets first, then the most money first. ``budgets``: the most urgent first.
    ``running``: null for those who may not see jobs."""

    concerns: list[Concern]
    budgets: list[BudgetResult]
    running: RunningNow | None


def overview(by: Caller) -> Overview:
    """What needs the caller, or a colleague, and what runs. Of more than 1,000 open jobs, the newest are looked at."""
    concerns, budgets, running = list[Concern](), list[BudgetResult](), None
    if by.access.anywhere(Permission.SEE_BUDGETS):
        budgets = list_budgets(by).most_urgent_first
        concerns += _budget_concerns(budgets)
    if by.access.anywhere(Permission.SEE_JOBS):
        teams = by.access.teams(Permission.SEE_JOBS)
        views = share_result(by, ("open jobs", teams), lambda: _open_jobs(by.broker, teams or ()))
        running = _running_now(views)
        concerns += [*_request_concerns(by), *_job_concerns(by.broker, views), *_overdue_concerns(by)]
    if by.access.anywhere(Permission.SEE_MARKET):
        concerns += _price_concerns(by)
    return Overview(concerns=sorted(concerns, key=_urgency), budgets=budgets, running=running)


def _urgency(concern: Concern) -> tuple[bool, int]:
    return concern.kind is not ConcernKind.BUDGET_EXCEEDED, -(concern.amount or Money.ZERO).micros


def _budget_concerns(budgets: Iterable[BudgetResult]) -> Iterator[Concern]:
    for budget in budgets:
        excess, verb = -budget.left, "is"
        kind = ConcernKind.BUDGET_EXCEEDED
        if budget.standing is BudgetStanding.EXPECTED_OVER:
            kind, excess, verb = ConcernKind.BUDGET_EXPECTED_OVER, budget.forecast.expected - budget.limit, "will be"
        elif budget.standing is not BudgetStanding.EXCEEDED:
            continue
        yield Concern(
            kind=kind,
            subject=budget.id,
            summary=f"Budget {budget.id} {verb} " + (f"{money(excess)} over its limit" if excess else "used up"),
            because=f"{money(budget.spent)} spent and {money(budget.held)} held of {money(budget.limit)}, "
            f"{money(budget.forecast.expected)} expected in {budget.period_name}",
            amount=excess,
        )


def _request_concerns(by: Caller) -> Iterator[Concern]:
    listing = open_approvals(by, mine=True)
    for request in listing.requests:
        if by.access.may(Permission.APPROVE, request.team):
            yield Concern(
                kind=ConcernKind.APPROVAL,
                subject=request.job,
                summary=f"{request.name} asks you for {money(request.total)}",
                because="; ".join(question.because for question in request.questions),
                user=request.asked_by,
                team=request.team,
                amount=request.total,
                since=request.asked_at,
            )
    for purchase in listing.purchases:
        yield _purchase_concern(purchase)


def _purchase_concern(purchase: PurchaseResult) -> Concern:
    quote = purchase.quote
    machines = f"{quote.machines} × {quote.accelerator}:{quote.count} at {quote.provider} {quote.region}"
    return Concern(
        kind=ConcernKind.PURCHASE,
        subject=purchase.id,
        summary=f"A purchase of {money(purchase.ceiling_usd)} needs you",
        because=machines,
        user=purchase.user,
        team=purchase.team,
        amount=purchase.ceiling_usd,
    )


def _open_jobs(broker: Broker, teams: Collection[str]) -> Sequence[JobView]:
    with broker.store.reading() as reader:
        return reader.jobs(states=_STATES, teams=teams, limit=_MAX_JOBS, with_tasks=True)


def _running_now(views: Iterable[JobView]) -> RunningNow:
    placements = [view.latest.placement for view in views if view.state is JobState.RUNNING and view.latest]
    rates = dict.fromkeys(MoneyKind, Money.ZERO)
    for placement in placements:
        rates[placement.offer.money] += placement.rate
    gpus = sum(placement.nodes * placement.offer.count for placement in placements)
    return RunningNow(jobs=len(placements), gpus=gpus, rate_per_hour=MoneyByKind.of(rates))


def _job_concerns(broker: Broker, views: Sequence[JobView]) -> Iterator[Concern]:
    now, usual = broker.clock.now(), _usual_launch(views)
    troubles = [(view, trouble) for view in views if (trouble := _trouble(view, usual, now)) is not None]
    bills = costs_of(broker, [view for view, _ in troubles])
    for (view, (kind, what, because)), bill in zip(troubles, bills, strict=True):
        yield Concern(
            kind=kind,
            subject=view.id,
            summary=f"{view.job.name} {what}",
            because=because,
            user=view.user,
            team=view.job.team,
            amount=sum(bill.held.values(), bill.so_far),
        )


def _trouble(view: JobView, usual: timedelta | None, now: datetime) -> tuple[ConcernKind, str, str] | None:
    """The kind of a job's concern, the fact and its reason; None without trouble, and for tasks, of which there may be
    thousands: their array has its own page."""
    if view.job.task is not None or view.cancel_requested:
        return None
    if view.state is JobState.PAUSED_BUDGET:
        return ConcernKind.JOB_PAUSED, "is paused", reasons.wait_text(view.waiting)
    if view.state is JobState.LAUNCHING and view.latest is not None:
        time = now - view.latest.requested_at
        if time > max(_SLOW_AFTER, _SLOW_FACTOR * (usual or timedelta())):
            because = placement_text(view.latest.placement)
            because += f"; other launches took {length(usual)}" if usual else ""
            return ConcernKind.LAUNCH_SLOW, f"has been launching for {length(time)}", because
    if view.deadline is None or not (view.deadline_missed or view.deadline_at_risk):
        return None
    if view.deadline_missed:
        return ConcernKind.DEADLINE_MISSED, "has missed its deadline", f"{length(now - view.deadline)} late"
    return ConcernKind.DEADLINE_AT_RISK, "may miss its deadline", f"{length(view.deadline - now)} left"


def _usual_launch(views: Iterable[JobView]) -> timedelta | None:
    """The median time from request to machine of the newest attempts; None if none of them has a machine."""
    times = [
        view.latest.up_since - view.latest.requested_at
        for view in views
        if view.latest is not None and view.latest.up_since is not None
    ]
    return sorted(times)[len(times) // 2] if times else None


def _overdue_concerns(by: Caller) -> Iterator[Concern]:
    for launch in list_launches(by).overdue:
        yield Concern(
            kind=ConcernKind.LAUNCH_OVERDUE,
            subject=launch.id,
            summary=f"{launch.machines} should have ended",
            because=f"launched with {launch.tool}, and nobody reported the end: if the machines are gone, "
            f"`gpubroker launches --end {launch.id.removeprefix(PREFIX)}` on the server",
            user=launch.user,
            team=launch.team,
            amount=launch.spent_usd,
            since=launch.until,
        )


def _price_concerns(by: Caller) -> Iterator[Concern]:
    for provider in price_status(by).providers:
        if provider.offers_suspicious:
            yield Concern(
                kind=ConcernKind.PRICES_SUSPICIOUS,
                subject=provider.provider,
                summary=f"{plural(provider.offers_suspicious, 'price')} of {provider.provider} may be wrong",
                because="no job starts on them until the provider repeats them, or somebody accepts them",
                since=provider.finished,
            )
        elif provider.error and provider.last_success:
            yield Concern(
                kind=ConcernKind.PRICES_FAILING,
                subject=provider.provider,
                summary=f"Prices of {provider.provider} are not renewed",
                because=provider.error,
                since=provider.last_success,
            )
