"""No job dearer than so much, over all its attempts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, RootModel

from broker.core.money import Money
from broker.core.offers import MoneyKind
from broker.core.policy import Action, ActionKind, Facts, Source, Verdict
from broker.core.units import print_money
from policies.fields import Limit
from policies.scope import Scope
from policies.verdicts import allow, deny, out_of_scope


class Amount(RootModel[Limit]):
    """The most that one job may hold and spend, in USD. What was paid for before (amortised) does not count."""

    model_config = ConfigDict(frozen=True)


@dataclass(frozen=True, eq=False)
class MaxJobCost:
    """Denies a job that might cost more: its hold is the most it can cost. One that runs is stopped at the limit."""

    kind: ClassVar[str] = "max_job_cost"
    Config: ClassVar[type[BaseModel]] = Amount

    name: str
    config: Amount
    scope: Scope
    source: Source

    def judge(self, action: Action, facts: Facts) -> Verdict:
        if not self.scope.covers(action):
            return out_of_scope(self)
        limit = self.config.root
        if action.kind is ActionKind.CONTINUE:
            if action.spent < limit:
                return allow(self, "within_limit", f"at most {print_money(limit)} a job")
            return deny(
                self,
                "job_cost_reached",
                f"it has cost {print_money(action.spent)}, the limit is {print_money(limit)} a job",
                spent=action.spent,
                limit=limit,
            )
        if action.hold is None:
            return allow(self, "no_amount_yet", "judges whole submissions, not single placements")
        asked = sum((m for kind, m in action.hold.items() if kind is not MoneyKind.AMORTISED), Money.ZERO)
        total = action.spent + action.held + asked
        if total <= limit:
            return allow(self, "within_limit", f"at most {print_money(limit)} a job")
        return deny(
            self,
            "job_too_dear",
            f"it may cost {print_money(total)}, the limit is {print_money(limit)} a job; max_cost in the job file"
            " sets less",
            total=total,
            asked=asked,
            limit=limit,
        )
