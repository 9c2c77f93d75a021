"""Offers with their interruption risk, as results."""

from __future__ import annotations

from datetime import timedelta
from math import isfinite
from typing import Self

from pydantic import Field

from broker.app.results.offers import OfferCounts, OfferResult
from broker.app.results.values import Figure, Result, Seconds
from broker.placement.pricing.hazard import EDGES, HazardBasis, Risk


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
    ``left_after_3_hours``: the mean further life of a machine that has run for three hours, null likewise;
    ``time_to_return``: how long a lost pool stays away."""

    interruptions_per_hour: Figure
    mean_life: Seconds | None
    left_after_3_hours: Seconds | None
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
            left_after_3_hours=timedelta(hours=left) if isfinite(left := risk.life_left(3.0)) else None,
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


class OfferRiskList(OfferCounts):
    """Offers with their risk."""

    offers: list[OfferWithRisk]
