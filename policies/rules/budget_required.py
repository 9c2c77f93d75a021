"""No budget, no cash. Always in force; nobody writes it as a rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

from broker.core.money import Money
from broker.core.offers import MoneyKind
from broker.core.policy import Action, ActionKind, Facts, Source, Verdict
from broker.core.ports import BudgetSpec
from broker.core.units import print_money
from broker.ledger.budgets import in_scope
from policies.rules.membership import BUILT_IN
from policies.verdicts import allow, deny


@dataclass(frozen=True, eq=False)
class BudgetRequired:
    """Denies what a provider would bill when no policy grants the job a budget in cash.

    Owned, prepaid and sandbox capacity passes. What runs already goes on within the money that is held for it.
    """

    kind: ClassVar[str] = "budget_required"

    budgets: tuple[BudgetSpec, ...]
    name: str = "budget-required"
    source: Source = BUILT_IN

    def judge(self, action: Action, facts: Facts) -> Verdict:
        asked = (action.hold or {}).get(MoneyKind.CASH, Money.ZERO)
        placed = action.placement is not None and action.placement.money is MoneyKind.CASH
        if asked <= Money.ZERO and (not placed or action.kind is ActionKind.CONTINUE):
            return allow(self, "no_cash", "costs no cash")
        job = action.job
        granted = self._granted(action.user, job.team, job.project, job.workload, job.environment)
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
            f"{f'{print_money(asked)} in cash' if asked else 'capacity that costs cash'} is asked, and no policy grants"
            f" {action.user}{f' ({claimed})' if claimed else ''} a cash budget for {job.workload} jobs",
            asked=asked,
            user=action.user,
        )

    @cached_property
    def _granted(self) -> Callable[[str, str | None, str | None, str, str | None], str | None]:
        """The first cash budget that somebody's job falls under, remembered: a plan asks for each placement."""
        return lru_cache(maxsize=1024)(self._first_budget)

    def _first_budget(
        self, user: str, team: str | None, project: str | None, workload: str, environment: str | None
    ) -> str | None:
        for budget in self.budgets:
            if MoneyKind.CASH in budget.counts and in_scope(
                budget, user=user, team=team, project=project, workload=workload, environment=environment
            ):
                return budget.id
        return None
