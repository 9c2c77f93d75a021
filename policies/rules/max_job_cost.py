"""Limits a job's cost over all attempts."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, RootModel

from broker.core.policy.approvals import total_of
from broker.core.policy.facts import Fact
from broker.core.policy.policy import Action, Facts, Verdict
from broker.core.values.money import Money, alike
from policies.bound_rule import BoundRule
from policies.fields import Limit
from policies.job_limits import JobLimit


class Amount(RootModel[Limit]):
    """Maximum hold and cost of one job, in USD. Prepaid (amortised) capacity does not count."""

    model_config = ConfigDict(frozen=True)


_COST = JobLimit[Money](
    "cost",
    alike,
    reached=("job_cost_reached", "the job has cost"),
    passes=("job_too_dear", "the job may cost"),
    key="max_cost in the job file",
)


class MaxJobCost(BoundRule[Amount]):
    """Denies a job that might cost more: its hold is its maximum cost. A running job stops at the limit."""

    kind: ClassVar[str] = "max_job_cost"
    Config: ClassVar[type[BaseModel]] = Amount

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        in_all = None if action.hold is None else total_of(action)
        return _COST.judge(self, action, self.config.root, so_far=action.spent, in_all=in_all)

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return ()  # every request covers the amount
