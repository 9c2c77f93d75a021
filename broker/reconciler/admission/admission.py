"""The gate: the hold for a plan, the policies' verdict on it, and the placement that a job gets. Pure.

Every expense passes here twice: single placements while a plan is made (`denials`), and the chosen placement with its
hold (`admit`, `re_place`), inside the transaction that records the money.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from broker.core.events.outcomes import AttemptState
from broker.core.events.views import AttemptView, JobView
from broker.core.job.arrays import JobArray
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement, Plan
from broker.core.job.reasons import RuleObjection
from broker.core.market.offers import MoneyKind, Offer
from broker.core.market.shares import MachineShare
from broker.core.policy import arrays
from broker.core.policy.policy import Action, ActionKind, Answer, Facts, LiveAttempt, Source, Verdict
from broker.core.ports import PolicySet
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import Balance, cash_sums
from broker.ledger.holds import (
    STOP_GRACE,
    Exposure,
    burn_of,
    exposures,
    hold_needed,
    ledger_rate,
    longest_billed,
    paid_until,
)
from broker.placement.planner import Deny, fallbacks
from broker.placement.pricing.run_model import quantile_duration
from broker.reconciler.admission.facts import FactsFor
from broker.reconciler.admission.hold_limits import HoldLimit
from broker.reconciler.settlement.funds import other_open, overlap_cost

HOLD_QUANTILE = 95.0
"""The percentage of a job's possible runs that its hold covers, if the policies do not set another one."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The gate's answer: the strictest verdict, the placement judged, and the money to be held.

    ``action``: the judged action. ``short_of``: the minimum hold for a start there (USD), if the present and requested
    holds are less; then nothing may be launched, whatever the policies say. ``limited_by``: for submissions only, the
    limit of the job that determined ``money``, by kind of money. ``quantile``: the percentage of runs that ``money``
    covers, if it was computed from the job's work.
    """

    answer: Answer
    action: Action
    placement: Placement
    money: Mapping[MoneyKind, Money]
    verdicts: tuple[Verdict, ...]
    short_of: Money | None = None
    limited_by: Mapping[MoneyKind, HoldLimit] = field(default_factory=dict)
    quantile: float = 100.0

    @property
    def burns(self) -> Mapping[MoneyKind, Burn]:
        """The job's whole hold once ``money`` is held, with the time for which it was judged."""
        return self.action.burns

    @property
    def may_launch(self) -> bool:
        """Whether the policies allow it and the money pays for a start."""
        return self.answer is Answer.ALLOW and self.short_of is None

    @property
    def objections(self) -> tuple[Verdict, ...]:
        """The verdicts that are not ALLOW."""
        return tuple(v for v in self.verdicts if v.answer is not Answer.ALLOW)


def strictest(verdicts: Iterable[Verdict]) -> Answer:
    """The strictest answer of several verdicts; allow without any."""
    return max((v.answer for v in verdicts), key=arrays.STRICTNESS.index, default=Answer.ALLOW)


_OF_SETUP = ("reference_price", "no_budget")  # codes of verdicts on what an estimate does without


def denials(policy: PolicySet, action: Action, facts: Facts, *, for_estimate: bool = False) -> Deny:
    """The policies' verdict on single placements of ``action``, for the planner; one ``for_estimate`` needs neither a
    live price nor a budget."""

    def deny(placement: Placement) -> RuleObjection | None:
        for verdict in policy.judge(replace(action, placement=placement, hold=None), facts):
            if verdict.answer is Answer.DENY and not (for_estimate and verdict.code in _OF_SETUP):
                return verdict.objection
        return None

    return deny


def reference_price_denial(policy: PolicySet, action: Action) -> Verdict | None:
    """The denial of a start at a reference price, if the policies' default forbids it; plans omit such placements
    before any rule judges them. None if it does not apply."""
    offer = action.placement.offer if action.placement else None
    starts = action.kind in (ActionKind.LAUNCH, ActionKind.RE_PLACE)
    if offer is None or not offer.reference or not starts or policy.defaults.allow_reference_prices:
        return None
    return Verdict(
        Answer.DENY,
        "allow_reference_prices",
        "reference_price",
        f"{offer.pool} has only a reference price of {offer.as_of:%Y-%m-%d}, and no policy allows starts at one",
        Source("defaults", 0),
        name="allow_reference_prices",
        figures={"source": offer.source, "as_of": f"{offer.as_of:%Y-%m-%d}"},
    )


def subtract_occupied(offers: Iterable[Offer], live: Iterable[LiveAttempt]) -> list[Offer]:
    """The offers without the capacity that running attempts occupy: machines are subtracted from free slots, parts from
    the free part of a shared machine."""
    machines_used: Counter[str] = Counter()
    shared: defaultdict[str, MachineShare] = defaultdict(MachineShare)
    for attempt in live:
        if attempt.capacity:
            shared[attempt.capacity] += attempt.share
        else:
            machines_used[attempt.pool] += attempt.nodes

    def left(offer: Offer) -> Offer:
        if offer.slots is not None and machines_used[offer.pool]:
            return replace(offer, slots=max(offer.slots - machines_used[offer.pool], 0))
        return replace(offer, left=(offer.left or offer.has) - shared[offer.capacity]) if offer.divided else offer

    return [left(offer) for offer in offers]


def as_if_unoccupied(offers: Iterable[Offer]) -> list[Offer]:
    """The offers as if no job used a part of a shared machine."""
    return [replace(offer, left=None) if offer.left is not None else offer for offer in offers]


def is_still_free(placement: Placement, offers: Iterable[Offer], live: Iterable[LiveAttempt]) -> bool:
    """Whether the machines of a limited pool are still free since the plan was made. ``offers``: as reported, without
    `subtract_occupied`."""
    if placement.offer.slots is None:
        return True
    same_offers = [offer for offer in offers if offer.id == placement.offer.id]
    return all(
        (offer.slots or 0) >= placement.nodes and (offer.left is None or offer.left >= placement.offer.has)
        for offer in subtract_occupied(same_offers, live)
    )


def admit(
    job: Job, user: str, plan: Plan, policy: PolicySet, facts_for: FactsFor, *, max_duration: timedelta, now: datetime
) -> Admission:
    """Judge a new submission, with one hold that covers every fallback of the plan. ``plan`` has placements.

    Chooses the best placement whose start the hold pays for and that needs no approval. If all of these need one,
    chooses the best of them.
    """
    candidates = fallbacks(plan)
    egress: dict[MoneyKind, Money] = {}
    for placement in candidates:
        egress[placement.money] = max(egress.get(placement.money, Money.ZERO), placement.egress)
    exposed = exposures(candidates, egress=egress)
    quantile = hold_quantile(job, policy)
    held_for = held_time(job, candidates, quantile, max_duration)
    money = _needed_hold(exposed, held_for, job.max_cost)
    unlimited = _needed_hold(exposed, held_for, None)
    shorter = HoldLimit.SESSION if job.session is not None else HoldLimit.EXPECTED
    time_limit = shorter if held_for < max_duration else HoldLimit.MAX_DURATION
    limited_by = {
        kind: HoldLimit.MAX_COST if amount < unlimited[kind] else time_limit for kind, amount in money.items()
    }
    window = (now, now + max_duration)
    shortfalls = [_missing_hold(placement, money.get(placement.money, Money.ZERO), now) for placement in candidates]

    def judged(number: int) -> Admission:
        placement = candidates[number]
        # Dated at this placement's rate. A later move to a more expensive one is judged again.
        exposure = {**exposed, **exposures([placement], egress={placement.money: placement.egress})}
        burns = {kind: _burn(amount, exposure[kind], max_duration, now) for kind, amount in money.items()}
        action = Action(ActionKind.LAUNCH, job, user, placement=placement, hold=money, window=window, burns=burns)
        verdicts = tuple(policy.judge(action, facts_for(action)))
        return Admission(
            strictest(verdicts), action, placement, money, verdicts, shortfalls[number], limited_by, quantile
        )

    payable = [number for number, shortfall in enumerate(shortfalls) if shortfall is None] or [0]
    best = judged(payable[0])
    if best.answer is Answer.ASK:  # prefer a placement that needs no approval
        best = next((other for other in map(judged, payable[1:]) if other.answer is Answer.ALLOW), best)
    return best if job.array is None else judge_array(best, job.array, job.max_cost, policy, facts_for)


def judge_array(
    admission: Admission,
    array: JobArray,
    max_cost: Money | None,
    policy: PolicySet,
    facts_for: FactsFor,
    array_id: str | None = None,
) -> Admission:
    """The judgment of one task of the array, by rules about a job as if all tasks were one job: the money of all, at
    most the array's ``max_cost``, and the machines of those that run at once. Other rules judge task by task."""
    action_of_all = arrays.action_of_all(
        replace(admission.action, placement=admission.placement, hold=admission.money), array, max_cost, array_id
    )
    of_all = tuple(policy.judge(action_of_all, facts_for(action_of_all)))
    verdicts = arrays.verdicts_with_all(admission.verdicts, of_all, policy.when)
    if verdicts == admission.verdicts:
        return admission
    return replace(admission, answer=strictest(verdicts), action=action_of_all, verdicts=verdicts)


def hold_quantile(job: Job, policy: PolicySet) -> float:
    """The percentage of runs that the hold of a job covers.

    100 (the whole time limit) for a job without known work, and for a job that sets a limit itself, unless the policies
    set a percentage.
    """
    if job.work is None or job.session is not None:
        return 100.0
    usual = HOLD_QUANTILE if job.max_duration is None else 100.0
    return usual if policy.defaults.hold_quantile is None else policy.defaults.hold_quantile


def held_time(job: Job, placements: Iterable[Placement], quantile: float, longest: timedelta) -> timedelta:
    """The time for which a job that may run for ``longest`` holds money at once.

    One hour for a session. With known work: the running time that ``quantile`` percent of its runs do not exceed on the
    slowest of these placements. More money is held while the job runs (`broker.reconciler.controllers.top_up`).
    """
    limit = job.held_for(longest)
    if quantile >= 100 or job.session is not None:
        return limit
    times = [quantile_duration(job, placement, quantile / 100) for placement in placements]
    known_times = [time for time in times if time is not None]
    return min(max(known_times), limit) if known_times and len(known_times) == len(times) else limit


def whole_hold(plan: Plan, max_duration: timedelta) -> Money:
    """The maximum hold and spend of a job without ``max_cost`` within ``max_duration`` (USD)."""
    candidates = fallbacks(plan)
    egress = {kind: max(p.egress for p in candidates if p.money is kind) for kind in {p.money for p in candidates}}
    held = _needed_hold(exposures(candidates, egress=egress), max_duration, None)
    return sum((amount for kind, amount in held.items() if kind is not MoneyKind.AMORTISED), Money.ZERO)


def action_for(
    kind: ActionKind,
    view: JobView,
    placement: Placement | None,
    billed: timedelta,
    money: Mapping[MoneyKind, Balance] = MappingProxyType({}),
    **details: Any,
) -> Action:
    """An action on a job that exists, whose money is known; ``details``: other fields of `Action`."""
    spent, held = cash_sums(money)
    return Action(
        kind,
        view.job,
        view.user,
        placement=placement,
        elapsed=billed,
        spent=spent,
        held=held,
        job_id=view.id,
        submitted_at=view.submitted_at,
        attempts=view.attempt_count,
        **details,
    )


def re_place(
    view: JobView,
    plan: Plan,
    policy: PolicySet,
    facts_for: FactsFor,
    balance: Mapping[MoneyKind, Balance],
    *,
    billed: timedelta,
    now: datetime,
    by_owner: bool = False,
) -> Admission:
    """The best placement that the policies allow and whose start the hold, topped up if necessary, pays for.

    The job's whole hold is dated from now and judged, even if it suffices: time has passed, perhaps a month end.
    ``plan`` has placements; ``balance`` is the money that the job may use. ``by_owner``: its owner requests higher
    limits; this is judged as an extension, whatever the hold covers. If all are refused, returns the best one that an
    approval could allow, else the refusal of the best one. Raises ValueError for a plan without placements.

    While two attempts of the job are open, the hold also covers what the other one may cost until one of them is over.
    """
    left = max(view.max_duration - billed, timedelta(seconds=1))
    budget = None if view.max_cost is None else max(view.max_cost - cash_sums(balance)[0], Money.ZERO)
    window = (now, now + left)
    refused: Admission | None = None
    standby = view.standby if view.standby is not None and view.standby.state is AttemptState.REQUESTED else None
    own_attempt = standby or view.latest
    other = other_open(view, own_attempt) if own_attempt is not None else None
    least = standby.standby_until if standby is not None else None
    beside = other.placement if standby is not None and other is not None else None
    for placement in plan.placements:
        shares = other is not None and other.placement.money is placement.money
        reserve = overlap_cost(view, other, now) if other is not None and shares else Money.ZERO
        exposed = exposures([placement], egress={placement.money: placement.egress + reserve})
        time = held_time(view.job, [placement], hold_quantile(view.job, policy), left)
        needed = _needed_hold(exposed, time, budget)
        top_up = {
            money: amount - held
            for money, amount in needed.items()
            if amount > (held := balance[money].held if money in balance else Money.ZERO)
        }
        kind = placement.money
        own = {kind: burn} if kind in balance and (burn := balance[kind].burn) is not None else {}
        whole = top_up.get(kind, Money.ZERO) + (balance[kind].held if kind in balance else Money.ZERO)
        both = exposures([placement], egress={kind: placement.egress})[kind]
        if other is not None and shares:
            both = replace(both, rate=both.rate + ledger_rate(other.placement.offer) * other.placement.nodes)
        burns = {kind: _burn(whole, both, left, now)} if whole > Money.ZERO else {}
        step = ActionKind.EXTEND if top_up or by_owner else ActionKind.RE_PLACE
        details = {"hold": top_up, "window": window, "by_owner": by_owner, "burns": burns, "own": own, "beside": beside}
        action = action_for(step, view, placement, billed, balance, **details)
        verdicts = tuple(policy.judge(action, facts_for(action)))
        held = balance[placement.money].held if placement.money in balance else Money.ZERO
        short_of = _missing_hold(placement, held + top_up.get(placement.money, Money.ZERO) - reserve, now, least)
        admission = Admission(strictest(verdicts), action, placement, top_up, verdicts, short_of)
        if admission.may_launch:
            return admission
        if refused is None or (refused.answer is Answer.DENY and admission.answer is Answer.ASK):
            refused = admission
    if refused is None:
        raise ValueError("a plan without placements cannot be judged")
    return refused


@dataclass(frozen=True, slots=True)
class MoreMoney:
    """Money for an attempt that runs: ``amount`` (USD) is held in addition, ``burn`` is its whole hold afterwards.
    ``rate``: the current cost of all its machines (USD per hour)."""

    amount: Money
    burn: Burn
    rate: Money


def judge_continuation(
    view: JobView,
    attempt: AttemptView,
    extra: MoreMoney,
    policy: PolicySet,
    facts_for: FactsFor,
    balance: Mapping[MoneyKind, Balance],
    *,
    billed: timedelta,
    now: datetime,
) -> Admission:
    """Judge money and time for an attempt that continues where it runs. Rules see the price of now, not that of the
    start. ``balance``: the money that the job may use."""
    nodes, burn = attempt.placement.nodes, extra.burn
    offer = replace(attempt.placement.offer, price=extra.rate.share(1, nodes), as_of=now)
    placement = replace(attempt.placement, offer=offer, rate=extra.rate)
    kind = placement.money
    money = {kind: extra.amount} if extra.amount > Money.ZERO else {}
    own = balance[kind].burn if kind in balance else None
    action = action_for(
        ActionKind.EXTEND,
        view,
        placement,
        billed,
        balance,
        hold=money,
        window=(now, max(now, min(burn.end, now + view.max_duration - billed))),
        in_place=True,
        burns={kind: burn},
        own={} if own is None else {kind: own},
    )
    verdicts = tuple(policy.judge(action, facts_for(action)))
    return Admission(strictest(verdicts), action, placement, money, verdicts)


def hold_duration(money: Mapping[MoneyKind, Money], plan: Plan, max_duration: timedelta, now: datetime) -> timedelta:
    """How long a hold for the plan lasts at the most expensive of its placements; at most ``max_duration``."""
    candidates = fallbacks(plan)
    ends = [now + max_duration]
    for kind, exposure in exposures(candidates).items():
        egress = max(placement.egress for placement in candidates if placement.money is kind)
        until = paid_until(now, money.get(kind, Money.ZERO) - egress, exposure.rate, stop_grace=STOP_GRACE)
        if until is not None and kind is not MoneyKind.AMORTISED:
            ends.append(until)
    return min(ends) - now


def min_start_hold(placement: Placement) -> Money:
    """The minimum hold (USD) for a start there: the provider's minimum in whole steps, longer than the stop grace, and
    the expected cost of moving data and checkpoints."""
    billing, step = placement.offer.billing, placement.offer.billing.granularity
    minimum = max(billing.minimum, (STOP_GRACE // step + 1) * step)
    whole_steps = -(-minimum // step) * step
    rate = ledger_rate(placement.offer) * placement.nodes
    return rate.for_duration(whole_steps) + placement.egress + Money(1)  # guards against rounding


def _missing_hold(placement: Placement, left: Money, now: datetime, least: datetime | None = None) -> Money | None:
    """The minimum hold for a start there, if ``left`` (USD) does not pay for a start: the machine would have to stop
    before the job's command runs, or before ``least`` (UTC). None if it does; prepaid capacity needs no money.
    """
    if placement.money is MoneyKind.AMORTISED:
        return None
    rate = ledger_rate(placement.offer) * placement.nodes
    time_money = max(left - placement.egress, Money.ZERO)
    until = paid_until(now, time_money, rate, billing=placement.offer.billing, stop_grace=STOP_GRACE)
    is_short = until is not None and (until <= now or (least is not None and until < least))
    return min_start_hold(placement) if is_short else None


def _needed_hold(
    exposed: Mapping[MoneyKind, Exposure], max_duration: timedelta, max_cost: Money | None
) -> dict[MoneyKind, Money]:
    return hold_needed(exposed, max_duration=max_duration, max_cost=max_cost, stop_grace=STOP_GRACE)


def _burn(amount: Money, exposure: Exposure, max_duration: timedelta, now: datetime) -> Burn:
    return burn_of(amount, exposure.rate, exposure.egress, now, longest_billed(exposure, max_duration, STOP_GRACE))
