"""Offers and jobs to plan with. Everything not named is such that the offer serves the job."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.core.job.jobs import CheckpointPlan, Job, MachineRequest, Work
from broker.core.job.placements import Plan
from broker.core.market.offers import Availability, CapacityType, Interconnect, Offer
from broker.core.values.money import Money
from broker.placement.planner import make_plan
from broker.placement.pricing.conditions import Conditions

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ENGINE = "cloud"


class Make:
    """Makes offers, jobs and plans."""

    now = NOW
    conditions = Conditions(engines={ENGINE: frozenset({"several_nodes"})})

    def offer(self, price: str | None = "10", **changed: Any) -> Offer:
        fields: dict[str, Any] = {
            "provider": "aws",
            "region": "us-east-1",
            "zone": "us-east-1a",
            "instance_type": "p5.48xlarge",
            "accelerator": "H100",
            "count": 8,
            "capacity_type": CapacityType.ON_DEMAND,
            "price": None if price is None else Money.usd(price),
            "as_of": NOW - timedelta(minutes=5),
            "source": "test",
            "cpus": 192.0,
            "memory_gib": 2048.0,
            "interconnect": Interconnect.NVLINK,
            "availability": Availability.AVAILABLE,
            "engine": ENGINE,
            "max_age": timedelta(hours=1),
            "interruption_rate": 0.0,
        }
        return Offer(**(fields | changed))

    def spot(self, price: str | None = "4", rate: float = 0.1, **changed: Any) -> Offer:
        return self.offer(price, **({"capacity_type": CapacityType.SPOT, "interruption_rate": rate} | changed))

    def job(self, **changed: Any) -> Job:
        fields: dict[str, Any] = {
            "name": "train",
            "run": "python train.py",
            "resources": (MachineRequest(accelerator="H100", count=8),),
            "work": Work(duration=timedelta(hours=20), accelerator="H100", count=8),
            "checkpoint": CheckpointPlan(
                every=timedelta(minutes=30), size=10_000_000_000, restart=timedelta(minutes=3)
            ),
            "max_duration": timedelta(hours=100),
        }
        return Job(**(fields | changed))

    def plan(self, offers: list[Offer], job: Job | None = None, **how: Any) -> Plan:
        arguments: dict[str, Any] = {"now": NOW, "submitted_at": NOW, "conditions": self.conditions}
        return make_plan(job or self.job(), offers, **(arguments | how))


@pytest.fixture(scope="session")
def make() -> Make:
    return Make()
