"""Above a threshold, somebody is asked first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from pydantic import BaseModel, model_validator

from broker.core.money import Money
from broker.core.offers import MoneyKind
from broker.core.policy import Action, ActionKind, Facts, Source, Verdict
from broker.core.units import PositiveDuration, print_money
from policies.asking import Asking
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
        asked = sum((m for kind, m in action.hold.items() if kind is not MoneyKind.AMORTISED), Money.ZERO)
        total = action.spent + action.held + asked
        if said.cost is not None and total > said.cost:
            message = f"it may cost {print_money(total)}; above {print_money(said.cost)} a job somebody is asked"
            return ask(self, said, "cost_above", message, total=total, threshold=said.cost)
        window = action.window or (facts.now, facts.now)
        lasts = action.elapsed + max(window[1] - window[0], timedelta(0))
        if said.duration is not None and lasts > said.duration:
            message = f"it may run for {length(lasts)}; above {length(said.duration)} a job somebody is asked"
            return ask(self, said, "duration_above", message, duration=length(lasts), threshold=length(said.duration))
        gpus = action.placement.gpus if action.placement else 0
        if said.gpus is not None and gpus > said.gpus:
            message = f"it takes {gpus} GPUs; above {said.gpus} at once somebody is asked"
            return ask(self, said, "gpus_above", message, gpus=gpus, threshold=said.gpus)
        return allow(self, "below", "is below what somebody is asked about")
