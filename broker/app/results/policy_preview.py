"""The effects of a change of policies, as results."""

from __future__ import annotations

from typing import Self

from broker.app.billing.budgets import BudgetLine
from broker.app.policy.preview import BudgetChange, PolicyPreview
from broker.app.policy.rehearsal import Effect, JobOutcome
from broker.app.results.budgets import BudgetScope
from broker.app.results.trials import JudgedDecisions
from broker.app.results.values import Moment, Result
from broker.core.values.money import Money


class ObjectingRule(Result):
    """A rule and its message; ``source``: file and line."""

    name: str
    kind: str
    code: str
    message: str
    source: str


class AffectedJob(Result):
    """A job to which something happens at the next look that would not happen otherwise. ``at``: when, if not at once;
    ``pool``: of a start; ``approvers``: who is asked."""

    job_id: str
    name: str
    user: str
    team: str | None
    effect: Effect
    rules: list[ObjectingRule]
    pool: str | None
    approvers: list[str]
    at: Moment | None

    @classmethod
    def of(cls, one: JobOutcome) -> Self:
        return cls.from_parts(
            one,
            rules=[ObjectingRule.from_parts(rule, kind=rule.rule) for rule in one.rules],
            pool=one.where or None,
            approvers=one.asks,
        )


class BudgetTermsResult(Result):
    """The terms and the state of a budget. Amounts in USD; ``left`` may be negative."""

    amount: Money
    period: str
    timezone: str
    counts: list[str]
    action: str
    scope: BudgetScope
    spent: Money
    held: Money
    left: Money
    source: str

    @classmethod
    def of(cls, line: BudgetLine) -> Self:
        spec = line.spec
        parts = (spec, line.use, line)
        return cls.from_parts(
            *parts, amount=line.limit, counts=sorted(spec.counts), scope=spec, source=str(line.source)
        )


class BudgetChangeResult(Result):
    """A budget that is new (``before`` is null), gone (``after`` is null) or changed."""

    name: str
    before: BudgetTermsResult | None
    after: BudgetTermsResult | None

    @classmethod
    def of(cls, change: BudgetChange) -> Self:
        before, after = (None if line is None else BudgetTermsResult.of(line) for line in (change.before, change.after))
        return cls(name=change.name, before=before, after=after)


class PastChanges(Result):
    """The decisions from ``since`` to ``until``, judged again."""

    since: Moment
    until: Moment
    decisions: JudgedDecisions


class PolicyPreviewResult(Result):
    """The effects of policy files if they were applied now. ``active_version``: of those in force, 0 without any;
    ``looked_at``: how many open jobs were, and ``left_out`` how many that wait were not."""

    active_version: int
    changed: bool
    difference: str
    jobs: list[AffectedJob]
    budgets: list[BudgetChangeResult]
    looked_at: int
    left_out: int
    past: PastChanges

    @classmethod
    def of(cls, seen: PolicyPreview) -> Self:
        past = PastChanges.from_parts(seen.past, decisions=seen.past.found)
        return cls.from_parts(seen, active_version=seen.before, past=past)
