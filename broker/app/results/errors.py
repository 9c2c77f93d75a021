"""Errors as results."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field

from broker.app.results.values import Result, is_none
from broker.app.results.verdicts import AlternativeResult
from broker.core.errors import BrokerError, InvalidInput, NotAllowed, Problem


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
        passing = error.alternatives if isinstance(error, NotAllowed) else None
        return cls.from_parts(
            error,
            kind=kind_of(error),
            problems=problems,
            alternatives=None if passing is None else [AlternativeResult.from_parts(one) for one in passing],
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
