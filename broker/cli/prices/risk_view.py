"""Interruption risk of offers as a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.market.offer_rows import ListedOffer
from broker.cli.prices import offer_view
from broker.cli.render import formats
from broker.cli.render.tables import Column, fitted
from broker.core.market.offers import CapacityType
from broker.placement.pricing.hazard import HazardBasis, ObservedTime, Risk, Risks

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.market.market import OfferListing

_COLUMNS = (
    Column("location", folds=True),
    Column("machine type", 4, folds=True),
    Column("GPU"),
    Column("purchase type"),
    Column("$/GPU-h", 3, align="right"),
    Column("interruptions/h", align="right"),
    Column("mean lifetime", 1, align="right"),
    Column("left after 3 h", 5, align="right"),
    Column("returns in", 2, align="right"),
    Column("estimated from", folds=True),
    Column("note"),
)
_BASIS = {HazardBasis.FAMILY: "similar pools", HazardBasis.PROVIDER: "the provider", HazardBasis.ASSUMED: "assumed"}
_LONG = 100 * 365 * 24.0  # hours; a longer lifetime is shown as unknown


def table(
    console: Console, shown: Sequence[ListedOffer], matching: int, found: OfferListing, risks: Risks
) -> list[RenderableType]:
    """The table, the meaning of its columns, and the footer."""
    parts: list[RenderableType] = []
    if shown:
        told = (
            "interruptions/h: per machine; left after 3 h: mean remaining lifetime of a machine that has run for 3 h; "
            "estimated from: interruptions in the machine-hours of the last three weeks, recent hours weighted more"
        )
        parts += fitted(console, _COLUMNS, [_cells(row, risks.of(row.offer)) for row in shown])
        parts.append(Text(told, style="dim"))
    return [*parts, *offer_view.footer(len(shown), matching, "offers", found)]


def _cells(row: ListedOffer, risk: Risk) -> list[str | Text]:
    offer = row.offer
    comes_and_goes = offer.capacity_type is CapacityType.SPOT
    return [
        f"{offer.provider}/{offer.zone or offer.region}",
        offer.instance_type,
        offer.machine,
        formats.purchase_type(offer.capacity_type),
        formats.rate(row.per_gpu),
        "never" if not risk.interruptions_per_hour else f"{risk.interruptions_per_hour:.2g}",
        _life(risk.mean_life),
        _life(risk.life_left(3.0)),
        formats.length(timedelta(hours=risk.time_to_return)) if comes_and_goes else formats.NOTHING,
        _estimated_from(risk),
        offer_view.note(row),
    ]


def _life(hours: float) -> str:
    return formats.NOTHING if hours > _LONG else formats.length(timedelta(hours=hours))


def _estimated_from(risk: Risk) -> str:
    if risk.basis is HazardBasis.OWN:
        return _seen(risk.own)
    if risk.basis is HazardBasis.FAMILY:
        return f"{_BASIS[risk.basis]}: {_seen(risk.family)}"
    return _BASIS[risk.basis]


def _seen(seen: ObservedTime) -> str:
    return f"{seen.losses:,} in {seen.hours:,.0f} h"
