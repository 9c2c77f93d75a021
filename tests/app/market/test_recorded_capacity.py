"""Recorded capacity that no engine reaches is an offer at its marginal cost, and told beside a plan."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from broker.app.market.recorded_capacity import recorded_offers, unreached_capacity_notes
from broker.core.job.jobs import Job, MachineRequest
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.money import Money
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.reserve.holdings import Holding, HoldingKind, RecordedHolding
from broker.placement.planner import make_plan
from broker.placement.pricing.conditions import Conditions

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
YEAR = timedelta(days=365)
CAMPUS = Holding(HoldingKind.OWNED, "A100", 32, "owned", "campus", NOW - YEAR, NOW + YEAR, watts=22_000)
WANTED = Job(name="train", run="x", resources=(MachineRequest(accelerator="A100", count=8),))


def told(holding: Holding, *offers: Offer, job: Job = WANTED) -> list[str]:
    return list(unreached_capacity_notes(job, [RecordedHolding(3, holding, NOW, "ann")], offers, NOW, DEFAULTS))


def test_its_price_is_its_electricity() -> None:
    (note,) = told(CAMPUS)
    assert "32 A100 at owned/campus" in note
    assert "$0.130 of electricity a GPU-hour ($0.12 a kWh, PUE 1.58)" in note, "22 kW / 32 × $0.12 × 1.58"
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


def offered(holding: Holding, *offers: Offer, assumptions: Assumptions = DEFAULTS) -> list[Offer]:
    return list(recorded_offers([RecordedHolding(3, holding, NOW, "ann")], offers, NOW, assumptions))


def test_it_is_an_offer_of_whole_machines_at_the_marginal_price() -> None:
    (owned,) = offered(CAMPUS)
    assert (owned.count, owned.slots, owned.capacity_type) == (8, 4, CapacityType.OWNED)
    assert float(owned.price.dollars) == pytest.approx(22 / 4 * 0.12 * 1.58) if owned.price else False
    (cheap,) = offered(CAMPUS, assumptions=replace(DEFAULTS, kwh_usd=0.31, pue=1.2))
    assert cheap.price == Money.usd("2.046"), "5.5 kW at the site's own $0.31 and PUE 1.2"
    (reserved,) = offered(replace(CAMPUS, kind=HoldingKind.RESERVATION, gpus=12))
    assert (reserved.count, reserved.slots, reserved.price) == (6, 2, Money.ZERO)


def test_a_list_price_of_a_commitment_is_nobodys_capacity() -> None:
    listed = Offer("gcp", "r", "z", "t", "A100", 8, CapacityType.RESERVED, Money.usd("9"), NOW, "s", 12, engine="cloud")
    assert offered(CAMPUS, listed)
    assert told(CAMPUS, listed)


def test_where_an_engine_reaches_it_jobs_start_there_first() -> None:
    """Slurm's own offer stands for the machines: there is no second one, and it is preferred to what is rented."""
    slurm = Offer(
        "slurm", "campus", None, "gpu", "A100", 8, CapacityType.OWNED, Money.usd("1.04"), NOW, "slurm", engine="slurm",
        slots=4,
    )  # fmt: skip
    rented = replace(slurm, provider="aws", capacity_type=CapacityType.ON_DEMAND, price=Money.usd("20"))
    assert offered(CAMPUS, slurm, rented) == []
    conditions = Conditions(engines={"slurm": WANTED.needs})
    there = make_plan(WANTED, [rented, slurm], now=NOW, submitted_at=NOW, conditions=conditions)
    assert there.placements[0].offer == slurm
    away = make_plan(WANTED, [rented, *offered(CAMPUS)], now=NOW, submitted_at=NOW, conditions=conditions)
    assert [placement.offer for placement in away.placements] == [rented]
    assert "#3 of `gpubroker capacity list` is out of reach" in str(away.rejections)
