"""Alternatives to a refused request: less money, less time, or the same request in a later budget period.

Every candidate is judged by the gate that refused the request, with the current ledger; only what passes is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any, TypeVar, cast

from broker.core.errors import Alternative, ApprovalNeeded, InvalidInput, NotAllowed
from broker.core.job.jobs import Job
from broker.core.job.placements import Plan
from broker.core.job.reasons import Origin, Reason, Rejection
from broker.core.market.offers import MoneyKind, Offer
from broker.core.policy.policy import Action, Answer, Verdict
from broker.core.ports import PolicySet
from broker.core.values.figures import duration_in_hours
from broker.core.values.money import Money
from broker.core.values.units import print_duration
from broker.placement.notes import LIMIT_FACTOR
from broker.reconciler.admission.admission import Admission, admit, min_start_hold
from broker.reconciler.admission.facts import FactsFor
from broker.reconciler.admission.hold_limits import HoldLimit
from broker.store.jobs.reader import StoreReader

ReaderT = TypeVar("ReaderT", bound=StoreReader)

_CENT, _MINUTE = Money(10_000), timedelta(minutes=1)
_OVER_BUDGET = "over_budget"  # the code of a full budget
_MAX_PERIODS = 6  # later budget periods that are tried


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Limits over all attempts of a job: cost in USD, and billed time. None: not part of the request."""

    max_cost: Money | None = None
    max_duration: timedelta | None = None


Judge = Callable[[JobLimits], Admission]


def submission_alternatives(
    refusal: Admission,
    plan: Plan,
    policy: PolicySet,
    facts_for: FactsFor,
    *,
    max_duration: timedelta,
    now: datetime,
    plan_job: Callable[[Job], Plan],
) -> list[Alternative]:
    """An alternative to a refused submission: a lower ``max_cost`` or ``max_duration``, or a later period. ``plan`` and
    ``max_duration``: those of the refused job. ``plan_job``: makes a plan, because other limits may leave other
    placements."""
    job, user = refusal.action.job, refusal.action.user

    def with_limits(limits: JobLimits) -> Job:
        return job.model_copy(update={"max_cost": limits.max_cost or job.max_cost})

    def judge(limits: JobLimits, plan: Plan = plan) -> Admission:
        longest = limits.max_duration or max_duration
        return admit(with_limits(limits), user, plan, policy, facts_for, max_duration=longest, now=now)

    def still_passes(limits: JobLimits) -> bool:
        new_plan = plan_job(
            with_limits(limits).model_copy(update={"max_duration": limits.max_duration or job.max_duration})
        )
        return bool(new_plan.placements) and passes(judge(limits, new_plan))

    held = sum((amount for kind, amount in refusal.money.items() if kind is not MoneyKind.AMORTISED), Money.ZERO)
    by_cost = smaller_limits(JobLimits(max_cost=held), JobLimits(max_cost=min_start_hold(refusal.placement)), judge)
    by_time = smaller_limits(JobLimits(max_duration=max_duration), JobLimits(max_duration=_MINUTE), judge)
    passing = [(limits, admission) for limits, admission in (*by_cost, *by_time) if still_passes(limits)]
    return alternatives(JobLimits(), passing, earliest_start(refusal, policy, facts_for), _job_file_instruction)


def _job_file_instruction(limits: JobLimits) -> str:
    if limits.max_cost is not None:
        return f"`max_cost: {limits.max_cost}` in the job file"
    if limits.max_duration is not None:
        return f"`max_duration: {print_duration(limits.max_duration)}` in the job file"
    return "the job as it is"


def smaller_limits(requested: JobLimits, lowest: JobLimits, judge: Judge) -> Iterator[tuple[JobLimits, Admission]]:
    """For each requested limit: the largest lower one, in cents or minutes, that passes while the other limit stays as
    requested. ``lowest``: the lowest useful limits."""
    if requested.max_cost is not None and lowest.max_cost is not None:
        cost = requested.max_cost.up_to_cents().micros // _CENT.micros - 1
        yield from _largest(
            -(-lowest.max_cost.micros // _CENT.micros), cost, lambda n: replace(requested, max_cost=_CENT * n), judge
        )
    if requested.max_duration is not None and lowest.max_duration is not None:
        time = -(-requested.max_duration // _MINUTE) - 1
        yield from _largest(
            -(-lowest.max_duration // _MINUTE), time, lambda n: replace(requested, max_duration=_MINUTE * n), judge
        )


def _largest(
    low: int, high: int, limits: Callable[[int], JobLimits], judge: Judge
) -> Iterator[tuple[JobLimits, Admission]]:
    """The largest number that passes, found by bisection. If a larger number can pass where a smaller one fails, still
    a number that passes."""
    if low > high or not passes(best := judge(limits(low))):
        return
    while low < high:
        middle = (low + high + 1) // 2
        if passes(admission := judge(limits(middle))):
            low, best = middle, admission
        else:
            high = middle - 1
    yield limits(low), best


def passes(admission: Admission) -> bool:
    """Whether it is allowed, or would be after an approval."""
    return admission.answer is not Answer.DENY and admission.short_of is None


def earliest_start(refusal: Admission, policy: PolicySet, facts_for: FactsFor) -> tuple[datetime, bool] | None:
    """The earliest end of a full budget period (UTC) after which the same amounts for the same time would be allowed,
    and whether they would need an approval. None if no budget refuses the request, or no such period is found.

    Budgets are judged by what is held and spent now, every other rule by the later time.
    """
    action, verdicts = refusal.action, refusal.verdicts
    for _ in range(_MAX_PERIODS):
        full_budgets = [
            v for v in verdicts if v.answer is Answer.DENY and v.rule == "budget" and "period_end" in v.figures
        ]
        if not full_budgets:
            return None
        period_end = max(datetime.fromisoformat(v.figures["period_end"]) for v in full_budgets)
        action = _shift_start(refusal.action, period_end)
        facts = facts_for(action)
        verdicts = (
            *(v for v in policy.judge(action, facts) if v.rule == "budget"),
            *(v for v in policy.judge(action, replace(facts, now=period_end)) if v.rule != "budget"),
        )
        if all(v.answer is not Answer.DENY for v in verdicts):
            return period_end, any(v.answer is Answer.ASK for v in verdicts)
    return None


def _shift_start(action: Action, start: datetime) -> Action:
    """The action as if its money were held from ``start`` on."""
    delay = start - min((burn.start for burn in action.burns.values()), default=start)
    burns = {kind: replace(burn, start=burn.start + delay, end=burn.end + delay) for kind, burn in action.burns.items()}
    window = None if action.window is None else (action.window[0] + delay, action.window[1] + delay)
    return replace(action, burns=burns, window=window)


def alternatives(
    requested: JobLimits,
    passing_now: Iterable[tuple[JobLimits, Admission]],
    later_start: tuple[datetime, bool] | None,
    instruction: Callable[[JobLimits], str],
) -> list[Alternative]:
    """Requests that pass ``passing_now`` (`smaller_limits`) and ``later_start`` (`earliest_start`), each with the
    instruction for a person."""
    options = [
        Alternative(instruction(limits), limits.max_cost, limits.max_duration, None, admission.answer is Answer.ASK)
        for limits, admission in passing_now
    ]
    if later_start is not None:
        start, needs_approval = later_start
        options.append(
            Alternative(instruction(requested), requested.max_cost, requested.max_duration, start, needs_approval)
        )
    return options


def cached_reading(reader: ReaderT) -> ReaderT:
    """A cached view of the store for a search. Pending approval requests are left out: they change only the words of a
    verdict, which a search does not use."""
    return cast("ReaderT", _CachedReading(reader))


class _CachedReading:
    def __init__(self, look: StoreReader) -> None:
        self._look = look

    def undecided(self) -> tuple[()]:
        return ()

    def __getattr__(self, name: str) -> Any:
        answer = cache(getattr(self._look, name))
        setattr(self, name, answer)
        return answer


def alternatives_text(options: Sequence[Alternative], refusal: Admission) -> str:
    """The alternatives, one per line; without any, the people to ask. Empty if rules other than budgets refused."""
    denials = [v for v in refusal.verdicts if v.answer is Answer.DENY]
    release_advice = _release_advice(denials)
    if options:
        lines = [*map(_alternative_line, options), *release_advice]
        return "\n".join(["this would be allowed:" if len(lines) == 1 else "each would be allowed:", *lines])
    if any(v.rule != "budget" for v in denials):
        return ""  # such rules may allow the request at another time or place, which was not searched
    budget_names = ", ".join(dict.fromkeys(f"{v.source}{_shortfall_text(v)}" for v in denials))
    advice = f"neither a lower limit nor a later budget period would help; ask the owner of {budget_names}"
    return "\n".join([advice, *release_advice])


def _release_advice(denials: Sequence[Verdict]) -> list[str]:
    """The advice to wait, if budgets refuse only because of money that other jobs hold and may release."""
    if any(v.code != _OVER_BUDGET for v in denials):
        return []
    missing, names = [], []
    for denial in denials:
        share, remaining, held = (Money.usd(denial.figures[name]) for name in ("share", "left", "held"))
        if share > remaining + held:
            return []
        missing.append(share - remaining)
        names.append(denial.figures["budget"])
    return [
        f"  the same request, once other jobs have released {max(missing).up_to_cents()} of what they hold"
        f" (`gpubroker budget {names[0]}`)"
    ]


def _shortfall_text(denial: Verdict) -> str:
    """How much larger a full budget would have to be."""
    if denial.code != _OVER_BUDGET:
        return ""
    share, remaining = (Money.usd(denial.figures[name]) for name in ("share", "left"))
    return f" for {(share - remaining).up_to_cents()} more"


def _alternative_line(alternative: Alternative) -> str:
    start_text = (
        f" from {alternative.not_before:%Y-%m-%d %H:%M} UTC on, if nothing more is spent"
        if alternative.not_before
        else ""
    )
    return f"  {alternative.instruction}{start_text}{' (needs approval)' if alternative.needs_approval else ''}"


def max_cost_error(admission: Admission) -> InvalidInput:
    """The refusal of a job whose ``max_cost`` does not pay for a start."""
    placement = admission.placement
    held = admission.money.get(placement.money, Money.ZERO)
    minimum = admission.short_of.up_to_cents() if admission.short_of else held
    machine = f"{placement.nodes} × {placement.offer.instance_type} at {placement.offer.provider}"
    return InvalidInput(
        f"max_cost: {held} does not pay for a start on {machine}; expected at least {minimum}",
        hint="raise max_cost in the job file, or leave it out",
    )


def max_duration_error(job: Job, shortest: timedelta) -> InvalidInput:
    """The refusal of a job whose ``max_duration`` ends before its work can be done."""
    limit = job.max_duration or timedelta(0)
    hours = math.ceil(shortest / timedelta(hours=1) * LIMIT_FACTOR) + 1
    return InvalidInput(
        f"max_duration: the job is stopped after {duration_in_hours(limit)}, but its `work` takes at least "
        f"{duration_in_hours(shortest)}",
        hint=f"write `max_duration: {hours}h`, leave it out, or correct `work`",
    )


def denial_error(
    admission: Admission, suggestions: Sequence[Alternative] | None = None
) -> InvalidInput | NotAllowed | ApprovalNeeded:
    """The refusal as an error that names each rule with its figures and its place. ``suggestions``: the alternatives
    that would be allowed; None if they were not searched for."""
    if admission.short_of is not None:
        return max_cost_error(admission)
    objections = [f"{verdict.message} ({verdict.source})" for verdict in admission.objections]
    hint = ""
    if any(v.rule == "budget" for v in admission.objections):
        hint = f"{_less_money_hint(admission)}; a budget owner can change the budget"
    if admission.answer is Answer.ASK:
        return ApprovalNeeded("; ".join(objections), hint=hint)
    if suggestions is None:
        return NotAllowed("; ".join(objections), hint=hint)
    return NotAllowed("; ".join(objections), hint=alternatives_text(suggestions, admission), alternatives=suggestions)


_LESS_MONEY_HINTS = {
    HoldLimit.MAX_COST: "a lower max_cost needs less money",
    HoldLimit.MAX_DURATION: "a lower max_duration, or a max_cost, needs less money",
    HoldLimit.EXPECTED: "the hold follows from `work:`; reduce the work or set max_cost",
    HoldLimit.SESSION: "a max_cost needs less money",
}


def _less_money_hint(admission: Admission) -> str:
    """The figure of the job that determines the hold and would have to be lower."""
    deciding = dict.fromkeys(limit for kind, limit in admission.limited_by.items() if admission.money.get(kind))
    return (
        "; ".join(_LESS_MONEY_HINTS[limit] for limit in deciding) or "a lower max_cost or max_duration needs less money"
    )


def no_placement_error(plan: Plan, offers: Sequence[Offer]) -> NotAllowed:
    """The refusal when the policies allow no placement: the objection of each rule to the cheapest offer that it
    denies, which is the one that needs the smallest change."""
    prices = {entry.id: entry.price.micros for entry in offers if entry.price is not None}
    policy_rejections = [entry for entry in plan.rejections if entry.reason.origin is Origin.POLICY]
    text_by_rule: dict[tuple[str, ...], str] = {}
    for entry in sorted(policy_rejections, key=lambda entry: prices.get(entry.offer_id, math.inf)):
        objection = entry.objection
        rule = (entry.reason.value,) if objection is None else (objection.source, objection.name, objection.code)
        has_rule_text = entry.reason is Reason.DENIED_BY_POLICY and entry.detail
        text_by_rule.setdefault(rule, entry.detail if has_rule_text else _rejection_text(entry))
    texts = list(text_by_rule.values())[:3]
    remainder = f" (and {len(text_by_rule) - 3} more)" if len(text_by_rule) > 3 else ""
    hint = "a budget owner can change this: `gpubroker policy show`"
    if Reason.REFERENCE_PRICE in plan.reasons():
        hint = "poll live prices (`gpubroker doctor` says how), or allow reference prices in a policy"
    return NotAllowed("; ".join(texts) + remainder, hint=hint)


def _rejection_text(rejection: Rejection) -> str:
    return f"{rejection.reason.text} ({rejection.detail})" if rejection.detail else rejection.reason.text
