"""Ranking by emissions, and the figures a guardrail judges by."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.core.job.jobs import Job, MachineRequest, Work
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.money import Money
from broker.placement.planner import make_plan
from broker.placement.pricing.conditions import Conditions

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
KG = {"dirty": 4.0, "clean": 0.1, "middling": 1.0}


def offer(region: str, price: str) -> Offer:
    return Offer(
        provider="aws", region=region, zone=None, instance_type="p5", accelerator="H100", count=8,
        capacity_type=CapacityType.ON_DEMAND, price=Money.usd(price), as_of=NOW, source="api", engine="local",
    )  # fmt: skip


OFFERS = [offer("dirty", "20"), offer("clean", "30"), offer("middling", "25"), offer("unknown", "10")]
CONDITIONS = Conditions(engines={"local": frozenset({"several_nodes"})}, carbon=lambda o: KG.get(o.region))


def plan(conditions: Conditions, **changes: Any) -> list[Any]:
    job = Job(**{"name": "j", "run": "x", "resources": (MachineRequest(accelerator="H100", count=8),)} | changes)
    return list(make_plan(job, OFFERS, now=NOW, submitted_at=NOW, conditions=conditions).placements)


@pytest.mark.parametrize("work", [None, Work(duration=timedelta(hours=10), accelerator="H100", count=8)])
def test_ranked_by_carbon_the_cleanest_comes_first_and_the_unknown_last(work: Work | None) -> None:
    by_cost = [p.offer.region for p in plan(CONDITIONS, work=work)]
    by_carbon = [p.offer.region for p in plan(replace(CONDITIONS, by_carbon=True), work=work)]
    assert by_cost == ["unknown", "dirty", "middling", "clean"]
    assert by_carbon == ["clean", "middling", "dirty", "unknown"]


def test_all_machines_emit_for_as_long_as_the_job_runs() -> None:
    work = Work(duration=timedelta(hours=10), accelerator="H100", count=8)
    (first, *_) = plan(replace(CONDITIONS, by_carbon=True), work=work, num_nodes=2)
    assert first.kg_co2e_per_hour == pytest.approx(0.2)
    assert first.kg_co2e == pytest.approx(0.2 * (first.duration / timedelta(hours=1)))


def test_nobody_asked_nothing_is_told() -> None:
    assert {p.kg_co2e_per_hour for p in plan(replace(CONDITIONS, carbon=None))} == {None}
