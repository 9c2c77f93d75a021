"""Carbon: what an hour on an offer emits, and when plans look at it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from broker.app.jobs.preview import preview
from broker.app.market.market import conditions, kg_per_hour
from broker.app.wiring import Broker
from broker.core.job.jobs import Constraints, Job, MachineRequest, Work
from broker.core.market.offers import CapacityType, Offer
from broker.core.policy.policy import Action, ActionKind, Facts
from broker.core.values.money import Money
from broker.placement.planner import make_plan
from broker.placement.pricing.conditions import Conditions
from broker.reconciler.admission.admission import denials
from policies.loader import load
from tests.actors import ANN

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
OFFER = Offer(
    provider="aws", region="us-east-1", zone=None, instance_type="p5", accelerator="H100", count=8,
    capacity_type=CapacityType.ON_DEMAND, price=Money.usd(30), as_of=NOW, source="api", engine="local",
)  # fmt: skip
POLICY = """\
version: 1
policy: green
budgets: [{name: month, amount: "$5,000", period: month}]
guardrails: [{name: carbon, max_kg_co2e: 10}]
"""


def test_an_hour_of_eight_h100_at_the_grid_of_the_place() -> None:
    watts = 700 * (0.15 + 0.7 * 0.85)
    assert kg_per_hour(OFFER) == pytest.approx(8 * watts / 1000 * 1.15 * 0.39625)
    clean = kg_per_hour(replace(OFFER, region="eu-north-1"))
    assert clean == pytest.approx(8 * watts / 1000 * 1.15 * 0.02471)


def test_a_place_nobody_knows_has_the_worlds_grid_and_no_gpu_no_emissions() -> None:
    here = kg_per_hour(replace(OFFER, provider="owned", region="local", count=1))
    assert here == pytest.approx(700 * (0.15 + 0.7 * 0.85) / 1000 * 1.58 * 0.481)
    assert kg_per_hour(replace(OFFER, accelerator=None, count=0)) == 0


def test_it_is_looked_at_where_a_policy_caps_it_or_it_ranks(broker: Broker) -> None:
    assert conditions(broker, set()).carbon is None
    assert conditions(broker, set(), by_carbon=True).carbon is kg_per_hour
    assert conditions(broker, set(), load({"green.yaml": POLICY})).carbon is kg_per_hour


@pytest.mark.parametrize(("hours", "regions"), [(2, {"us-east-1", "eu-north-1"}), (20, {"eu-north-1"})])
def test_a_long_job_may_run_only_where_it_is_clean(hours: int, regions: set[str]) -> None:
    policy = load({"green.yaml": POLICY})
    job = Job(
        name="j",
        run="x",
        resources=(MachineRequest(accelerator="H100", count=8),),
        work=Work(duration=timedelta(hours=hours)),
    )
    deny = denials(policy, Action(ActionKind.LAUNCH, job, "ann", window=(NOW, NOW + timedelta(days=1))), Facts(NOW))
    plan = make_plan(
        job,
        [OFFER, replace(OFFER, region="eu-north-1")],
        now=NOW,
        submitted_at=NOW,
        conditions=Conditions(engines={"local": frozenset()}, carbon=kg_per_hour),
        deny=lambda placement: None if (said := deny(placement)) is None or "CO2e" not in said.message else said,
    )
    assert {placement.offer.region for placement in plan.placements} == regions
    assert all("kg CO2e" in rejection.detail for rejection in plan.rejections)


def test_a_plan_ranked_by_carbon(broker: Broker) -> None:
    job = Job(
        name="j",
        run="x",
        resources=(MachineRequest(accelerator="L4", count=1), MachineRequest(accelerator="H100", count=1)),
        work=Work(duration=timedelta(hours=2), accelerator="L4", count=1),
        constraints=Constraints(providers=("sandbox",)),
    )
    plain, green = preview(broker, job, by=ANN).plan, preview(broker, job, by=ANN, by_carbon=True).plan
    assert {p.kg_co2e for p in plain.placements} == {None}
    emitted = [p.kg_co2e for p in green.placements]
    assert emitted == sorted(emitted, key=lambda kg: kg or 0.0)
    assert {p.offer.id for p in plain.placements} == {p.offer.id for p in green.placements}
