"""Requires an approval above a threshold."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, model_validator

from broker.core.policy.approvals import lasts, total_of
from broker.core.policy.facts import Fact
from broker.core.policy.policy import Action, ActionKind, Facts, Verdict
from broker.core.values.money import alike
from broker.core.values.units import PositiveDuration
from policies.approval_config import ApprovalConfig
from policies.bound_rule import BoundRule, allow, ask, length
from policies.fields import GpuCount, Limit


class Thresholds(ApprovalConfig):
    """Requires an approval by one of ``approvers`` when a job may cost more than ``cost`` (USD in total, without
    prepaid capacity), run longer than ``duration`` (total billed time), or use more than ``gpus`` at once.
    """

    cost: Limit | None = None
    duration: PositiveDuration | None = None
    gpus: GpuCount | None = None

    @model_validator(mode="after")
    def _some_threshold(self) -> Thresholds:
        if self.cost is None and self.duration is None and self.gpus is None:
            raise ValueError("has no threshold; expected cost, duration or gpus, such as cost: $500")
        return self


class ApproveAbove(BoundRule[Thresholds]):
    """Requires an approval for a job that may exceed a threshold. Running jobs continue: their request was judged at
    submission.
    """

    kind: ClassVar[str] = "approve_above"
    Config: ClassVar[type[BaseModel]] = Thresholds
    never_asks: ClassVar[str] = "is redundant: approve_above always asks its approvers; delete `action`"

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if action.kind is ActionKind.CONTINUE:
            return allow(self, "runs_already", "applies to requests, not to running jobs")
        if action.hold is None:
            return allow(self, "no_amount_yet", "applies to whole submissions, not to single placements")
        said = self.config
        total, longest = total_of(action), lasts(action)
        if said.cost is not None and total > said.cost:
            may_cost, threshold = alike(total, said.cost)
            message = f"the job may cost {may_cost}; above {threshold} per job an approval is required"
            return ask(self, said, "cost_above", message, total=total, threshold=said.cost)
        if said.duration is not None and longest is not None and longest > said.duration:
            message = (
                f"the job may run for {length(longest)}; above {length(said.duration)} per job an approval is required"
            )
            return ask(self, said, "duration_above", message, duration=length(longest), threshold=length(said.duration))
        gpus = action.placement.gpus if action.placement else 0
        if said.gpus is not None and gpus > said.gpus:
            message = f"the job uses {gpus} GPUs; above {said.gpus} at once an approval is required"
            return ask(self, said, "gpus_above", message, gpus=gpus, threshold=said.gpus)
        return allow(self, "below", "is below the approval thresholds")

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return ()  # every request covers amount, time and GPUs
