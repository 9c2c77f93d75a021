"""The figures of answers by their type: the unit that people see, and how JSON writes them.

Amounts are decimal strings in USD with up to nine decimals, because the economics compute fractions of a cent; infinite
or unknown figures are null. Estimates have one digit more than tables show, so that their sums are exact to the digits
of a table. Estimates of memory are accurate to a few percent, of speed to about ten percent.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any

from pydantic import PlainSerializer, WithJsonSchema

from broker.core.values.figures import figure_of
from broker.economics.estimates import DIGITS, rounded


@dataclass(frozen=True, slots=True)
class Shown:
    """How people see a figure. ``unit``: behind it, ``$`` before it, ``%`` of a share; ``exact``: all its digits;
    ``hidden``: only JSON has it."""

    unit: str = ""
    exact: bool = False
    hidden: bool = False


def usd(amount: float) -> str | None:
    """``0.162580901`` → ``"0.162580901"``, 94188 → ``"94188.00"``; None for a number that is not finite."""
    if not isfinite(amount):
        return None
    whole, _, decimals = f"{amount:.9f}".partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')}"


def estimate(value: float) -> float | None:
    """Rounded to four significant digits: 23.148148 → 23.15."""
    return figure_of(rounded(value, DIGITS + 1))


def gib(value: float) -> float | None:
    """GiB, rounded to four significant digits, from 1000 on to tenths: 33.936 → 33.94, 1434.23 → 1434.2."""
    return estimate(value) if value < 10**DIGITS else figure_of(round(value, 1))


def estimated_usd(amount: float) -> str | None:
    """USD, rounded to four significant digits: 46.226557 → ``"46.23"``."""
    return usd(rounded(amount, DIGITS + 1))


def _schema(kind: str, description: str = "") -> WithJsonSchema:
    told: dict[str, Any] = {"description": description} if description else {}
    return WithJsonSchema({"type": [kind, "null"], **told}, mode="serialization")


_FIGURE = (PlainSerializer(figure_of, when_used="json"), _schema("number"))
_ESTIMATE = (PlainSerializer(estimate, when_used="json"), _schema("number", "an estimate, four digits"))

Usd = Annotated[float, Shown("$"), PlainSerializer(usd, when_used="json"), _schema("string", "USD")]
ExactUsd = Annotated[float, Shown("$", exact=True), PlainSerializer(usd, when_used="json"), _schema("string", "USD")]
EstimatedUsd = Annotated[
    float, Shown("$"), PlainSerializer(estimated_usd, when_used="json"), _schema("string", "USD, four digits")
]
PlannedUsd = Annotated[
    float,
    PlainSerializer(lambda amount: f"{amount:.6f}".rstrip("0").rstrip("."), when_used="json"),
    WithJsonSchema({"type": "string", "description": "USD"}, mode="serialization"),
]
"""USD with up to six decimals."""
Cents = Annotated[
    float,
    PlainSerializer(lambda amount: f"{amount:.2f}", when_used="json"),
    WithJsonSchema({"type": "string", "description": "USD"}, mode="serialization"),
]
Gib = Annotated[
    float, Shown("GiB"), PlainSerializer(gib, when_used="json"), _schema("number", "GiB, four digits or a tenth")
]
Figure = Annotated[float, Shown(), *_FIGURE]
Share = Annotated[float, Shown("%"), *_FIGURE]
Estimate = Annotated[float, Shown(), *_ESTIMATE]
Seconds = Annotated[float, Shown("s"), *_ESTIMATE]
Milliseconds = Annotated[float, Shown("ms"), *_ESTIMATE]
Hours = Annotated[float, Shown("h"), *_ESTIMATE]
Watts = Annotated[float, Shown("W"), *_FIGURE]
Count = Annotated[float, Shown("count"), *_FIGURE]
HIDDEN = Shown(hidden=True)
