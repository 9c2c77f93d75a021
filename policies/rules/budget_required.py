"""No cash without a budget. Built in and always active."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import ClassVar

from broker.core.market.offers import MoneyKind
from broker.core.policy.facts import Fact
from broker.core.policy.policy import Action, ActionKind, Facts, Source, Verdict
from broker.core.ports import BudgetSpec
from broker.core.values.money import Money
from broker.ledger.budgets import in_scope
from policies.bound_rule import allow, deny
from policies.conditions import Condition, Variables
from policies.rules.membership import BUILT_IN


@dataclass(frozen=True, eq=False)
class BudgetRequired:
    """Denies capacity that a provider bills unless a policy grants the job a cash budget.

    Owned, prepaid and sandbox capacity passes. Running jobs continue within their holds.
    """

    kind: ClassVar[str] = "budget_required"

    budgets: tuple[BudgetSpec, ...]
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    name: str = "budget-required"
    source: Source = BUILT_IN

    def judge(self, action: Action, facts: Facts) -> Verdict:
        asked = (action.hold or {}).get(MoneyKind.CASH, Money.ZERO)
        placed = action.placement is not None and action.placement.money is MoneyKind.CASH
        if asked <= Money.ZERO and (not placed or action.kind is ActionKind.CONTINUE):
            return allow(self, "no_cash", "costs no cash")
        job = action.job
        granted = self._granted(action.user, job.team, job.project, job.workload, job.environment)
        if granted is None and self._conditional:
            granted = self._by_condition(action, facts)
        if granted is not None:
            return allow(self, "budget_granted", f"budget {granted} grants cash")
        claimed = ", ".join(
            f"{word} {name}"
            for word, name in (("team", job.team), ("project", job.project), ("environment", job.environment))
            if name
        )
        return deny(
            self,
            "no_budget",
            f"{f'{asked} in cash' if asked else 'capacity that costs cash'} is requested, and no policy "
            f"grants {action.user}{f' ({claimed})' if claimed else ''} a cash budget for {job.workload} jobs"
            f"{f'; one with {asked} left would pass' if asked else ''}",
            asked=asked,
            user=action.user,
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return ()  # no approval involved

    @cached_property
    def _granted(self) -> Callable[[str, str | None, str | None, str, str | None], str | None]:
        """The first cash budget of a job, cached: a plan judges every placement."""
        return lru_cache(maxsize=1024)(self._first_budget)

    def _first_budget(
        self, user: str, team: str | None, project: str | None, workload: str, environment: str | None
    ) -> str | None:
        for budget in self.budgets:
            if (
                budget.id not in self.conditions
                and MoneyKind.CASH in budget.counts
                and in_scope(budget, user=user, team=team, project=project, workload=workload, environment=environment)
            ):
                return budget.id
        return None

    @cached_property
    def _conditional(self) -> tuple[BudgetSpec, ...]:
        return tuple(b for b in self.budgets if b.id in self.conditions and MoneyKind.CASH in b.counts)

    def _by_condition(self, action: Action, facts: Facts) -> str | None:
        """The first cash budget whose condition is met."""
        job = action.job
        for budget in self._conditional:
            condition = self.conditions[budget.id]
            mine = in_scope(
                budget,
                user=action.user,
                team=job.team,
                project=job.project,
                workload=job.workload,
                environment=job.environment,
            )
            if mine and condition.holds(Variables(action, facts, condition.groups)):
                return budget.id
        return None
