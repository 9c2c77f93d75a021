"""Policies as results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, JsonValue

from broker.app.documents import Moment, Result, VerdictResult, is_none
from broker.core.job.jobs import Workload
from broker.core.market.offers import CapacityType
from broker.core.policy.decisions import dump_inputs
from broker.core.policy.policy import Answer
from broker.core.ports import PolicyDefaults, PolicySet, Rule
from broker.core.values.money import Money
from broker.store.records import PolicyVersion

if TYPE_CHECKING:
    from broker.app.policy.policies import Explanation


class RuleResult(Result):
    """One rule. ``says``: its definition as it is written; ``approvers``: whom it asks; ``warns``: it only warns."""

    name: str
    kind: str
    source: str
    scope: str
    when: str
    says: dict[str, JsonValue]
    approvers: list[str]
    warns: bool


class CapacityException(Result):
    """A scope with its own capacity order."""

    scope: str
    order: list[str]
    source: str


class PolicyResult(Result):
    """A set of policies: its version (a hash of its content), rules and defaults, and where each default is written."""

    policy_version: str
    rules: list[RuleResult]
    defaults: PolicyDefaults
    defaults_said_at: dict[str, str]
    capacity_exceptions: list[CapacityException]


class CheckedPolicy(PolicyResult):
    """Policy files that are valid. ``warnings``: likely mistakes; ``left_out``: files of test cases among them."""

    valid: bool
    warnings: list[str]
    left_out: list[str]

    @classmethod
    def of(cls, policy: PolicySet, warnings: Sequence[str]) -> Self:
        return cls(valid=True, warnings=list(warnings), left_out=[], **_policy_fields(policy))


class Activation(Result):
    """One activation of a set of policy files."""

    number: int
    activated_at: Moment
    by: str
    note: str
    sha256: str
    file_names: list[str]

    @classmethod
    def of(cls, version: PolicyVersion, **extra: Any) -> Self:
        return cls.from_parts(version, file_names=sorted(version.files), **extra)


class RuleChanges(Result):
    """The names of the rules that differ between two sets of policies, whatever their files and lines. ``defaults``:
    whether defaults differ, too; false where there was no set before."""

    added: list[str]
    changed: list[str]
    removed: list[str]
    defaults: bool

    @classmethod
    def between(cls, before: PolicySet | None, after: PolicySet) -> Self:
        old, new = (
            {r.name: _rule_content(policy, r) for r in policy.rules} if policy else {} for policy in (before, after)
        )
        return cls(
            added=sorted(new.keys() - old.keys()),
            changed=sorted(name for name in old.keys() & new.keys() if old[name] != new[name]),
            removed=sorted(old.keys() - new.keys()),
            defaults=before is not None and before.defaults != after.defaults,
        )


def _rule_content(policy: PolicySet, rule: Rule) -> tuple[object, ...]:
    """The content of a rule, independent of its file and line."""
    content = getattr(rule, "config", None), getattr(rule, "scope", None), policy.approvers(rule.name)
    return rule.kind, *map(repr, content), policy.warns(rule.name), policy.when(rule.name)


class AppliedPolicy(Activation, PolicyResult):
    """The result of applying policy files. ``rules_changed`` and ``difference`` (a unified diff of the files): from the
    set before; ``left_out``: files of test cases among those given."""

    changed: bool
    rules_changed: RuleChanges
    difference: str
    warnings: list[str]
    left_out: list[str]

    @classmethod
    def of_change(cls, version: PolicyVersion, before: PolicySet | None, after: PolicySet, **extra: Any) -> Self:
        return cls.of(
            version, **_policy_fields(after), rules_changed=RuleChanges.between(before, after), left_out=[], **extra
        )


class ActivePolicy(Activation, PolicyResult):
    """The active policy set. ``files``: their texts by name, where they were asked for."""

    files: dict[str, str] | None = Field(default=None, exclude_if=is_none)

    @classmethod
    def of_set(cls, version: PolicyVersion, policy: PolicySet, *, files: bool = False) -> Self:
        return cls.of(version, **_policy_fields(policy), files=dict(version.files) if files else None)


class PolicyInForce(Result):
    """The active policy set, null where none was ever activated."""

    active: ActivePolicy | None


class SeenBudget(Result):
    """The money of a budget (USD) in the period that starts then."""

    budget: str
    period_start: Moment
    spent: Money
    held: Money


class SeenFacts(Result):
    """The main facts that the rules see: who asks for what at which place and hourly price (USD), ``start`` and
    ``until``: the longest time that it may run; what runs already, and the money of budgets."""

    at: Moment
    user: str
    team: str | None
    project: str | None
    environment: str | None
    workload: Workload
    nodes: int
    machine: str
    capacity_type: CapacityType
    location: str
    rate_per_hour: Money
    start: Moment | None
    until: Moment | None
    running_jobs: int
    running_gpus: int
    budgets: list[SeenBudget]

    @classmethod
    def of(cls, explanation: Explanation) -> Self:
        action, facts, placement = explanation.admission.action, explanation.facts, explanation.admission.placement
        start, until = action.window or (None, None)
        return cls.from_parts(
            placement.offer,
            action.job,
            action,
            at=facts.now,
            nodes=placement.nodes,
            rate_per_hour=placement.rate,
            start=start,
            until=until,
            running_jobs=len({attempt.job_id for attempt in facts.live}),
            running_gpus=sum(attempt.gpus for attempt in facts.live),
            budgets=[SeenBudget.from_parts(use, budget=name) for name, uses in facts.budgets.items() for use in uses],
        )


class PolicyExplanation(Result):
    """The verdict of every rule on one placement, and all facts that they see (``inputs``; ``facts``: the main ones,
    null for those who may not see them). ``planned``: it is the placement that the plan takes; otherwise the policies
    leave the plan none, so they deny the job, and ``placement_answer`` is about the placement alone. ``hold``: USD by
    kind of money."""

    answer: Answer
    planned: bool
    placement_answer: Answer
    policy_version: str
    offer: str
    pool: str
    hold: dict[str, Money]
    verdicts: list[VerdictResult]
    facts: SeenFacts | None
    inputs: dict[str, JsonValue]

    @classmethod
    def of(cls, explanation: Explanation, policy_version: str) -> Self:
        admission = explanation.admission
        return cls.from_parts(
            explanation,
            policy_version=policy_version,
            placement_answer=admission.answer,
            offer=admission.placement.offer.id,
            pool=admission.placement.offer.pool,
            hold={str(kind): amount for kind, amount in admission.money.items()},
            verdicts=admission.verdicts,
            facts=SeenFacts.of(explanation),
            inputs=dump_inputs(admission.action, explanation.facts),
        )


def _policy_fields(policy: PolicySet) -> dict[str, Any]:
    return {
        "policy_version": policy.version,
        "rules": [
            RuleResult(
                name=rule.name,
                kind=rule.kind,
                source=str(rule.source),
                scope=str(getattr(rule, "scope", "")),
                when=policy.when(rule.name),
                says=dict(policy.written(rule.name)),
                approvers=list(policy.approvers(rule.name)),
                warns=policy.warns(rule.name),
            )
            for rule in policy.rules
        ],
        "defaults": policy.defaults,
        "defaults_said_at": {default: str(source) for default, source in policy.said_at.items()},
        "capacity_exceptions": [
            CapacityException(scope=str(scope), order=list(order), source=str(source))
            for scope, order, source in policy.order_exceptions
        ],
    }


class PolicyVersionList(Result):
    """Every activation of a set of policy files, the newest first."""

    versions: list[Activation]
