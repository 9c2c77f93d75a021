"""Policies as results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from pydantic import Field, JsonValue

from broker.app.policy.policies import Explained
from broker.app.results.values import Moment, Result, Seconds, is_none
from broker.app.results.verdicts import VerdictResult
from broker.core.policy.decisions import written
from broker.core.policy.policy import Answer
from broker.core.ports import PolicySet
from broker.core.values.money import Money
from broker.store.records import PolicyVersion


class RuleResult(Result):
    """One rule. ``says``: its definition as it is written; ``approvers``: whom it asks."""

    name: str
    kind: str
    source: str
    scope: str
    when: str
    says: dict[str, JsonValue]
    approvers: list[str]


class HoldingLimitsResult(Result):
    """What may be proposed to own or reserve; ``utilisation`` and ``break_even`` are percentages."""

    utilisation: float | None
    horizon: Seconds | None
    break_even: float | None


class LendingResult(Result):
    """What ``team`` takes from the teams ``to`` for machines that it bought: USD a GPU-hour, or ``share`` percent of
    what their hour cost."""

    team: str
    to: list[str]
    price_per_gpu_hour: Money | None
    share: float | None


class PolicyDefaultsResult(Result):
    """The defaults of jobs. ``value_of_time``: USD an hour; ``holding``: limits of what capacity plans propose;
    ``lending``: internal prices of bought machines."""

    max_duration: Seconds
    allow_reference_prices: bool
    allow_stale_prices: bool
    cpu_jobs_on_gpus: bool
    grants_cash: bool
    capacity_order: list[str]
    wait_for_paid: Seconds | None
    value_of_time: Money | None
    end_orphans_after: Seconds | None
    max_unattended: Seconds | None
    holding: HoldingLimitsResult
    keep_checkpoints: Seconds | None
    keep_results: Seconds | None
    keep_logs: Seconds | None
    keep_snapshots: Seconds | None
    keep_events: Seconds | None
    keep_prices: Seconds | None
    keep_notices: Seconds | None
    hold_quantile: float | None
    lending: list[LendingResult]


class CapacityException(Result):
    """Whose jobs have an order of capacity of their own."""

    scope: str
    order: list[str]
    source: str


class PolicyResult(Result):
    """A set of policies: its version (a hash of its content), rules and defaults, and where each default is written."""

    policy_version: str
    rules: list[RuleResult]
    defaults: PolicyDefaultsResult
    defaults_said_at: dict[str, str]
    capacity_exceptions: list[CapacityException]


class CheckedPolicy(PolicyResult):
    """Policy files that are valid. ``warnings``: likely mistakes; ``left_out``: files of test cases among them."""

    valid: bool
    warnings: list[str]
    left_out: list[str]

    @classmethod
    def of(cls, policy: PolicySet, warnings: Sequence[str], left_out: Sequence[object]) -> Self:
        return cls(valid=True, warnings=list(warnings), left_out=[str(one) for one in left_out], **_parts_of(policy))


class Activation(Result):
    """One activation of a set of policy files."""

    number: int
    activated_at: Moment
    by: str
    note: str
    sha256: str
    file_names: list[str]

    @classmethod
    def of(cls, version: PolicyVersion, **more: Any) -> Self:
        return cls.from_parts(version, file_names=sorted(version.files), **more)


class AppliedPolicy(Activation):
    """The result of applying policy files. ``difference``: from the set before, as a unified diff."""

    changed: bool
    difference: str
    warnings: list[str]
    left_out: list[str]


class ActivePolicy(Activation, PolicyResult):
    """The active policy set. ``files``: their texts by name, where they were asked for."""

    files: dict[str, str] | None = Field(default=None, exclude_if=is_none)

    @classmethod
    def of_set(cls, version: PolicyVersion, policy: PolicySet, *, files: bool = False) -> Self:
        return cls.of(version, **_parts_of(policy), files=dict(version.files) if files else None)


class PolicyInForce(Result):
    """The active policy set, null where none was ever activated; ``history``: every activation, the newest first, where
    that was asked for."""

    active: ActivePolicy | None
    history: list[Activation] | None = Field(default=None, exclude_if=is_none)


class PolicyExplanation(Result):
    """The verdict of every rule on one placement, and its facts (``inputs``). ``planned``: it is the placement
    that the plan takes; otherwise the policies leave the plan none. ``hold``: USD by kind of money."""

    answer: Answer
    planned: bool
    policy_version: str
    offer: str
    hold: dict[str, Money]
    verdicts: list[VerdictResult]
    inputs: dict[str, JsonValue]

    @classmethod
    def of(cls, said: Explained, policy_version: str) -> Self:
        found = said.admission
        return cls.from_parts(
            said,
            policy_version=policy_version,
            offer=found.placement.offer.id,
            hold={str(kind): amount for kind, amount in found.money.items()},
            verdicts=found.verdicts,
            inputs=written(found.action, said.facts),
        )


def _parts_of(policy: PolicySet) -> dict[str, Any]:
    defaults = policy.defaults
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
            )
            for rule in policy.rules
        ],
        "defaults": PolicyDefaultsResult.model_validate(defaults),
        "defaults_said_at": {default: str(source) for default, source in policy.said_at.items()},
        "capacity_exceptions": [
            CapacityException(scope=str(scope), order=list(order), source=str(source))
            for scope, order, source in policy.order_exceptions
        ],
    }
