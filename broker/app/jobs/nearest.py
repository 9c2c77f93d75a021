"""Alternatives to a refused request: less money, less time, or the same request in a later budget period.

Every candidate is judged by the gate that refused the request, with the current ledger; only what passes is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from broker.core.errors import Alternative, ApprovalNeeded, InvalidInput, NotAllowed
from broker.core.job.jobs import Job
from broker.core.job.placements import Plan
from broker.core.job.reasons import Origin, Reason, Rejection
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import Action, Answer, Verdict
from broker.core.ports import PolicySet
from broker.core.values.figures import span
from broker.core.values.money import Money
from broker.core.values.units import print_duration
from broker.ledger.journal import Reading
from broker.placement.notes import ROOM
from broker.reconciler.admission.admission import Admission, admit, least_to_start
from broker.reconciler.admission.facts import FactsFor
from broker.reconciler.admission.hold_limits import HoldLimit

if TYPE_CHECKING:
    from broker.app.jobs.preview import Preview

Look = TypeVar("Look", bound=Reading)

_CENT, _MINUTE = Money(10_000), timedelta(minutes=1)
_OVER = "over_budget"  # the code of a full budget
_MOST_PERIODS = 6  # later budget periods that are tried


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Limits over all attempts of a job: cost in USD, and billed time. None: not part of the request."""

    max_cost: Money | None = None
    max_duration: timedelta | None = None


Judge = Callable[[JobLimits], Admission]


def for_submission(
    refused: Admission,
    plan: Plan,
    policy: PolicySet,
    facts_for: FactsFor,
    *,
    max_duration: timedelta,
    now: datetime,
    planned: Callable[[Job], Plan],
) -> list[Alternative]:
    """An alternative to a refused submission: a lower ``max_cost`` or ``max_duration``, or a later period. ``plan`` and
    ``max_duration``: those of the refused job. ``planned``: makes a plan, because other limits may leave other
    placements."""
    job, user = refused.action.job, refused.action.user

    def changed(limits: JobLimits) -> Job:
        return job.model_copy(update={"max_cost": limits.max_cost or job.max_cost})

    def judge(limits: JobLimits, plan: Plan = plan) -> Admission:
        longest = limits.max_duration or max_duration
        return admit(changed(limits), user, plan, policy, facts_for, max_duration=longest, now=now)

    def again(limits: JobLimits) -> bool:
        anew = planned(changed(limits).model_copy(update={"max_duration": limits.max_duration or job.max_duration}))
        return bool(anew.placements) and passes(judge(limits, anew))

    held = sum((amount for kind, amount in refused.money.items() if kind is not MoneyKind.AMORTISED), Money.ZERO)
    by_cost = smaller(JobLimits(max_cost=held), JobLimits(max_cost=least_to_start(refused.placement)), judge)
    by_time = smaller(JobLimits(max_duration=max_duration), JobLimits(max_duration=_MINUTE), judge)
    found = [(limits, admission) for limits, admission in (*by_cost, *by_time) if again(limits)]
    return alternatives(JobLimits(), found, starts_later(refused, policy, facts_for), _in_job_file)


def _in_job_file(limits: JobLimits) -> str:
    if limits.max_cost is not None:
        return f"`max_cost: {limits.max_cost}` in the job file"
    if limits.max_duration is not None:
        return f"`max_duration: {print_duration(limits.max_duration)}` in the job file"
    return "the job as it is"


def smaller(asked: JobLimits, least: JobLimits, judge: Judge) -> Iterator[tuple[JobLimits, Admission]]:
    """For each requested limit: the largest lower one, in cents or minutes, that passes while the other limit stays as
    requested. ``least``: the lowest useful limits."""
    if asked.max_cost is not None and least.max_cost is not None:
        cost = asked.max_cost.up_to_cents().micros // _CENT.micros - 1
        yield from _largest(
            -(-least.max_cost.micros // _CENT.micros), cost, lambda n: replace(asked, max_cost=_CENT * n), judge
        )
    if asked.max_duration is not None and least.max_duration is not None:
        time = -(-asked.max_duration // _MINUTE) - 1
        yield from _largest(
            -(-least.max_duration // _MINUTE), time, lambda n: replace(asked, max_duration=_MINUTE * n), judge
        )


def _largest(
    low: int, high: int, limits: Callable[[int], JobLimits], judge: Judge
) -> Iterator[tuple[JobLimits, Admission]]:
    """The largest number that passes, found by bisection. If a larger number can pass where a smaller one fails, still
    a number that passes."""
    if low > high or not passes(found := judge(limits(low))):
        return
    while low < high:
        middle = (low + high + 1) // 2
        if passes(admission := judge(limits(middle))):
            low, found = middle, admission
        else:
            high = middle - 1
    yield limits(low), found


def passes(admission: Admission) -> bool:
    """Whether it is allowed, or would be after an approval."""
    return admission.answer is not Answer.DENY and admission.short_of is None


def starts_later(refused: Admission, policy: PolicySet, facts_for: FactsFor) -> tuple[datetime, bool] | None:
    """The earliest end of a full budget period (UTC) after which the same amounts for the same time would be allowed,
    and whether they would need an approval. None if no budget refuses the request, or no such period is found.

    Budgets are judged by what is held and spent now, every other rule by the later time.
    """
    action, verdicts = refused.action, refused.verdicts
    for _ in range(_MOST_PERIODS):
        full = [v for v in verdicts if v.answer is Answer.DENY and v.rule == "budget" and "period_end" in v.figures]
        if not full:
            return None
        edge = max(datetime.fromisoformat(v.figures["period_end"]) for v in full)
        action = _moved(refused.action, edge)
        facts = facts_for(action)
        verdicts = (
            *(v for v in policy.judge(action, facts) if v.rule == "budget"),
            *(v for v in policy.judge(action, replace(facts, now=edge)) if v.rule != "budget"),
        )
        if all(v.answer is not Answer.DENY for v in verdicts):
            return edge, any(v.answer is Answer.ASK for v in verdicts)
    return None


def _moved(action: Action, start: datetime) -> Action:
    """The action as if its money were held from ``start`` on."""
    by = start - min((burn.start for burn in action.burns.values()), default=start)
    burns = {kind: replace(burn, start=burn.start + by, end=burn.end + by) for kind, burn in action.burns.items()}
    window = None if action.window is None else (action.window[0] + by, action.window[1] + by)
    return replace(action, burns=burns, window=window)


def alternatives(
    asked: JobLimits,
    now: Iterable[tuple[JobLimits, Admission]],
    later: tuple[datetime, bool] | None,
    instruction: Callable[[JobLimits], str],
) -> list[Alternative]:
    """Requests that pass ``now`` (`smaller`) and ``later`` (`starts_later`), each with the instruction for a person."""
    found = [
        Alternative(instruction(one), one.max_cost, one.max_duration, None, admission.answer is Answer.ASK)
        for one, admission in now
    ]
    if later is not None:
        start, asks = later
        found.append(Alternative(instruction(asked), asked.max_cost, asked.max_duration, start, asks))
    return found


def once(look: Look) -> Look:
    """A cached view of the store for a search. Pending approval requests are left out: they change only the words of a
    verdict, which a search does not use."""
    return cast("Look", _Once(look))


class _Once:
    def __init__(self, look: Reading) -> None:
        self._look = look

    def undecided(self) -> tuple[()]:
        return ()

    def __getattr__(self, name: str) -> Any:
        answer = cache(getattr(self._look, name))
        setattr(self, name, answer)
        return answer


def as_text(found: Sequence[Alternative], refused: Admission) -> str:
    """The alternatives, one per line; without any, the people to ask. Empty if rules other than budgets refused."""
    denials = [v for v in refused.verdicts if v.answer is Answer.DENY]
    released = _passes_when_released(denials)
    if found:
        return "\n".join(
            ["this would be allowed:" if len(found) == 1 else "each would be allowed:", *map(_line, found), *released]
        )
    if any(v.rule != "budget" for v in denials):
        return ""  # such rules may allow the request at another time or place, which was not searched
    where = ", ".join(dict.fromkeys(f"{v.source}{_lacking(v)}" for v in denials))
    none = f"no lower limit and no later budget period would be allowed; ask the owner of {where}"
    return "\n".join([none, *released])


def _passes_when_released(denials: Sequence[Verdict]) -> list[str]:
    """The advice to wait, if budgets refuse only because of money that other jobs hold and may release."""
    if any(v.code != _OVER for v in denials):
        return []
    missing, names = [], []
    for denial in denials:
        share, left, held = (Money.usd(denial.figures[name]) for name in ("share", "left", "held"))
        if share > left + held:
            return []
        missing.append(share - left)
        names.append(denial.figures["budget"])
    return [
        f"  the same request, once other jobs have released {max(missing).up_to_cents()} of what they hold"
        f" (`gpubroker budget show {names[0]}`)"
    ]


def _lacking(denial: Verdict) -> str:
    """How much larger a full budget would have to be."""
    if denial.code != _OVER:
        return ""
    share, left = (Money.usd(denial.figures[name]) for name in ("share", "left"))
    return f" for {(share - left).up_to_cents()} more"


def _line(one: Alternative) -> str:
    when = f" from {one.not_before:%Y-%m-%d %H:%M} UTC on, if nothing more is spent" if one.not_before else ""
    return f"  {one.instruction}{when}{' (needs approval)' if one.needs_approval else ''}"


def too_little(admission: Admission) -> InvalidInput:
    """The refusal of a job whose ``max_cost`` does not pay for a start."""
    placement = admission.placement
    held = admission.money.get(placement.money, Money.ZERO)
    enough = admission.short_of.up_to_cents() if admission.short_of else held
    where = f"{placement.nodes} × {placement.offer.instance_type} at {placement.offer.provider}"
    return InvalidInput(
        f"max_cost: {held} does not pay for a start on {where}; expected at least {enough}",
        hint="raise max_cost in the job file, or leave it out",
    )


def too_short(job: Job, needed: timedelta) -> InvalidInput:
    """The refusal of a job whose ``max_duration`` ends before its work can be done."""
    limit = job.max_duration or timedelta(0)
    enough = math.ceil(needed / timedelta(hours=1) * ROOM) + 1
    return InvalidInput(
        f"max_duration: the job is stopped after {span(limit)}, but its `work` takes at least {span(needed)}",
        hint=f"write `max_duration: {enough}h`, leave it out, or correct `work`",
    )


def denied(
    admission: Admission, passing: Sequence[Alternative] | None = None
) -> InvalidInput | NotAllowed | ApprovalNeeded:
    """The refusal as an error that names each rule with its figures and its place. ``passing``: the alternatives that
    would be allowed; None if they were not searched for."""
    if admission.short_of is not None:
        return too_little(admission)
    lines = [f"{verdict.message} ({verdict.source})" for verdict in admission.objections]
    hint = ""
    if any(v.rule == "budget" for v in admission.objections):
        hint = f"{_less_money(admission)}; a budget owner can change the budget"
    if admission.answer is Answer.ASK:
        return ApprovalNeeded("; ".join(lines), hint=hint)
    if passing is None:
        return NotAllowed("; ".join(lines), hint=hint)
    return NotAllowed("; ".join(lines), hint=as_text(passing, admission), alternatives=passing)


_LESS = {
    HoldLimit.MAX_COST: "a lower max_cost needs less money",
    HoldLimit.MAX_DURATION: "a lower max_duration, or a max_cost, needs less money",
    HoldLimit.EXPECTED: "what is held follows from `work:`: less work, or a max_cost, needs less money",
    HoldLimit.SESSION: "a max_cost needs less money",
}


def _less_money(admission: Admission) -> str:
    """The figure of the job that determines the hold and would have to be lower."""
    deciding = dict.fromkeys(limit for kind, limit in admission.limited_by.items() if admission.money.get(kind))
    return "; ".join(_LESS[limit] for limit in deciding) or "a lower max_cost or max_duration needs less money"


def denied_everywhere(seen: Preview) -> NotAllowed:
    """The refusal when the policies allow no placement: the objection of each rule to the cheapest offer that it
    denies, which is the one that needs the smallest change."""
    prices = {one.id: one.price.micros for one in seen.offers if one.price is not None}
    by_policy = [one for one in seen.plan.rejections if one.reason.origin is Origin.POLICY]
    words: dict[tuple[str, ...], str] = {}
    for one in sorted(by_policy, key=lambda one: prices.get(one.offer_id, math.inf)):
        said = one.objection
        rule = (one.reason.value,) if said is None else (said.source, said.name, said.code)
        by_rule = one.reason is Reason.DENIED_BY_POLICY and one.detail
        words.setdefault(rule, one.detail if by_rule else _switched_off(one))
    shown = list(words.values())[:3]
    more = f" (and {len(words) - 3} more)" if len(words) > 3 else ""
    hint = "a budget owner can change this: `gpubroker policy show`"
    if Reason.REFERENCE_PRICE in seen.plan.reasons():
        hint = "add credentials for live prices (`gpubroker doctor`), or allow reference prices in a policy"
    return NotAllowed("; ".join(shown) + more, hint=hint)


def _switched_off(one: Rejection) -> str:
    return f"{one.reason.text} ({one.detail})" if one.detail else one.reason.text
