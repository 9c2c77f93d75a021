"""The policies in force: `broker.core.ports.PolicySet` over bound rules. Pure and immutable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from broker.core.jobs import Job
from broker.core.policy import Action, Facts, Verdict
from broker.core.ports import BudgetSpec, PolicyDefaults, Rule
from broker.ledger.budgets import in_scope
from policies.rules.budget import Budget
from policies.rules.budget_required import BudgetRequired
from policies.rules.membership import Membership, Roster


@dataclass(frozen=True)
class ActivePolicies:
    """``version`` changes when anything is said differently; ``rules`` are in file order, ``rosters`` the teams."""

    version: str
    defaults: PolicyDefaults
    rules: tuple[Rule, ...] = ()
    rosters: tuple[Roster, ...] = field(default=(), repr=False)

    @cached_property
    def every_rule(self) -> tuple[Rule, ...]:
        """The built-in rules, then those of the files."""
        return (Membership(self.rosters), BudgetRequired(tuple(budget.spec for budget in self._budgets)), *self.rules)

    def budgets(self, job: Job, user: str) -> Sequence[BudgetSpec]:
        """The budgets that a job of that user falls under, in file order."""
        return [
            budget.spec
            for budget in self._budgets
            if in_scope(
                budget.spec,
                user=user,
                team=job.team,
                project=job.project,
                workload=job.workload,
                environment=job.environment,
            )
        ]

    def judge(self, action: Action, facts: Facts) -> Sequence[Verdict]:
        """Every rule's verdict: the built-in ones first, then in file order. All apply: the strictest decides."""
        return [rule.judge(action, facts) for rule in self.every_rule]

    @cached_property
    def _budgets(self) -> tuple[Budget, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Budget))
