"""The base of every result, and how its values are written in JSON: money as decimal strings in USD, times in ISO 8601
UTC, durations in seconds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from itertools import product
from math import nan
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    WithJsonSchema,
    model_validator,
)

from broker.core.errors import BrokerError, InvalidInput, NotAllowed, Problem
from broker.core.policy.policy import Answer, Verdict
from broker.core.values.figures import figure_of
from broker.core.values.money import Money
from broker.core.values.units import Seconds as Seconds
from broker.core.values.units import seconds_of

_MISSING: Any = object()


class Result(BaseModel):
    """A result: never changed, and without fields that its class does not name. Where a field is a result, its value
    may be what that result is made from: the argument of its ``of``, or of `from_parts` where it has none."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        from_attributes=True,
        defer_build=True,
        validate_by_name=True,
        validate_by_alias=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _made(cls, value: Any) -> Any:
        return value if isinstance(value, dict | cls) else getattr(cls, "of", cls.from_parts)(value)

    @classmethod
    def from_parts(cls, *sources: object, **given_fields: Any) -> Self:
        """A result with the given fields (``more``). Each other field is the attribute of that name of the last part
        that has it; for a field ``total_usd`` also an attribute ``total``."""
        collected = {}
        for name in cls.model_fields.keys() - given_fields.keys():
            names = (name, name.removesuffix("_usd")) if name.endswith("_usd") else (name,)
            for source, attribute in product(reversed(sources), names):
                if (value := getattr(source, attribute, _MISSING)) is not _MISSING:
                    collected[name] = value
                    break
        return cls(**collected, **given_fields)

    def document(self) -> dict[str, Any]:
        """The JSON document, as Python values."""
        return self.model_dump(mode="json", by_alias=True)


def json_text(document: object) -> str:
    """The JSON text of a document: a `Result`, or a dataclass that is its own document."""
    if isinstance(document, Result):
        return document.model_dump_json(by_alias=True)
    return TypeAdapter(type(document)).dump_json(document, by_alias=True).decode()


def is_none(value: object) -> bool:
    """Whether to exclude an optional field that is None."""
    return value is None


def moment_text(at: datetime) -> str:
    """``2026-11-01T12:00:00Z``"""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def plain(value: Any) -> Any:
    """The value in JSON types. Raises TypeError for types without a defined conversion."""
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | str():
            return value
        case float():
            return figure_of(value)
        case Result():
            return plain(value.document())
        case Money():
            return value.as_json()
        case datetime():
            return moment_text(value)
        case timedelta():
            return seconds_of(value)
        case Path() | Decimal():
            return str(value)
        case Mapping():
            return {str(plain(key)): plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            raise TypeError(f"cannot convert {type(value).__name__} to JSON")


Moment = Annotated[
    datetime,
    PlainSerializer(moment_text, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]
Figure = Annotated[
    float,
    BeforeValidator(lambda value: nan if value is None else value),  # as `figure_of` wrote it
    PlainSerializer(figure_of, when_used="json"),
    WithJsonSchema({"type": ["number", "null"]}, mode="serialization"),
]
Facts = Annotated[dict[str, Any], PlainSerializer(plain, return_type=dict[str, Any], when_used="json")]
"""Details by name, whose types differ by name."""


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
