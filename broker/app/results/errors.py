"""Errors and verdicts of rules as results."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field

from broker.app.results.values import Moment, Result, Seconds, is_none
from broker.core.errors import BrokerError, InvalidInput, NotAllowed, Problem
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
    """A similar request that the same policies would allow, now or from ``not_before`` on."""

    instruction: str
    max_cost: Money | None
    max_duration: Seconds | None
    not_before: Moment | None
    needs_approval: bool


class ErrorDetails(Result):
    """An error: what happened, where, and what to do next. ``alternatives``: only of a refusal by a policy; ``others``:
    the errors of other files, only where there are any."""

    kind: str
    message: str
    where: str
    hint: str
    problems: list[Problem]
    alternatives: list[AlternativeResult] | None = Field(default=None, exclude_if=is_none)
    others: list[ErrorDetails] | None = Field(default=None, exclude_if=is_none)

    @classmethod
    def of(cls, error: BrokerError) -> Self:
        problems, others = (error.problems, error.others) if isinstance(error, InvalidInput) else ((), ())
        alternatives = error.alternatives if isinstance(error, NotAllowed) else None
        return cls.from_parts(
            error,
            kind=kind_of(error),
            problems=problems,
            alternatives=None
            if alternatives is None
            else [AlternativeResult.from_parts(alternative) for alternative in alternatives],
            others=[ErrorDetails.of(other) for other in others] or None,
        )


class ErrorDocument(Result):
    """The document that a command prints with --json if it fails."""

    error: ErrorDetails

    @classmethod
    def of(cls, error: BrokerError) -> Self:
        return cls(error=ErrorDetails.of(error))


def kind_of(error: BrokerError) -> str:
    """``InvalidInput`` → ``invalid_input``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()
