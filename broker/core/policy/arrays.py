"""How policies see an array: rules about a job judge all of its tasks together, other rules each task. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from broker.core.job.arrays import JobArray
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import Action, Answer, Verdict
from broker.core.values.money import Money

STRICTNESS = (Answer.ALLOW, Answer.ASK, Answer.DENY)
_JOB_RULES = ("max_job_cost", "approve_above", "max_kg_co2e")


def action_of_all(action: Action, array: JobArray, max_cost: Money | None, array_id: str | None = None) -> Action:
    """The action of one task as that of the whole array: the money of all tasks, at most the array's ``max_cost``
    (USD), and the machines of those that run at once."""
    total_hold = {kind: amount * array.count for kind, amount in (action.hold or {}).items()}
    if max_cost is not None:
        for kind in total_hold.keys() - {MoneyKind.AMORTISED}:
            total_hold[kind] = min(total_hold[kind], max_cost)
    placement = action.placement
    if placement is not None:
        rate = placement.kg_co2e_per_hour
        placement = replace(
            placement,
            nodes=placement.nodes * array.at_once,
            rate=placement.rate * array.at_once,
            expected_cost=placement.expected_cost * array.count,
            kg_co2e_per_hour=None if rate is None else rate * array.count,
        )
    return replace(action, job_id=array_id, placement=placement, hold=total_hold)


def verdicts_with_all(
    of_task: Sequence[Verdict], of_all: Sequence[Verdict], when: Callable[[str], str]
) -> tuple[Verdict, ...]:
    """The verdicts on a task, each that is about a job replaced by the one on all tasks if that is stricter.
    ``when``: the condition of the rule of that name (`PolicySet.when`)."""
    return tuple(
        max(all_verdict, task_verdict, key=lambda verdict: STRICTNESS.index(verdict.answer))
        if _is_about_job(task_verdict, when)
        else task_verdict
        for task_verdict, all_verdict in zip(of_task, of_all, strict=True)
    )


def _is_about_job(verdict: Verdict, when: Callable[[str], str]) -> bool:
    condition = "" if verdict.rule == "budget" else when(verdict.name)
    return verdict.rule in _JOB_RULES or any(group in condition for group in ("spend.", "placement."))
