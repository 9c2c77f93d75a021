"""The figures of answers by their type: the unit that people see, and how JSON writes them.

Amounts are decimal strings in USD with up to nine decimals, because the economics compute fractions of a cent; infinite
or unknown figures are null. Estimates have one digit more than tables show, so that their sums are exact to the digits
of a table. Estimates of memory are accurate to a few percent, of speed to about ten percent.

Estimates as text with three significant digits, as many as their inputs justify.

Quoted claims that are compared with the arithmetic.
"""

from dataclasses import dataclass
from math import ceil, floor, isfinite, log10
from typing import Annotated, Any

from pydantic import PlainSerializer, WithJsonSchema

from broker.core.values.figures import figure_of


@dataclass(frozen=True, slots=True)
class DisplayFormat:
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
    return figure_of(round_to(value, DIGITS + 1))


def gib(value: float) -> float | None:
    """GiB, rounded to four significant digits, from 1000 on to tenths: 33.936 → 33.94, 1434.23 → 1434.2."""
    return estimate(value) if value < 10**DIGITS else figure_of(round(value, 1))


def estimated_usd(amount: float) -> str | None:
    """USD, rounded to four significant digits: 46.226557 → ``"46.23"``."""
    return usd(round_to(amount, DIGITS + 1))


def _schema(kind: str, description: str = "") -> WithJsonSchema:
    extra: dict[str, Any] = {"description": description} if description else {}
    return WithJsonSchema({"type": [kind, "null"], **extra}, mode="serialization")


_FIGURE = (PlainSerializer(figure_of, when_used="json"), _schema("number"))
_ESTIMATE = (PlainSerializer(estimate, when_used="json"), _schema("number", "an estimate, four digits"))

Usd = Annotated[float, DisplayFormat("$"), PlainSerializer(usd, when_used="json"), _schema("string", "USD")]
ExactUsd = Annotated[
    float, DisplayFormat("$", exact=True), PlainSerializer(usd, when_used="json"), _schema("string", "USD")
]
EstimatedUsd = Annotated[
    float, DisplayFormat("$"), PlainSerializer(estimated_usd, when_used="json"), _schema("string", "USD, four digits")
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
    float,
    DisplayFormat("GiB"),
    PlainSerializer(gib, when_used="json"),
    _schema("number", "GiB, four digits or a tenth"),
]
Figure = Annotated[float, DisplayFormat(), *_FIGURE]
Share = Annotated[float, DisplayFormat("%"), *_FIGURE]
Estimate = Annotated[float, DisplayFormat(), *_ESTIMATE]
Seconds = Annotated[float, DisplayFormat("s"), *_ESTIMATE]
Milliseconds = Annotated[float, DisplayFormat("ms"), *_ESTIMATE]
Hours = Annotated[float, DisplayFormat("h"), *_ESTIMATE]
Watts = Annotated[float, DisplayFormat("W"), *_FIGURE]
Count = Annotated[float, DisplayFormat("count"), *_FIGURE]
HIDDEN = DisplayFormat(hidden=True)


DIGITS = 3
"""Significant digits of a shown estimate: prices move by more than the fourth within days, and speeds are known to a
tenth."""


def round_to(value: float, significant_digits: int = DIGITS) -> float:
    """The value with ``significant_digits`` significant digits; infinite values and NaN stay unchanged."""
    return float(f"{value:.{significant_digits}g}") if isfinite(value) else value


def limit(amount: float) -> float:
    """A limit (USD) above an estimate: rounded up to three significant digits."""
    if not isfinite(amount) or amount <= 0:
        return amount
    step = 10.0 ** (floor(log10(amount)) - DIGITS + 1)
    return round(ceil(round(amount / step, 6)) * step, 6)


def count_text(value: float) -> str:
    """``7B``, ``1.5T``, ``350M``."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if value >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:g}"


def usd_text(amount: float) -> str:
    """USD: ``$11,100``, ``$58.1``, ``$4.31``, ``$0.163``."""
    return f"{'-' if round_to(amount) < 0 else ''}${number_text(abs(amount), cents=True)}"


def number_text(value: float, *, cents: bool = False) -> str:
    """A number: ``1,190``, ``58.1``, ``4.31``, ``0.163``. ``cents``: at least two decimals below 10."""
    approximate = round_to(value)
    if not isfinite(approximate) or abs(approximate) >= 100:
        return f"{approximate:,.0f}"
    if cents and 0.1 <= abs(approximate) < 10:
        return f"{approximate:.2f}" if abs(approximate) >= 1 else f"{approximate:.3f}"
    return f"{approximate:.{_decimals(approximate)}f}" if approximate else "0"


def _decimals(approximate: float) -> int:
    """The decimals that show a rounded value below 100, without zeros at the end."""
    _, _, exponent = f"{approximate:.{DIGITS - 1}e}".partition("e")
    max_decimals = max(0, DIGITS - 1 - int(exponent))
    text = f"{approximate:.{max_decimals}f}".rstrip("0")
    return len(text.partition(".")[2])


CLUSTER_USD_PER_GPU_HOUR = (8.0, 15.0)
API_BREAK_EVEN = (("a 7B model", 0.50), ("a 13B model", 0.10))
"""The utilization at which owning beats an API."""

FLEET_SAVING = (0.93, 0.20, 0.60)
"""The share of GPUs saved where utilization rises from the second to the third figure."""

SAVINGS_TOGETHER = (0.30, 0.40)
"""Of all measures of inference."""

WITHIN = 1 / 3
"""A quoted figure holds if the computed one differs by at most this share."""


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """A quoted rule compared with the arithmetic: the ``rule``, what the numbers ``says``, and whether it ``holds`` for
    these inputs."""

    rule: str
    says: str
    holds: bool
