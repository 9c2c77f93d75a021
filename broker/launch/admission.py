"""The gate: what a plan may cost, what the policies say to it, and which placement a job gets. Pure.

Everything that may cost money passes here twice: single placements while the plan is made (`denials`), and the whole
of it with its hold (`admit`, `re_place`), inside the transaction that writes the money down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from broker.core.jobs import Job
from broker.core.lifecycle import JobView
from broker.core.money import Money
from broker.core.offers import MoneyKind, Offer
from broker.core.placements import Placement, Plan
from broker.core.policy import Action, ActionKind, Answer, Facts, Verdict
from broker.core.ports import PolicySet
from broker.ledger.entries import Balance
from broker.ledger.holds import Exposure, exposures, hold_needed
from broker.placement.planner import Deny, fallbacks

# How long a machine may still be billed after it was told to stop: final checkpoint, upload, removal.
STOP_GRACE = timedelta(minutes=2)

_STRICTNESS = (Answer.ALLOW, Answer.ASK, Answer.DENY)


@dataclass(frozen=True, slots=True)
class Admission:
    """The gate's answer: the strictest verdict, the placement it is for, and the money to be set aside with it."""

    answer: Answer
    placement: Placement
    money: Mapping[MoneyKind, Money]
    window: tuple[datetime, datetime]
    verdicts: tuple[Verdict, ...]

    @property
    def objections(self) -> tuple[Verdict, ...]:
        """The verdicts that are not ALLOW."""
        return tuple(v for v in self.verdicts if v.answer is not Answer.ALLOW)


FactsFor = Callable[[Action], Facts]


def strictest(verdicts: Iterable[Verdict]) -> Answer:
    """The answer that several verdicts come to."""
    return max((v.answer for v in verdicts), key=_STRICTNESS.index, default=Answer.ALLOW)


def denials(policy: PolicySet, action: Action, facts: Facts) -> Deny:
    """The policies' word on single placements of ``action``, for the planner."""

    def deny(placement: Placement) -> str | None:
        for verdict in policy.judge(replace(action, placement=placement, hold=None), facts):
            if verdict.answer is Answer.DENY:
                return f"{verdict.message} ({verdict.source})"
        return None

    return deny


def with_occupancy(offers: Iterable[Offer], unclosed: Sequence[JobView]) -> list[Offer]:
    """The offers with the machines that our own live attempts occupy taken off their free slots."""
    used: Counter[str] = Counter()
    for view in unclosed:
        for attempt in view.attempts:
            if not attempt.over:
                used[attempt.placement.offer.pool] += attempt.placement.nodes
    return [
        replace(offer, slots=max(offer.slots - used[offer.pool], 0))
        if offer.slots is not None and used[offer.pool]
        else offer
        for offer in offers
    ]


def egress_of(placement: Placement) -> Money:
    """What the plan expects to pay for moving data and checkpoints."""
    return sum((t.amount for t in placement.terms if "egress" in t.name), Money.ZERO)


def admit(
    job: Job, user: str, plan: Plan, policy: PolicySet, facts_for: FactsFor, *, max_duration: timedelta, now: datetime
) -> Admission:
    """Judge a new submission: one hold that covers every fallback of the plan. ``plan`` has placements."""
    candidates = fallbacks(plan)
    egress: dict[MoneyKind, Money] = {}
    for placement in candidates:
        egress[placement.money] = max(egress.get(placement.money, Money.ZERO), egress_of(placement))
    exposed = exposures(candidates, egress=egress)
    money = _to_hold(exposed, max_duration, job.max_cost)
    window = (now, now + max_duration)
    action = Action(ActionKind.LAUNCH, job, user, placement=candidates[0], hold=money, window=window)
    verdicts = tuple(policy.judge(action, facts_for(action)))
    return Admission(strictest(verdicts), candidates[0], money, window, verdicts)


def re_place(
    view: JobView,
    plan: Plan,
    policy: PolicySet,
    facts_for: FactsFor,
    balance: Mapping[MoneyKind, Balance],
    *,
    billed: timedelta,
    now: datetime,
) -> Admission:
    """The best placement that the hold covers, or that the policies allow to top it up for.

    ``plan`` has placements. When every one is refused, the refusal of the best one is returned.
    """
    left = max(view.max_duration - billed, timedelta(seconds=1))
    spent = sum((b.spent for kind, b in balance.items() if kind is not MoneyKind.AMORTISED), Money.ZERO)
    budget = None if view.max_cost is None else max(view.max_cost - spent, Money.ZERO)
    window = (now, now + left)
    refused: Admission | None = None
    for placement in plan.placements:
        exposed = exposures([placement], egress={placement.money: egress_of(placement)})
        needed = _to_hold(exposed, left, budget)
        top_up = {
            kind: amount - held
            for kind, amount in needed.items()
            if amount > (held := balance[kind].held if kind in balance else Money.ZERO)
        }
        kind = ActionKind.EXTEND if top_up else ActionKind.RE_PLACE
        action = Action(
            kind,
            view.job,
            view.user,
            placement=placement,
            hold=top_up,
            window=window,
            elapsed=billed,
            spent=spent,
            job_id=view.id,
        )
        verdicts = tuple(policy.judge(action, facts_for(action)))
        found = Admission(strictest(verdicts), placement, top_up, window, verdicts)
        if found.answer is Answer.ALLOW:
            return found
        refused = refused or found
    if refused is None:
        raise ValueError("a plan without placements cannot be judged")
    return refused


def _to_hold(
    exposed: Mapping[MoneyKind, Exposure], max_duration: timedelta, max_cost: Money | None
) -> dict[MoneyKind, Money]:
    return hold_needed(exposed, max_duration=max_duration, max_cost=max_cost, stop_grace=STOP_GRACE)
