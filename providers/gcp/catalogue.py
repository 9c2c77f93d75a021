"""Google's price catalog (services.skus.list of Compute Engine), and machines priced part by part from it.

A machine costs cores × core SKU + GiB × memory SKU + GPUs × GPU SKU + GiB of local SSD × SSD SKU, or GPUs × slice SKU
if Google sells the whole machine by the slice. A machine with an unpriced part is skipped, because its price would be
too low. Sums are exact; only the total is rounded, to the micro-dollar.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal

from broker.core.market.offers import SkippedRow
from broker.core.values.money import Money
from providers.gcp.calls import GcpCaller, ListMethod
from providers.gcp.machines import GcpMachine
from providers.gcp.skus import How, Priced, SkuKind, SkuPart, read_sku
from providers.rows import Unfit, price

SOURCE = "gcp-billing-catalogue"

_COMPUTE_ENGINE = "services/6F81-5844-456A"
_SKUS = ListMethod("CloudCatalogClient", "list_skus", "ListSkusResponse", "skus")
_PER_PAGE = 5000


def read_prices(asking: GcpCaller) -> Iterator[Priced | SkippedRow]:
    """The prices of all parts, and those that cannot be used. Raises what `GcpCaller.rows` raises."""
    rows = asking.rows(_SKUS, parent=_COMPUTE_ENGINE, currency_code="USD", page_size=_PER_PAGE)
    now: datetime = asking.clock.now()
    for found in rows:
        if isinstance(found, SkippedRow):
            yield found
            continue
        try:
            priced = read_sku(found.row, now)
        except Unfit as error:
            yield error.skipped
        else:
            if priced is not None:
                yield priced


class PartPrices:
    """The price of each part in each region."""

    def __init__(self, prices: Iterable[Priced] = ()) -> None:
        self._prices: dict[tuple[SkuPart, str], tuple[int, Decimal | None]] = {}
        for priced in prices:
            self.add(priced)

    def __bool__(self) -> bool:
        return bool(self._prices)

    def add(self, priced: Priced) -> None:
        """Of two prices of a part in a region, the one for fewer regions counts, as the exception. Two prices of equal
        rank leave none: the billed one is unknown.
        """
        rank = len(priced.regions)
        for region in priced.regions:
            rank_before, before = self._prices.get((priced.part, region), (rank + 1, None))
            if rank < rank_before:
                self._prices[priced.part, region] = rank, priced.price
            elif rank == rank_before and before != priced.price:
                self._prices[priced.part, region] = rank, None

    def price(self, shape: GcpMachine, how: How) -> Money:
        """USD per hour of the whole machine, in its region.

        Raises `Unfit`: ``missing_parts`` with what has no price, ``ambiguous_part`` with what has two,
        ``absurd_price``.
        """
        what = f"{shape.region}: {shape.name} with {shape.accelerator}:{shape.count} {how}"
        sliced = SkuPart(SkuKind.SLICE, shape.slice_of or shape.accelerator_type, how)
        by_slices = shape.slices or self._has(sliced, shape.region)
        needs = {sliced: Decimal(shape.slices or shape.count)} if by_slices else self._parts(shape, how)
        missing = [str(part) for part in needs if not self._has(part, shape.region)]
        if missing:
            raise Unfit("missing_parts", f"{what}: no price of {'; '.join(missing)}")
        total = Decimal(0)
        for part, amount in needs.items():
            _, each = self._prices[part, shape.region]
            if each is None:
                raise Unfit("ambiguous_part", f"{what}: two prices of {part}")
            total += amount * each
        return price(total, what)

    def sells(self, shape: GcpMachine, how: How) -> bool:
        """Whether the machine's accelerators have a price of that kind in its region."""
        kinds = (SkuKind.SLICE,) if shape.slices else (SkuKind.GPU, SkuKind.SLICE)
        parts = (SkuPart(kind, shape.slice_of or shape.accelerator_type, how) for kind in kinds)
        return any(self._has(part, shape.region) for part in parts)

    def _has(self, part: SkuPart, region: str) -> bool:
        return (part, region) in self._prices

    def _parts(self, shape: GcpMachine, how: How) -> dict[SkuPart, Decimal]:
        family = shape.family.parts
        needs = {
            SkuPart(SkuKind.CORE, family, how): Decimal(shape.cpus),
            SkuPart(SkuKind.RAM, family, how): shape.memory_gib,
            SkuPart(SkuKind.GPU, shape.accelerator_type, how): Decimal(shape.count),
        }
        if shape.ssd_gib:
            own = SkuPart(SkuKind.SSD, family, how)
            disks = own if self._has(own, shape.region) else SkuPart(SkuKind.SSD, "", how)
            needs[disks] = Decimal(shape.ssd_gib)
        return needs
