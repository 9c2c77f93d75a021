"""The facts for the rules, from one snapshot of the store, each read only if a rule needs it.

Also who occupies prepaid capacity, for the decision in `broker.placement.wait_for_reserved` whether to wait for it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Protocol

from broker.core.events.views import JobView
from broker.core.job.placements import Plan
from broker.core.market.offers import BOUGHT, Offer
from broker.core.policy.approvals import StandingGrant
from broker.core.policy.policy import (
    Action,
    ActionKind,
    Answer,
    BudgetUse,
    CapacityInHand,
    Facts,
    Grant,
    LiveAttempt,
    OpenAsk,
    RentedHours,
)
from broker.core.ports import BudgetSpec, PolicySet
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.budgets import Window, budget_uses, hold_by_period, periods_span, summable_until
from broker.ledger.journal import OpenHold
from broker.placement.wait_for_reserved import Occupant, WaitForReserved, find_reserved_wait
from broker.store.jobs.reader import StoreReader

FactsFor = Callable[[Action], Facts]


def facts_of(
    snapshot: StoreReader,
    policy: PolicySet,
    now: datetime,
    occupied: Sequence[LiveAttempt] | None = None,
    leaving: Collection[str] = (),
) -> FactsFor:
    """The facts for rules, from this snapshot of the store: running attempts, each budget in the periods of an action's
    money, approvals, and capacity in hand. Each is read at most once, however many placements, or windows in the same
    periods, are judged; budgets only if an amount is requested, pending approval requests only if a budget lacks room
    for it, capacity in hand only if a rule needs it. ``occupied``: the running attempts, if read already; ``leaving``:
    jobs whose attempts do not count."""
    grants_for = grants_of(snapshot, policy, now)
    live = [] if occupied is None else [tuple(occupied)]
    uses: dict[tuple[str, Window], tuple[BudgetUse, ...]] = {}
    in_hand: list[Mapping[str, CapacityInHand]] = []
    asks_known: set[tuple[str, Window]] = set()
    in_line: dict[tuple[str, str | None], Sequence[Burn]] = {}  # by budget and job
    rented = cache(lambda since: snapshot.rented_hours(since, now))
    spot_shares_of = cache(lambda work: policy.spot_shares(work, now, rented))
    last: list[tuple[Action, Facts]] = []  # asked again when the decision is recorded

    def facts_for(action: Action) -> Facts:
        if not last or last[0][0] is not action:
            last[:] = [(action, facts_of_action(action))]
        return last[0][1]

    def facts_of_action(action: Action) -> Facts:
        window = action.covers or (now, now)
        if not live:
            live.append(tuple(attempt for attempt in snapshot.live_attempts() if attempt.job_id not in leaving))
        budgets = policy.budgets(action.job, action.user) if action.hold is not None else ()
        reads = {budget.id: (budget.id, periods_span(budget, window)) for budget in budgets}
        for budget in budgets:
            if reads[budget.id] not in uses:
                held = snapshot.held(budget, summable_until(budget, now))
                spent, until = partial(snapshot.spent, budget), partial(snapshot.spent_until, budget)
                uses[reads[budget.id]] = budget_uses(budget, window, now, spent, held, until)
        if policy.needs_holdings and not in_hand:
            in_hand.append(snapshot.in_hand(now))
        budgets_of = {b.id: uses[reads[b.id]] for b in budgets}
        facts = Facts(
            now,
            live[0],
            budgets_of,
            grants_for(action),
            in_hand=in_hand[0] if in_hand else {},
            spot_shares=spot_shares_of(RentedHours.of(action)),
        )
        unread = [b for b in budgets if reads[b.id] not in asks_known]
        waits = waits_with_money(action)
        if not (unread or waits) or not lacks_room(policy, action, facts):
            return facts
        fuller = add_pending_requests(snapshot, unread, facts.budgets, now)
        asks_known.update(reads[b.id] for b in unread)
        uses.update((reads[b.id], fuller[b.id]) for b in unread)
        extended = {**facts.budgets, **fuller}
        if not waits:
            return replace(facts, budgets=extended)
        for budget in budgets:
            if (budget.id, action.job_id) not in in_line:
                in_line[budget.id, action.job_id] = holds_behind(snapshot, budget, action, now)
        return replace(facts, budgets=add_holds_behind(extended, {b.id: in_line[b.id, action.job_id] for b in budgets}))

    return facts_for


def occupied_in(snapshot: StoreReader, policy: PolicySet, offers: Iterable[Offer]) -> Sequence[LiveAttempt]:
    """The running attempts, for a plan over these offers. Read only if a rule or an offer depends on them."""
    is_needed = policy.counts_live or any(offer.slots is not None or offer.capacity_type in BOUGHT for offer in offers)
    return snapshot.live_attempts() if is_needed else ()


def grants_of(snapshot: StoreReader, policy: PolicySet, now: datetime) -> Callable[[Action], tuple[Grant, ...]]:
    """Returns the approvals that may apply to an action: its job's and standing ones. They are read once, and only if
    some rule requires approvals."""
    standing: list[Sequence[StandingGrant]] = []
    grants_by_job: dict[tuple[str | None, str | None], tuple[Grant, ...]] = {}

    def grants_for(action: Action) -> tuple[Grant, ...]:
        if not policy.asks:
            return ()
        id, array = action.job_id, action.job.task.array if action.job.task else None
        if (id, array) not in grants_by_job:
            if not standing:
                standing.append(list(snapshot.standing_grants(now)))
            view = snapshot.job(id) if id else None
            applicable = [
                grant.grant(snapshot.standing_share(grant.number, id, array) if id or array else Money.ZERO)
                for grant in standing[0]
                if grant.applies_to(action)
            ]
            grants_by_job[id, array] = (*(view.grants if view else ()), *applicable)
        return grants_by_job[id, array]

    return grants_for


def lacks_room(policy: PolicySet, action: Action, facts: Facts) -> bool:
    """Whether some budget objects to the action."""
    budgets = (rule for rule in policy.rules if rule.kind == "budget")
    return any(rule.judge(action, facts).answer is not Answer.ALLOW for rule in budgets)


def add_pending_requests(
    snapshot: StoreReader, budgets: Sequence[BudgetSpec], uses: Mapping[str, tuple[BudgetUse, ...]], now: datetime
) -> dict[str, tuple[BudgetUse, ...]]:
    """The states of these budgets, each with the pending requests that hold a part of it."""
    waiting = {view.id: view for view in snapshot.undecided()} if budgets else {}
    if not waiting:
        return dict(uses)
    extended = {}
    for budget in budgets:
        holds = [hold for hold in snapshot.open_holds(budget) if hold.job_id in waiting]
        extended[budget.id] = tuple(
            replace(use, asks=_pending_requests(use, holds, waiting, now)) for use in uses[budget.id]
        )
    return extended


def waits_with_money(action: Action) -> bool:
    """Whether this is the start of an admitted job whose hold suffices, or the check right before its launch.

    Jobs that wait past the end of a budget period take their holds into the next period. There, their sum may exceed
    the amount, as it may after an owner lowered the amount. So such a start is judged without the holds of the jobs
    that wait behind it, in the order of submission; each of those is judged at its own start. The date of a hold gives
    no such order: each start gives the hold a new date, so a job would be behind all others once its launch failed.
    """
    return action.kind is ActionKind.RE_PLACE and action.submitted_at is not None and bool(action.own)


def holds_behind(snapshot: StoreReader, budget: BudgetSpec, action: Action, now: datetime) -> list[Burn]:
    """The holds under the budget, from ``now`` on, of jobs that wait behind the judged one."""
    assert action.submitted_at is not None, "only starts of jobs on record are in line"
    until = summable_until(budget, now)
    return [burn.seen(now) for burn in snapshot.holds_behind(budget, action.job_id or "", action.submitted_at, until)]


def add_holds_behind(
    uses: Mapping[str, tuple[BudgetUse, ...]], behind: Mapping[str, Sequence[Burn]]
) -> dict[str, tuple[BudgetUse, ...]]:
    """The states of budgets, each with the holds under it of jobs that wait behind the judged one."""
    return {
        name: tuple(
            replace(use, behind=held)
            for use, held in zip(
                periods,
                hold_by_period([(use.period_start, use.period_end) for use in periods], behind[name]),
                strict=True,
            )
        )
        for name, periods in uses.items()
    }


def _pending_requests(
    use: BudgetUse, holds: Sequence[OpenHold], waiting: Mapping[str, JobView], now: datetime
) -> tuple[OpenAsk, ...]:
    requests: dict[str, OpenAsk] = {}
    for hold in holds:
        view = waiting[hold.job_id]
        request = view.asked
        assert request is not None, "only jobs with a pending request get here"
        # If the job runs while it waits for the answer, the rest of its hold was approved earlier.
        amount = min(hold.held, request.held.get(hold.money, Money.ZERO))
        held = hold.burn.seen(now).last(amount).share((use.period_start, use.period_end))
        if held <= Money.ZERO:
            continue
        if (earlier := requests.get(view.id)) is not None:
            held += earlier.held
        approvers = (
            tuple(name for name in request.approvers if request.questions_for(name, view.user)) or request.approvers
        )
        requests[view.id] = OpenAsk(view.id, view.user, approvers, request.expires_at, held, view.job.team)
    return tuple(requests[job_id] for job_id in waiting if job_id in requests)


class PaidMarket(Protocol):
    """``offers``: the present offers. ``coming``: bought machines, each with the beginning of its period (UTC)."""

    @property
    def offers(self) -> Iterable[Offer]: ...
    @property
    def coming(self) -> Sequence[tuple[Offer, datetime]]: ...


def wait_for_paid(
    snapshot: StoreReader,
    market: PaidMarket,
    live: Sequence[LiveAttempt],
    free: Plan,
    unoccupied: Callable[[Sequence[Offer]], Plan],
    *,
    now: datetime,
    since: datetime,
    longest: timedelta | None,
) -> WaitForReserved | None:
    """The prepaid capacity for which a job should wait, at most ``longest`` after ``since`` (UTC); None if it should
    start now.

    ``free``: the plan over free capacity. ``unoccupied`` makes the plan over all capacity and the offers passed to it;
    it is called only if prepaid machines are in use or coming and ``free`` would rent.
    """
    if not longest or not free.placements or any(p.offer.capacity_type in BOUGHT for p in free.placements):
        return None
    pools = {offer.capacity for offer in market.offers if offer.capacity_type in BOUGHT}
    busy = [attempt for attempt in live if (attempt.capacity or attempt.pool) in pools]
    if not (busy or market.coming):
        return None
    occupants = [
        Occupant(
            attempt.capacity or attempt.pool,
            attempt.share if attempt.capacity else attempt.nodes,
            _expected_finish(snapshot, attempt),
        )
        for attempt in busy
    ]
    # A purchase whose period has not begun counts as occupied until it begins.
    occupants += [Occupant(offer.capacity, offer.slots or 0, begins) for offer, begins in market.coming]
    plan_of_all = unoccupied([offer for offer, _ in market.coming])
    return find_reserved_wait(free, plan_of_all, occupants, now=now, since=since, longest=longest)


def _expected_finish(snapshot: StoreReader, live: LiveAttempt) -> datetime | None:
    """When that job is expected to finish there, by its plan (UTC); None if unknown."""
    latest = next((view.latest for view in snapshot.views([live.job_id])), None)
    return latest.placement.finish if latest is not None else None
