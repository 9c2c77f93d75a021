"""What the layouts of catalogue files have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.core.money import Money
from broker.core.offers import CapacityType, Offer
from providers.catalogue.fields import Cells
from providers.rows import Unfit, accelerator

# A list price holds for weeks, a spot price for minutes: nobody should buy on a table of spot prices of yesterday.
_SPOT_AGE = timedelta(hours=6)
_LIST_AGE = timedelta(days=7)

# The clouds in which SkyPilot starts machines by the names that its own catalogues have.
SKYPILOT_CLOUDS = ("aws", "azure", "gcp", "oci", "lambda", "runpod", "vast", "nebius")


@dataclass(frozen=True, slots=True)
class About:
    """What holds for every row: whose prices they are, when they held, and what time it is (both UTC)."""

    provider: str
    dated: datetime
    now: datetime


@dataclass(frozen=True, slots=True)
class Layout:
    """``needs``: the columns without which a row says nothing; ``knows``: the others that are read. Upper and lower
    case do not count. ``read``: the offers of one row, and what of it is no offer; raises `Unfit` for a whole row."""

    name: str
    needs: tuple[str, ...]
    knows: tuple[str, ...]
    read: Callable[[Cells, About], Iterator[Offer | Unfit]]


def finer(card: str, *hints: str) -> str:
    """The card, by the more exact name that one of ``hints`` gives it, or a machine type that says ``pcie``: what many
    tables call an H100 may be the PCIe card, which is slower and cheaper than the SXM one of that name."""
    for hint in hints:
        for told in (hint, f"{card}-PCIe" if "pcie" in hint.lower() else ""):
            try:
                found = accelerator(told)
            except Unfit:
                continue
            if found.startswith(f"{card}-"):
                return found
    return card


def offer(
    about: About,
    source: str,
    *,
    region: str,
    zone: str | None,
    instance_type: str,
    accelerator: str | None,
    count: int,
    capacity_type: CapacityType,
    price: Money,
    cpus: float | None,
    memory_gib: float | None,
    engine: str | None,
) -> Offer:
    """An offer as of the file's date, with the age limit of its kind. A zone that is called as its region is none."""
    return Offer(
        provider=about.provider,
        region=region,
        zone=None if zone == region else zone,
        instance_type=instance_type,
        accelerator=accelerator,
        count=count,
        capacity_type=capacity_type,
        price=price,
        as_of=about.dated,
        source=f"csv:{source}",
        cpus=cpus,
        memory_gib=memory_gib,
        engine=engine,
        max_age=_SPOT_AGE if capacity_type is CapacityType.SPOT else _LIST_AGE,
    )
