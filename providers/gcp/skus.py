"""Google's price catalog (services.skus.list of Compute Engine), and machines priced part by part from it.

A machine costs cores × core SKU + GiB × memory SKU + GPUs × GPU SKU + GiB of local SSD × SSD SKU, or GPUs × slice SKU
if Google sells the whole machine by the slice. A machine with an unpriced part is skipped, because its price would be
too low. Sums are exact; only the total is rounded, to the micro-dollar.

A SKU is the priced part of a machine, its purchase type, its regions, and the unit.
It describes itself in a sentence ("Nvidia L4 GPU attached to Spot Preemptible VMs running in Americas") and has its
purchase type in a code (``usageType``). Neither is reliable alone: a "Spot Preemptible A4 …" is filed under OnDemand.
So both are read; the more specific one wins, and contradictions are skipped. The whole sentence must be understood:
"GPU attached to Sole Tenancy VMs", "Reserved …", "… Custom …" and "… Virtual Workstation" are other prices, many of
them 0. Dynamic Workload Scheduler's prices are filed under OnDemand: "DWS Defined Duration" and "DWS Flex Start" are
flex start, "DWS Calendar Mode …" and "Reserved … in Calendar Mode" are calendar mode.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Any

from broker.core.market.offers import SkippedRow
from broker.core.values.money import Money
from providers.gcp.accelerators import families_in_skus, sku_names, slice_names
from providers.gcp.calls import GcpCaller, ListMethod
from providers.gcp.machines import GcpMachine
from providers.rows import RowRejected, price, short

HOURS_A_MONTH = 730  # by Google's definition: "Pricing", local SSDs
_NANO = Decimal(1_000_000_000)
_GIB_IN_GB = Decimal(2**30) / Decimal(10**9)
# The plausible range of the price of one part, USD per hour: a GiB of memory or of a disk at the bottom, a rack's share
# at the top.
_MIN_PRICE, _MAX_PRICE = Decimal("0.000001"), Decimal(1000)


class PurchaseType(StrEnum):
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
    how: PurchaseType

    def __str__(self) -> str:
        return f"{self.kind} of {self.of}, {self.how}" if self.of else f"{self.kind}, {self.how}"


@dataclass(frozen=True, slots=True)
class PartPrice:
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
    (re.compile(r"\s+attached to dws defined duration vms?\b"), PurchaseType.FLEX_START),
    (re.compile(r"^dws (?:defined duration|flex[- ]start)\s+"), PurchaseType.FLEX_START),
    (re.compile(r"^dws calendar mode\s+"), PurchaseType.CALENDAR),
)
_RESERVED_IN_CALENDAR = re.compile(r"reserved (.+) in calendar mode")
_FAMILY = r"([a-z]\d+[a-z]?(?: ?(?:plus|mega|ultra|high|edge))?)"
_CORE_OR_RAM = re.compile(rf"(?:(?:{_FAMILY}|n1 predefined) ?(?:instance )?)?(core|cpu|ram)")
_SLICE = re.compile(r"(?:a\d+[a-z]? )?(.+?) \(1 gpu slice\)")
_SSD = re.compile(rf"ssd backed local storage|local ssd|{_FAMILY} (?:instance )?local ssd")
_TERMS = {
    ("1", "y"): PurchaseType.ONE_YEAR,
    ("12", "m"): PurchaseType.ONE_YEAR,
    ("3", "y"): PurchaseType.THREE_YEARS,
    ("36", "m"): PurchaseType.THREE_YEARS,
}
_USAGE = {
    "OnDemand": PurchaseType.ON_DEMAND,
    "Preemptible": PurchaseType.SPOT,
    "Spot": PurchaseType.SPOT,
    "Commit1Yr": PurchaseType.ONE_YEAR,
    "Commit3Yr": PurchaseType.THREE_YEARS,
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


def read_sku(sku: Any, now: datetime) -> PartPrice | None:
    """The part that a SKU (protobuf) prices; None for what is not a part of a machine with accelerators.

    Raises `RowRejected` for a part whose price cannot be used: ``malformed_row``, ``contradictory_sku``,
    ``unknown_usage_type``, ``unknown_unit``, ``foreign_currency``, ``no_price``, ``invalid_price``, ``absurd_price``,
    ``no_region``.
    """
    if not sku.description:
        raise RowRejected("malformed_row", f"a SKU without a description: {short(sku.name)}")
    parsed = _parse_description(sku.description)
    if parsed is None:
        return None
    kind, subject, purchase = parsed
    part = SkuPart(kind, subject, _purchase_type(purchase, sku))
    expression = _current_price(sku, now)
    price = _unit_price(sku, expression) * _factor(kind, expression.usage_unit, sku)
    if not _MIN_PRICE <= price <= _MAX_PRICE:
        raise RowRejected("absurd_price", f"{sku.description}: {price:f} USD an hour")
    regions = tuple(region for region in sku.service_regions if region)
    if not regions:
        raise RowRejected("no_region", short(sku.description))
    return PartPrice(part, price, regions)


@lru_cache(maxsize=2**16)  # the whole catalog: its sentences are the same at every poll
def _parse_description(description: str) -> tuple[SkuKind, str, PurchaseType | None] | None:
    """Parsed description: the kind of part, its subject, and the purchase type if given."""
    text = " ".join(description.lower().split())
    text, purchase = _extract_purchase(text)
    if match := _CORE_OR_RAM.fullmatch(text):
        family = "n1" if "n1 predefined" in text else (match[1] or "").replace(" ", "")
        if not family:  # commitments of N1 name no family; on demand, nothing is sold that way
            if purchase not in (PurchaseType.ONE_YEAR, PurchaseType.THREE_YEARS):
                return None
            family = "n1"
        if family not in families_in_skus():
            return None
        return (SkuKind.RAM if match[2] == "ram" else SkuKind.CORE), family, purchase
    if part := slice_names().get(_words(text)):
        return SkuKind.SLICE, part, purchase
    if match := _SLICE.fullmatch(text):
        accelerator = sku_names().get(_words(match[1]))
        return (SkuKind.SLICE, accelerator, purchase) if accelerator else None
    if match := _SSD.fullmatch(text):
        family = (match[1] or "").replace(" ", "")
        return (SkuKind.SSD, family, purchase) if family in ("", *families_in_skus()) else None
    accelerator = sku_names().get(_words(text))
    return (SkuKind.GPU, accelerator, purchase) if accelerator else None


def _extract_purchase(text: str) -> tuple[str, PurchaseType | None]:
    """The sentence without place, term and purchase type; and the purchase type, if given."""
    purchase: PurchaseType | None = None
    if match := _COMMITMENT.match(text):
        text = text[match.end() :]
        term = _TERM.search(text)
        purchase = _TERMS.get((term[1], term[2][0])) if term else None
        if term is None or purchase is None:
            return "", None  # a term that was not requested
        text = text[: term.start()]
    if match := _RESERVED_IN_CALENDAR.fullmatch(text):
        text, purchase = match[1], PurchaseType.CALENDAR
    text = _PLACE.sub("", text)
    for pattern, dws_type in _AHEAD:
        if match := pattern.search(text):
            text, purchase = text[: match.start()] + text[match.end() :], dws_type
    for spot in (_ATTACHED_SPOT, _LEADING_SPOT):
        if (match := spot.search(text)) and (spot is _ATTACHED_SPOT or match.start() == 0):
            text = text[: match.start()] + text[match.end() :]
            purchase = PurchaseType.SPOT
    return text.strip(), purchase


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split()) - {"nvidia", "tesla", "gpu", "gpus"}


def _purchase_type(purchase: PurchaseType | None, sku: Any) -> PurchaseType:
    """The purchase type, from the sentence and the code. Raises `RowRejected` for a contradiction."""
    code = sku.category.usage_type
    code_purchase = _USAGE.get(code)
    if code_purchase is None and (purchase is None or code.startswith("Commit")):
        raise RowRejected("unknown_usage_type", f"{sku.description}: {short(code)}")
    if purchase is None or purchase is code_purchase:
        assert code_purchase is not None
        return code_purchase
    if code_purchase in (None, PurchaseType.ON_DEMAND):  # OnDemand is also the default category
        return purchase
    raise RowRejected("contradictory_sku", f"{sku.description}: filed under {code}")


def _current_price(sku: Any, now: datetime) -> Any:
    """The current price: the latest of the timeline that has begun. If none has, the first: then this machine's clock
    is slow, because the catalog has no future prices unless requested."""
    timeline = sorted(sku.pricing_info, key=lambda info: (info.effective_time.seconds, info.effective_time.nanos))
    if not timeline:
        raise RowRejected("no_price", short(sku.description))
    started = [info for info in timeline if info.effective_time.seconds <= now.timestamp()]
    return (started[-1] if started else timeline[0]).pricing_expression


def _unit_price(sku: Any, expression: Any) -> Decimal:
    """USD per unit, exact: of several tiers the first that costs something, because free first units are for a month
    and an account, not for each machine."""
    price = Decimal(0)
    for tier in sorted(expression.tiered_rates, key=lambda tier: tier.start_usage_amount):
        money = tier.unit_price
        if money.currency_code != "USD":
            raise RowRejected(
                "foreign_currency", f"{sku.description}: priced in {short(money.currency_code)}, not in USD"
            )
        if money.units < 0 or money.nanos < 0 or money.nanos >= _NANO:
            raise RowRejected("invalid_price", f"{sku.description}: {money.units} units and {money.nanos} nanos")
        if not price:
            price = Decimal(money.units) + Decimal(money.nanos) / _NANO
    if not price:
        raise RowRejected("no_price", f"{sku.description}: a price of 0")
    return price


def _factor(kind: SkuKind, unit: str, sku: Any) -> Decimal:
    factor = _UNITS[kind].get(unit)
    if factor is None:
        raise RowRejected("unknown_unit", f"{sku.description}: per {short(unit)}")
    return factor


SOURCE = "gcp-billing-catalogue"

_COMPUTE_ENGINE = "services/6F81-5844-456A"
_SKUS = ListMethod("CloudCatalogClient", "list_skus", "ListSkusResponse", "skus")
_PER_PAGE = 5000


def read_prices(caller: GcpCaller) -> Iterator[PartPrice | SkippedRow]:
    """The prices of all parts, and those that cannot be used. Raises what `GcpCaller.rows` raises."""
    rows = caller.rows(_SKUS, parent=_COMPUTE_ENGINE, currency_code="USD", page_size=_PER_PAGE)
    now: datetime = caller.clock.now()
    for listed_row in rows:
        if isinstance(listed_row, SkippedRow):
            yield listed_row
            continue
        try:
            part_price = read_sku(listed_row.row, now)
        except RowRejected as error:
            yield error.skipped
        else:
            if part_price is not None:
                yield part_price


class PartPrices:
    """The price of each part in each region."""

    def __init__(self, prices: Iterable[PartPrice] = ()) -> None:
        self._prices: dict[tuple[SkuPart, str], tuple[int, Decimal | None]] = {}
        for part_price in prices:
            self.add(part_price)

    def __bool__(self) -> bool:
        return bool(self._prices)

    def add(self, priced: PartPrice) -> None:
        """Of two prices of a part in a region, the one for fewer regions counts, as the exception. Two prices of equal
        rank leave none: the billed one is unknown.
        """
        rank = len(priced.regions)
        for region in priced.regions:
            previous_rank, previous = self._prices.get((priced.part, region), (rank + 1, None))
            if rank < previous_rank:
                self._prices[priced.part, region] = rank, priced.price
            elif rank == previous_rank and previous != priced.price:
                self._prices[priced.part, region] = rank, None

    def price(self, shape: GcpMachine, how: PurchaseType) -> Money:
        """USD per hour of the whole machine, in its region.

        Raises `RowRejected`: ``missing_parts`` with what has no price, ``ambiguous_part`` with what has two,
        ``absurd_price``.
        """
        label = f"{shape.region}: {shape.name} with {shape.accelerator}:{shape.count} {how}"
        slice_part = SkuPart(SkuKind.SLICE, shape.slice_of or shape.accelerator_type, how)
        by_slices = shape.slices or self._has(slice_part, shape.region)
        amounts = {slice_part: Decimal(shape.slices or shape.count)} if by_slices else self._parts(shape, how)
        missing = [str(part) for part in amounts if not self._has(part, shape.region)]
        if missing:
            raise RowRejected("missing_parts", f"{label}: no price of {'; '.join(missing)}")
        total = Decimal(0)
        for part, amount in amounts.items():
            _, unit_price = self._prices[part, shape.region]
            if unit_price is None:
                raise RowRejected("ambiguous_part", f"{label}: two prices of {part}")
            total += amount * unit_price
        return price(total, label)

    def sells(self, shape: GcpMachine, how: PurchaseType) -> bool:
        """Whether the machine's accelerators have a price of that kind in its region."""
        kinds = (SkuKind.SLICE,) if shape.slices else (SkuKind.GPU, SkuKind.SLICE)
        parts = (SkuPart(kind, shape.slice_of or shape.accelerator_type, how) for kind in kinds)
        return any(self._has(part, shape.region) for part in parts)

    def _has(self, part: SkuPart, region: str) -> bool:
        return (part, region) in self._prices

    def _parts(self, shape: GcpMachine, purchase_type: PurchaseType) -> dict[SkuPart, Decimal]:
        family = shape.family.parts
        amounts = {
            SkuPart(SkuKind.CORE, family, purchase_type): Decimal(shape.cpus),
            SkuPart(SkuKind.RAM, family, purchase_type): shape.memory_gib,
            SkuPart(SkuKind.GPU, shape.accelerator_type, purchase_type): Decimal(shape.count),
        }
        if shape.ssd_gib:
            family_disk = SkuPart(SkuKind.SSD, family, purchase_type)
            disks = family_disk if self._has(family_disk, shape.region) else SkuPart(SkuKind.SSD, "", purchase_type)
            amounts[disks] = Decimal(shape.ssd_gib)
        return amounts
