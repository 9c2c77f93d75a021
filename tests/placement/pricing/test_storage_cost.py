"""What keeping checkpoints costs: the table, the term, and what a plan says of it and of notices."""

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from broker.agent import metadata
from broker.core.job.jobs import CheckpointPlan
from broker.core.values.money import Money
from broker.placement.notes import NOTICE
from broker.placement.planner import make_plan
from broker.placement.pricing.data_cost import MONTH, keeping_rate, keeping_rates
from broker.placement.pricing.estimate import Estimator
from broker.placement.pricing.hazard import interruption_rate
from broker.placement.pricing.run_model import Effort

Make = Any
GB = 1_000_000_000


@pytest.mark.parametrize(
    ("store", "per_gb_month"),
    [
        ("aws/us-east-1", "0.023"),
        ("aws/?", "0.023"),
        ("aws/sa-east-1", "0.0405"),
        ("gcp/us-central1", "0.02"),
        ("gcp/us-east4", "0.023"),
        ("gcp/?", "0.023"),
        ("azure/westus2", "0.0184"),
        ("sandbox/anywhere", "0"),
    ],
)
def test_known_rates(store: str, per_gb_month: str) -> None:
    rate = keeping_rate(store)
    assert rate is not None
    assert rate.per_gb_month == Money.usd(per_gb_month)


def test_of_other_stores_nothing_is_made_up() -> None:
    assert keeping_rate("minio/attic") is None


def test_every_row_is_dated_sourced_and_reachable() -> None:
    patterns = [rate.store for rate in keeping_rates()]
    assert len(set(patterns)) == len(patterns)
    for rate in keeping_rates():
        assert rate.source
        assert date(2024, 1, 1) <= rate.as_of
        assert Money.ZERO <= rate.per_gb_month < Money.usd("0.1")
        sample = rate.store.replace("*", "some-where")
        assert keeping_rate(sample) is rate, "no row before it takes all that it is about"


def kept(make: Make, checkpoint: CheckpointPlan, **work: Any) -> dict[str, Any]:
    job = make.job(checkpoint=checkpoint, **work)
    conditions = replace(make.conditions, keeping=keeping_rate("aws/us-east-1"))
    estimator = Estimator(Effort.of(job, conditions), make.now, interruption_rate)
    placement = estimator.placement(make.offer(), job.resources[0])
    assert placement is not None
    assert placement.expected_cost == sum((term.amount for term in placement.terms), Money.ZERO)
    return {term.name: term for term in placement.terms}


def test_the_newest_ones_are_paid_for_as_long_as_the_job_goes_on(make: Make) -> None:
    """5 of 500 GB at $0.023 per GB and month over some 31 h of 730."""
    plan = CheckpointPlan(every=timedelta(minutes=30), size=500 * GB, keep=5)
    term = kept(make, plan)["keeping checkpoints"]
    hours = 20 + 40 * 1000 / 3600 + 5 / 60
    assert float(term.amount.dollars) == pytest.approx(5 * 500 * 0.023 * hours / 730, rel=1e-4)
    assert term.how == "5 × 500 GB × 31.2 h × $0.023/GB and month"


def test_no_more_are_kept_than_are_made(make: Make) -> None:
    plan = CheckpointPlan(every=timedelta(hours=15), size=500 * GB, keep=5)
    assert kept(make, plan)["keeping checkpoints"].how.startswith("2 × ")


def test_a_fraction_of_a_cent_and_an_unknown_size_are_no_line(make: Make) -> None:
    assert "keeping checkpoints" not in kept(make, CheckpointPlan(every=timedelta(hours=1), size=GB // 10))
    assert "keeping checkpoints" not in kept(make, CheckpointPlan(every=timedelta(hours=1)))


def test_without_a_price_there_is_no_line(make: Make) -> None:
    placement = make.plan([make.offer()], make.job(checkpoint=CheckpointPlan(size=500 * GB))).best
    assert "keeping checkpoints" not in {term.name for term in placement.terms}


def notes(make: Make, offer: Any, size: int) -> str:
    job = make.job(checkpoint=CheckpointPlan(every=timedelta(minutes=30), size=size, keep=3))
    conditions = replace(make.conditions, keeping=keeping_rate("gcp/us-central1"))
    plan = make_plan(job, [offer], now=make.now, submitted_at=make.now, conditions=conditions)
    return "\n".join([*plan.notes, *plan.remarks])


def test_what_stays_behind_is_said_where_it_is_worth_a_word(make: Make) -> None:
    said = notes(make, make.offer(), 100 * GB)
    assert "the last 3 checkpoints (`checkpoint.keep`) stay after the job: $6.00 per month" in said
    assert "jobs prune" not in notes(make, make.offer(), 10 * GB)


def test_a_checkpoint_too_large_for_the_notice_is_a_warning_on_spot(make: Make) -> None:
    """Written and uploaded at 0.5 GB/s each, 40 GB take 160 s of AWS's 120."""
    warning = "takes a machine back 2 min after its notice"
    assert warning in notes(make, make.spot(), 40 * GB)
    assert warning not in notes(make, make.spot(), 20 * GB)
    assert warning not in notes(make, make.offer(), 40 * GB), "on-demand machines are not taken back"


def test_plans_and_agents_reckon_with_the_same_notice() -> None:
    clouds = {"aws": "AWS", "gcp": "Google Cloud", "azure": "Azure"}
    assert {clouds[name]: notice.total_seconds() for name, notice in NOTICE.items()} == metadata.NOTICE


def test_a_month_is_the_clouds() -> None:
    assert timedelta(days=365) / 12 == MONTH
