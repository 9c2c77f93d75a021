"""Why a job cannot be submitted, as errors with the messages of the rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from broker.app.jobs.nearest import as_text
from broker.core.errors import Alternative, ApprovalNeeded, InvalidInput, NotAllowed
from broker.core.job.jobs import Job
from broker.core.job.reasons import Origin, Reason, Rejection
from broker.core.policy.policy import Answer
from broker.core.values.figures import span
from broker.core.values.money import Money
from broker.placement.time_limit import ROOM
from broker.reconciler.admission.admission import Admission
from broker.reconciler.admission.hold_limits import HoldLimit

if TYPE_CHECKING:
    from broker.app.jobs.preview import Preview


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
    would pass; None if they were not searched for."""
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
