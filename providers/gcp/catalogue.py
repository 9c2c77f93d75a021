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
from providers.gcp.skus import PartPrice, PurchaseType, SkuKind, SkuPart, read_sku
from providers.rows import RowRejected, price

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
