"""Recorded capacity that no offer stands for is told beside a plan, at its marginal cost."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from broker.app.jobs.recorded_capacity import unreached
from broker.core.job.jobs import Job, MachineRequest
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind, RecordedHolding

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
YEAR = timedelta(days=365)
CAMPUS = Holding(HoldingKind.OWNED, "A100", 32, "owned", "campus", NOW - YEAR, NOW + YEAR, watts=22_000)
WANTED = Job(name="train", run="x", resources=(MachineRequest(accelerator="A100", count=8),))


def told(holding: Holding, *offers: Offer, job: Job = WANTED) -> list[str]:
    return list(unreached(job, [RecordedHolding(3, holding, NOW, "ann")], offers, NOW))


def test_its_price_is_its_electricity() -> None:
    (note,) = told(CAMPUS)
    assert "32 A100 at owned/campus" in note
    assert "$0.130 of electricity a GPU-hour" in note, "22 kW / 32 × $0.12 × 1.58"
    assert "no further price" in told(replace(CAMPUS, kind=HoldingKind.RESERVATION, watts=0))[0]


@pytest.mark.parametrize(
    "holding",
    [
        replace(CAMPUS, ends=NOW),
        replace(CAMPUS, starts=NOW + timedelta(days=1)),
        replace(CAMPUS, kind=HoldingKind.COMMITMENT),
        replace(CAMPUS, accelerator="H100"),
    ],
)
def test_what_cannot_serve_the_job_is_not_told(holding: Holding) -> None:
    assert told(holding) == []


def test_capacity_that_is_an_offer_is_not_told_again() -> None:
    spot = Offer("aws", "r", "z", "t", "A100", 8, CapacityType.SPOT, Money.usd("1"), NOW, "s", engine="cloud")
    assert told(CAMPUS, spot)
    assert told(CAMPUS, replace(spot, capacity_type=CapacityType.OWNED)) == []
