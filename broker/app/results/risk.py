"""Offers with their interruption risk, and offers in groups, as results."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from math import isfinite
from typing import Self

from pydantic import Field

from broker.app.market.market import OfferListing
from broker.app.market.offer_rows import ListedOffer
from broker.app.results.offers import OfferResult
from broker.app.results.values import Figure, Moment, Result, Seconds
from broker.placement.pricing.hazard import EDGES, HazardBasis, Risk, Risks


class RiskBand(Result):
    """Interruptions per hour of machines from that age on."""

    start: Seconds = Field(validation_alias="from", serialization_alias="from")
    interruptions_per_hour: Figure


class RiskEvidence(Result):
    """How much was seen: hours of all machines, and losses."""

    hours: Figure
    losses: Figure


class RiskResult(Result):
    """The expected interruptions of one machine of a pool. ``mean_life``: null for capacity that is never interrupted;
    ``time_to_return``: how long a lost pool stays away."""

    interruptions_per_hour: Figure
    mean_life: Seconds | None
    time_to_return: Seconds
    by_age: list[RiskBand]
    basis: HazardBasis
    prior_per_hour: Figure
    own: RiskEvidence
    family: RiskEvidence

    @classmethod
    def of(cls, risk: Risk) -> Self:
        return cls.from_parts(
            risk,
            mean_life=timedelta(hours=risk.mean_life) if isfinite(risk.mean_life) else None,
            time_to_return=timedelta(hours=risk.time_to_return),
            by_age=[
                RiskBand(start=timedelta(hours=edge), interruptions_per_hour=rate)
                for edge, rate in zip(EDGES, risk.by_age, strict=True)
            ],
            prior_per_hour=risk.prior,
        )


class OfferWithRisk(OfferResult):
    """An offer with its interruption risk."""

    risk: RiskResult


class OfferRiskList(Result):
    """Offers with their risk. ``matching``: how many there are, where ``offers`` has only the first; ``total``: how
    many are known."""

    as_of: Moment
    matching: int
    total: int
    offers: list[OfferWithRisk]

    @classmethod
    def of(cls, matching: Sequence[ListedOffer], found: OfferListing, limit: int | None, risks: Risks) -> Self:
        return cls(
            as_of=found.now,
            matching=len(matching),
            total=found.total,
            offers=[OfferWithRisk.of(row, risk=RiskResult.of(risks.of(row.offer))) for row in matching[:limit]],
        )
