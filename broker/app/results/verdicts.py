"""The verdicts of the rules of a policy, as results."""

from __future__ import annotations

from typing import Self

from broker.app.results.values import Moment, Result, Seconds
from broker.core.policy.policy import Answer, Verdict
from broker.core.values.money import Money


class VerdictResult(Result):
    """The verdict of one rule with its figures. ``approvers``: of an ask; ``warns``: it would not allow it, and only
    warns."""

    answer: Answer
    rule: str
    name: str
    code: str
    message: str
    source: str
    figures: dict[str, str]
    approvers: list[str]
    warns: bool

    @classmethod
    def of(cls, verdict: Verdict) -> Self:
        return cls.from_parts(verdict, source=str(verdict.source))


class AlternativeResult(Result):
    """A request close to a refused one that the same policies let pass, now or from ``not_before`` on."""

    instruction: str
    max_cost: Money | None
    max_duration: Seconds | None
    not_before: Moment | None
    needs_approval: bool
