"""Above a threshold, somebody is asked first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, model_validator

from broker.core.policy.approvals import lasts, total_of
from broker.core.policy.facts import Fact
from broker.core.policy.policy import Action, ActionKind, Facts, Source, Verdict
from broker.core.values.money import alike
from broker.core.values.units import PositiveDuration
from policies.approval_config import Asking
from policies.fields import GpuCount, Limit
from policies.scope import Scope
from policies.verdicts import allow, ask, length, out_of_scope


class Thresholds(Asking):
    """Asks one of ``approvers`` when a job may cost more than ``cost`` (USD in all; what was paid for before does not
    count), run for longer than ``duration`` (billed time in all), or take more than ``gpus`` at once."""

    cost: Limit | None = None
    duration: PositiveDuration | None = None
    gpus: GpuCount | None = None

    @model_validator(mode="after")
    def _some_threshold(self) -> Thresholds:
        if self.cost is None and self.duration is None and self.gpus is None:
            raise ValueError("says above what to ask; expected cost, duration or gpus, such as cost: $500")
        return self


@dataclass(frozen=True, eq=False)
class ApproveAbove:
    """Asks for a job that may come to more than a threshold. What runs goes on: it was asked about before."""

    kind: ClassVar[str] = "approve_above"
    Config: ClassVar[type[BaseModel]] = Thresholds
    never_asks: ClassVar[str] = "is what approve_above does anyway: its approvers stand in the rule; delete `action`"

    name: str
    config: Thresholds
    scope: Scope
    source: Source

    def judge(self, action: Action, facts: Facts) -> Verdict:
        if not self.scope.covers(action):
            return out_of_scope(self)
        if action.kind is ActionKind.CONTINUE:
            return allow(self, "runs_already", "is about what is asked for, not about what runs")
        if action.hold is None:
            return allow(self, "no_amount_yet", "judges whole submissions, not single placements")
        said = self.config
        total, longest = total_of(action), lasts(action)
        if said.cost is not None and total > said.cost:
            may_cost, threshold = alike(total, said.cost)
            message = f"it may cost {may_cost}; above {threshold} a job somebody is asked"
            return ask(self, said, "cost_above", message, total=total, threshold=said.cost)
        if said.duration is not None and longest is not None and longest > said.duration:
            message = f"it may run for {length(longest)}; above {length(said.duration)} a job somebody is asked"
            return ask(self, said, "duration_above", message, duration=length(longest), threshold=length(said.duration))
        gpus = action.placement.gpus if action.placement else 0
        if said.gpus is not None and gpus > said.gpus:
            message = f"it takes {gpus} GPUs; above {said.gpus} at once somebody is asked"
            return ask(self, said, "gpus_above", message, gpus=gpus, threshold=said.gpus)
        return allow(self, "below", "is below what somebody is asked about")

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return ()  # amount, time and GPUs belong to every question
