"""Interruption risk of offers as a table."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results.risk import OfferRiskList, OfferWithRisk, RiskEvidence, RiskResult
from broker.cli.prices import offer_view
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listed
from broker.core.market.offers import CapacityType
from broker.placement.pricing.hazard import HazardBasis

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_LONG = timedelta(days=100 * 365)  # a longer lifetime is shown as unknown
_COLUMNS: tuple[ValueColumn[OfferWithRisk], ...] = (
    ValueColumn("location", lambda one: f"{one.provider}/{one.zone or one.region}", folds=True),
    ValueColumn("machine type", lambda one: one.instance_type, 4, folds=True),
    ValueColumn("GPU", lambda one: one.machine),
    ValueColumn("purchase type", lambda one: formats.purchase_type(one.capacity_type)),
    ValueColumn("$/GPU-h", lambda one: formats.rate(one.price_per_gpu_hour), 3, "right"),
    ValueColumn(
        "interruptions/h",
        lambda one: f"{one.risk.interruptions_per_hour:.2g}" if one.risk.interruptions_per_hour else "never",
        align="right",
    ),
    ValueColumn("mean lifetime", lambda one: _life(one.risk.mean_life), 1, "right"),
    ValueColumn("left after 3 h", lambda one: _life(one.risk.left_after_3_hours), 5, "right"),
    ValueColumn(
        "returns in",
        lambda one: (
            formats.length(one.risk.time_to_return) if one.capacity_type is CapacityType.SPOT else formats.NOTHING
        ),
        2,
        "right",
    ),
    ValueColumn("estimated from", lambda one: _estimated_from(one.risk), folds=True),
    ValueColumn("note", offer_view.note),
)


def table(console: Console, found: OfferRiskList) -> Iterator[RenderableType]:
    """The table, the meaning of its columns, and the footer."""
    if found.offers:
        yield from listed(console, _COLUMNS, found.offers)
        yield Text(
            "interruptions/h: per machine; left after 3 h: mean remaining lifetime of a machine that has run for 3 h; "
            "estimated from: interruptions in the machine-hours of the last three weeks, recent hours weighted more",
            style="dim",
        )
    yield from offer_view.footer(found, len(found.offers))


def _life(time: timedelta | None) -> str:
    return formats.NOTHING if time is None or time > _LONG else formats.length(time)


def _estimated_from(risk: RiskResult) -> str:
    def seen(evidence: RiskEvidence) -> str:
        return f"{evidence.losses:,.0f} in {evidence.hours:,.0f} h"

    match risk.basis:
        case HazardBasis.OWN:
            return seen(risk.own)
        case HazardBasis.FAMILY:
            return f"similar pools: {seen(risk.family)}"
        case HazardBasis.PROVIDER:
            return "the provider"
        case HazardBasis.ASSUMED:
            return "assumed"
