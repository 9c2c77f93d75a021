"""Parses a SKU of the catalog: the priced part of a machine, its purchase type, its regions, and the unit.

A SKU describes itself in a sentence ("Nvidia L4 GPU attached to Spot Preemptible VMs running in Americas") and has its
purchase type in a code (``usageType``). Neither is reliable alone: a "Spot Preemptible A4 …" is filed under OnDemand.
So both are read; the more specific one wins, and contradictions are skipped. The whole sentence must be understood:
"GPU attached to Sole Tenancy VMs", "Reserved …", "… Custom …" and "… Virtual Workstation" are other prices, many of
them 0. Dynamic Workload Scheduler's prices are filed under OnDemand: "DWS Defined Duration" and "DWS Flex Start" are
flex start, "DWS Calendar Mode …" and "Reserved … in Calendar Mode" are calendar mode.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Any

from providers.gcp.accelerators import families_in_skus, sku_names, slice_names
from providers.rows import Unfit, short

HOURS_A_MONTH = 730  # by Google's definition: "Pricing", local SSDs
_NANO = Decimal(1_000_000_000)
_GIB_IN_GB = Decimal(2**30) / Decimal(10**9)
# The plausible range of the price of one part, USD per hour: a GiB of memory or of a disk at the bottom, a rack's share
# at the top.
_CHEAPEST, _DEAREST = Decimal("0.000001"), Decimal(1000)


class How(StrEnum):
    """How capacity is obtained."""

    ON_DEMAND = "on demand"
    SPOT = "spot"
    ONE_YEAR = "for 1 year"
    THREE_YEARS = "for 3 years"
    FLEX_START = "with flex start"
    CALENDAR = "in calendar mode"


class SkuKind(StrEnum):
    """The priced part. ``SLICE``: a whole machine's share of one GPU or chip, or of an eighth of a GPU, with cores,
    memory and disks."""

    CORE = "cores"
    RAM = "memory"
    GPU = "GPUs"
    SLICE = "GPU slices"
    SSD = "local SSD"


@dataclass(frozen=True, slots=True)
class SkuPart:
    """A priced part. ``of``: the machine family as named in SKUs, or the accelerator type; empty: of any machine."""

    kind: SkuKind
    of: str
    how: How

    def __str__(self) -> str:
        return f"{self.kind} of {self.of}, {self.how}" if self.of else f"{self.kind}, {self.how}"


@dataclass(frozen=True, slots=True)
class Priced:
    """A part's price in some regions: exact USD per hour of one core, GPU or slice, or of one GiB."""

    part: SkuPart
    price: Decimal
    regions: tuple[str, ...]


_COMMITMENT = re.compile(r"commitment(?: v\d+)?\s*:\s*")
_TERM = re.compile(r"\s+for (\d+) (year|yr|month)s?(?:\(s\))?$")
_PLACE = re.compile(r"\s+(?:running )?in \S.*$")
_ATTACHED_SPOT = re.compile(r"\s+attached to (?:spot preemptible|spot|preemptible) vms?\b")
_LEADING_SPOT = re.compile(r"(?:spot preemptible|spot|preemptible)\s+")
_AHEAD = (
    (re.compile(r"\s+attached to dws defined duration vms?\b"), How.FLEX_START),
    (re.compile(r"^dws (?:defined duration|flex[- ]start)\s+"), How.FLEX_START),
    (re.compile(r"^dws calendar mode\s+"), How.CALENDAR),
)
_RESERVED_IN_CALENDAR = re.compile(r"reserved (.+) in calendar mode")
_FAMILY = r"([a-z]\d+[a-z]?(?: ?(?:plus|mega|ultra|high|edge))?)"
_CORE_OR_RAM = re.compile(rf"(?:(?:{_FAMILY}|n1 predefined) ?(?:instance )?)?(core|cpu|ram)")
_SLICE = re.compile(r"(?:a\d+[a-z]? )?(.+?) \(1 gpu slice\)")
_SSD = re.compile(rf"ssd backed local storage|local ssd|{_FAMILY} (?:instance )?local ssd")
_TERMS = {
    ("1", "y"): How.ONE_YEAR,
    ("12", "m"): How.ONE_YEAR,
    ("3", "y"): How.THREE_YEARS,
    ("36", "m"): How.THREE_YEARS,
}
_USAGE = {
    "OnDemand": How.ON_DEMAND,
    "Preemptible": How.SPOT,
    "Spot": How.SPOT,
    "Commit1Yr": How.ONE_YEAR,
    "Commit3Yr": How.THREE_YEARS,
}
_HOURLY = {"h": Decimal(1)}
# Per GiB and hour, from the unit that the SKU is in.
_PER_GIB_HOUR = {
    "GiBy.h": Decimal(1),
    "GBy.h": _GIB_IN_GB,
    "GiBy.mo": Decimal(1) / HOURS_A_MONTH,
    "GBy.mo": _GIB_IN_GB / HOURS_A_MONTH,
}
_UNITS = {
    SkuKind.CORE: _HOURLY,
    SkuKind.GPU: _HOURLY,
    SkuKind.SLICE: _HOURLY,
    SkuKind.RAM: {unit: factor for unit, factor in _PER_GIB_HOUR.items() if unit.endswith(".h")},
    SkuKind.SSD: _PER_GIB_HOUR,
}


def read_sku(sku: Any, now: datetime) -> Priced | None:
    """The part that a SKU (protobuf) prices; None for what is not a part of a machine with accelerators.

    Raises `Unfit` for a part whose price cannot be used: ``malformed_row``, ``contradictory_sku``,
    ``unknown_usage_type``, ``unknown_unit``, ``foreign_currency``, ``no_price``, ``invalid_price``, ``absurd_price``,
    ``no_region``.
    """
    if not sku.description:
        raise Unfit("malformed_row", f"a SKU without a description: {short(sku.name)}")
    understood = _understand(sku.description)
    if understood is None:
        return None
    kind, of, said = understood
    part = SkuPart(kind, of, _how(said, sku))
    expression = _in_force(sku, now)
    price = _unit_price(sku, expression) * _factor(kind, expression.usage_unit, sku)
    if not _CHEAPEST <= price <= _DEAREST:
        raise Unfit("absurd_price", f"{sku.description}: {price:f} USD an hour")
    regions = tuple(region for region in sku.service_regions if region)
    if not regions:
        raise Unfit("no_region", short(sku.description))
    return Priced(part, price, regions)


@lru_cache(maxsize=2**16)  # the whole catalog: its sentences are the same at every poll
def _understand(description: str) -> tuple[SkuKind, str, How | None] | None:
    """Parsed description: the kind of part, its subject, and the purchase type if given."""
    text = " ".join(description.lower().split())
    text, said = _without_how(text)
    if found := _CORE_OR_RAM.fullmatch(text):
        family = "n1" if "n1 predefined" in text else (found[1] or "").replace(" ", "")
        if not family:  # commitments of N1 name no family; on demand, nothing is sold that way
            if said not in (How.ONE_YEAR, How.THREE_YEARS):
                return None
            family = "n1"
        if family not in families_in_skus():
            return None
        return (SkuKind.RAM if found[2] == "ram" else SkuKind.CORE), family, said
    if part := slice_names().get(_words(text)):
        return SkuKind.SLICE, part, said
    if found := _SLICE.fullmatch(text):
        accelerator = sku_names().get(_words(found[1]))
        return (SkuKind.SLICE, accelerator, said) if accelerator else None
    if found := _SSD.fullmatch(text):
        family = (found[1] or "").replace(" ", "")
        return (SkuKind.SSD, family, said) if family in ("", *families_in_skus()) else None
    accelerator = sku_names().get(_words(text))
    return (SkuKind.GPU, accelerator, said) if accelerator else None


def _without_how(text: str) -> tuple[str, How | None]:
    """The sentence without place, term and purchase type; and the purchase type, if given."""
    said: How | None = None
    if found := _COMMITMENT.match(text):
        text = text[found.end() :]
        term = _TERM.search(text)
        said = _TERMS.get((term[1], term[2][0])) if term else None
        if term is None or said is None:
            return "", None  # a term that was not requested
        text = text[: term.start()]
    if found := _RESERVED_IN_CALENDAR.fullmatch(text):
        text, said = found[1], How.CALENDAR
    text = _PLACE.sub("", text)
    for pattern, how in _AHEAD:
        if found := pattern.search(text):
            text, said = text[: found.start()] + text[found.end() :], how
    for spot in (_ATTACHED_SPOT, _LEADING_SPOT):
        if (found := spot.search(text)) and (spot is _ATTACHED_SPOT or found.start() == 0):
            text = text[: found.start()] + text[found.end() :]
            said = How.SPOT
    return text.strip(), said


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split()) - {"nvidia", "tesla", "gpu", "gpus"}


def _how(said: How | None, sku: Any) -> How:
    """The purchase type, from the sentence and the code. Raises `Unfit` for a contradiction."""
    code = sku.category.usage_type
    filed = _USAGE.get(code)
    if filed is None and (said is None or code.startswith("Commit")):
        raise Unfit("unknown_usage_type", f"{sku.description}: {short(code)}")
    if said is None or said is filed:
        assert filed is not None
        return filed
    if filed in (None, How.ON_DEMAND):  # OnDemand is also the default category
        return said
    raise Unfit("contradictory_sku", f"{sku.description}: filed under {code}")


def _in_force(sku: Any, now: datetime) -> Any:
    """The current price: the latest of the timeline that has begun. If none has, the first: then this machine's clock
    is slow, because the catalog has no future prices unless requested."""
    timeline = sorted(sku.pricing_info, key=lambda info: (info.effective_time.seconds, info.effective_time.nanos))
    if not timeline:
        raise Unfit("no_price", short(sku.description))
    begun = [info for info in timeline if info.effective_time.seconds <= now.timestamp()]
    return (begun[-1] if begun else timeline[0]).pricing_expression


def _unit_price(sku: Any, expression: Any) -> Decimal:
    """USD per unit, exact: of several tiers the first that costs something, because free first units are for a month
    and an account, not for each machine."""
    found = Decimal(0)
    for tier in sorted(expression.tiered_rates, key=lambda tier: tier.start_usage_amount):
        money = tier.unit_price
        if money.currency_code != "USD":
            raise Unfit("foreign_currency", f"{sku.description}: priced in {short(money.currency_code)}, not in USD")
        if money.units < 0 or money.nanos < 0 or money.nanos >= _NANO:
            raise Unfit("invalid_price", f"{sku.description}: {money.units} units and {money.nanos} nanos")
        if not found:
            found = Decimal(money.units) + Decimal(money.nanos) / _NANO
    if not found:
        raise Unfit("no_price", f"{sku.description}: a price of 0")
    return found


def _factor(kind: SkuKind, unit: str, sku: Any) -> Decimal:
    factor = _UNITS[kind].get(unit)
    if factor is None:
        raise Unfit("unknown_unit", f"{sku.description}: per {short(unit)}")
    return factor
