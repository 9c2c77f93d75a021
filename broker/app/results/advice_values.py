"""Values that all advice shares. Amounts are decimal strings in USD with up to nine decimals, because the economics
compute fractions of a cent; infinite or unknown figures are null. Estimates have one digit more than tables show, so
that their sums are exact to the digits of a table. Estimates of memory are accurate to a few percent, of speed to about
ten percent."""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Annotated

from pydantic import PlainSerializer, WithJsonSchema

from broker.app.results.values import Moment, Result, figure_of
from broker.core.market.offers import CapacityType
from broker.core.values.figures import age
from broker.economics.estimates import DIGITS, rounded

if TYPE_CHECKING:
    from broker.app.advise.prices import Quote


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


Usd = Annotated[
    float,
    PlainSerializer(usd, when_used="json"),
    WithJsonSchema({"type": ["string", "null"], "description": "USD"}, mode="serialization"),
]

Estimate = Annotated[
    float,
    PlainSerializer(estimate, when_used="json"),
    WithJsonSchema({"type": ["number", "null"], "description": "an estimate, four digits"}, mode="serialization"),
]
Gib = Annotated[
    float,
    PlainSerializer(gib, when_used="json"),
    WithJsonSchema({"type": ["number", "null"], "description": "GiB, four digits or a tenth"}, mode="serialization"),
]
EstimatedUsd = Annotated[
    float,
    PlainSerializer(estimated_usd, when_used="json"),
    WithJsonSchema({"type": ["string", "null"], "description": "USD, four digits"}, mode="serialization"),
]


def quoted(quote: Quote | QuotedMachine) -> str:
    """The source of a price: ``aws/us-east-1, on-demand, list price of 2026-09-20``."""
    if quote.as_of is None:
        return quote.source
    old = f"list price of {quote.as_of:%Y-%m-%d}" if quote.reference else f"{age(datetime.now(UTC) - quote.as_of)} old"
    return f"{quote.where}, {quote.capacity_type.replace('_', '-')}, {old}{', stale' if quote.stale else ''}"


class Advice(Result):
    """The base of advice. ``assumptions``: figures that were neither given nor measured."""

    assumptions: list[str]


class QuotedMachine(Result):
    """A price, in force at ``as_of``. ``usd_per_hour``: of all ``machines``."""

    accelerator: str
    gpus: int
    capacity_type: CapacityType
    usd_per_hour: Usd
    usd_per_gpu_hour: Usd
    machine: str
    machines: int
    where: str
    instance_type: str
    interconnect: str | None
    source: str
    as_of: Moment | None
    reference: bool
    stale: bool
