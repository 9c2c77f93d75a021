"""Unit metrics of a store: runs, utilisation from run folders, and what programs reported."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.app.billing.review import review
from broker.app.billing.units import unit_metrics_report
from broker.app.wiring import Broker
from broker.cli.billing import report_view
from broker.core.errors import InvalidInput, UnknownName
from broker.core.events import events as ev
from broker.core.events.agent_events import MetricsReported, Reading, ResourcesUsed
from broker.core.events.outcomes import Cause, JobState
from broker.core.job.jobs import CheckpointPlan, Job, Workload
from broker.core.market.accelerators import lookup
from broker.core.market.offers import CapacityType
from broker.core.policy.policy import Action, ActionKind, SpotShare
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Tags
from broker.reconciler.admission.facts import facts_of
from tests.actors import with_clock
from tests.focus_ledger import spent
from tests.past import finished, started

HOUR = timedelta(hours=1)
OCTOBER, NOVEMBER = datetime(2026, 10, 10, tzinfo=UTC), datetime(2026, 11, 10, tzinfo=UTC)


@pytest.fixture
def broker(new_broker: Callable[[], Broker]) -> Broker:
    """In October two jobs of $18.33, 110 minutes on eight GPUs, of team-0 (measured) and team-1; now it is the 20th
    of November."""
    made = with_clock(new_broker(), ManualClock(NOVEMBER + timedelta(days=10)))
    for number, told in enumerate([[use(gpu=60.0, gpu_idle=100 / 3, gpu_memory=16.0, cpu=40.0)], []]):
        finished(made.store, number, OCTOBER, told)
    return made


def use(**figures: float) -> ResourcesUsed:
    readings = {name: Reading(samples=3, mean=figure, peak=figure) for name, figure in figures.items()}
    return ResourcesUsed(figures=readings)


def used(broker: Broker, job_id: str, at: datetime, **figures: float) -> None:
    with broker.store.writing() as tx:
        tx.append(job_id, [(1, use(**figures))], at)


def told(broker: Broker, job_id: str, at: datetime, tokens: float) -> None:
    with broker.store.writing() as tx:
        tx.append(job_id, [(1, MetricsReported(metrics={"tokens": tokens}))], at)


def test_the_share_of_spot_that_a_rule_demands_is_that_of_the_report(broker: Broker) -> None:
    """Only what could run on spot counts: not jobs without checkpoints, nor those that a rule keeps off spot."""
    saves: dict[str, Any] = {"checkpoint": CheckpointPlan(every=HOUR)}
    spot = CapacityType.SPOT
    for number, on in ((5, spot), (6, CapacityType.ON_DEMAND), (7, spot)):
        finished(broker.store, number, NOVEMBER, on=on, **(saves if number < 7 else {}))
    finished(broker.store, 8, NOVEMBER, on=CapacityType.ON_DEMAND, **saves)
    rules = "[{name: lean, spot: {min_share: 60%}}, {name: calm, spot: {use: forbidden}, scope: {team: team-3}}]"
    broker.store.activate_policy({"t.yaml": f"version: 1\npolicy: t\nguardrails: {rules}\n"}, by="ann")
    found, each = unit_metrics_report(broker, "2026-11"), 8 * 11 / 6
    assert [found.eligible_hours, found.eligible_spot_hours] == pytest.approx([2 * each, each])
    shares = []
    for team in ("team-0", "team-3"):
        action = Action(ActionKind.LAUNCH, Job(name="a", run="b", team=team, **saves), "ann")
        with broker.store.reading() as look:
            shares.append(facts_of(look, broker.policy(), broker.clock.now())(action).spot_shares)
    assert shares == [{"lean": SpotShare(found.eligible_spot_hours, found.eligible_hours)}, {}]
    assert "50 % of 29.3 rented GPU-hours that could, target: over 70 %, missed" in "\n".join(
        report_view.unit_lines(found)
    )
    reviewed = review(broker, "2026-11").after
    assert (reviewed.eligible_hours, reviewed.eligible_spot_hours) == (found.eligible_hours, found.eligible_spot_hours)


def test_a_month_of_two_runs(broker: Broker) -> None:
    found = unit_metrics_report(broker, "2026-10")
    each = Money.usd("18.333333")
    assert (found.runs, found.per_run) == (2, each)
    assert (found.spent, found.bought, found.rented) == (each * 2, Money.ZERO, each * 2)
    assert found.gpu_hours == pytest.approx(2 * 8 * 11 / 6)
    assert found.measured_hours == pytest.approx(8 * 11 / 6)
    assert found.busy_hours == pytest.approx(0.6 * 8 * 11 / 6)
    assert found.idle_hours == pytest.approx(8 * 11 / 6 / 3)
    assert found.idle_cost == Money.usd("6.111111")
    assert found.use.inference is None
    assert (found.use.training, found.use.cpu) == pytest.approx((0.6, 0.4))
    assert found.use.gpu_memory == pytest.approx(16 / lookup("H100").memory_gib)
    text = "\n".join(report_view.unit_lines(found))
    assert "60 %, target: over 70 %, missed" in text
    assert "33 %, target: below 5 %, missed" in text
    assert [(one.month, one.runs, one.per_run) for one in found.trend] == [("2026-10", 2, each)]
    assert found.per_million_tokens is None
    of_team = unit_metrics_report(broker, "2026-10", "team-1")
    assert (of_team.runs, of_team.spent, of_team.measured_hours) == (1, each, 0)
    assert unit_metrics_report(broker, "month").per_run is None


def test_tokens_of_a_job_over_a_month_end_are_those_of_the_month(broker: Broker) -> None:
    begins = datetime(2026, 10, 31, 23, tzinfo=UTC)
    job_id = started(broker.store, 2, begins)
    told(broker, job_id, begins + HOUR / 2, 1e6)
    told(broker, job_id, begins + 2 * HOUR, 5e6)
    assert unit_metrics_report(broker, "2026-10").tokens == 1e6
    assert unit_metrics_report(broker, "2026-11").tokens == 4e6
    assert unit_metrics_report(broker, "2026-11").runs == 0


def test_only_what_has_begun_can_be_asked_about(broker: Broker) -> None:
    with pytest.raises(InvalidInput, match="2026-12 has not begun"):
        unit_metrics_report(broker, "2026-12")
    with pytest.raises(UnknownName):
        unit_metrics_report(broker, "yesterday")


def test_what_a_better_result_costs_is_that_of_the_cheapest_and_the_dearest_run(broker: Broker) -> None:
    for number, loss, cost in ((7, 0.5, "10"), (42, 0.25, "15"), (77, 0.3, "12"), (1, 0.1, "90")):
        job_id = started(broker.store, number, OCTOBER)
        tags = Tags(job_id, f"user-{number}", f"team-{number % 5}", attempt=1)
        gone = OCTOBER + 2 * HOUR
        with broker.store.writing() as tx:
            tx.append(job_id, [(1, MetricsReported(metrics={"loss": loss}))], OCTOBER + HOUR)
            tx.append(job_id, [(1, ev.AttemptEnded(cause=Cause.COMPLETED)), (1, ev.MachineGone(gone_at=gone))], gone)
            tx.append(job_id, [(None, ev.JobEnded(state=JobState.SUCCEEDED))], gone)
            tx.post(spent(1, cost, OCTOBER, gone, gone, tags=tags))
    metrics = unit_metrics_report(broker, "2026-10", metric="loss")
    assert [month.quality for month in metrics.trend] == [metrics.quality]
    assert "$20.00 a difference of 1, team-2 / project-0" in "\n".join(report_view.unit_lines(metrics))
    (found,) = metrics.quality
    assert (found.owner, found.cheapest.job_id, found.dearest.job_id) == (
        "team-2 / project-0", "open-07-tmplt", "open-42-tmplt",
    )  # fmt: skip
    assert found.per_point == Money.usd("20")
    assert unit_metrics_report(broker, "2026-10").quality == ()


def test_policies_set_their_own_targets(broker: Broker) -> None:
    text = "version: 1\npolicy: t\nassumptions: {training_utilization: 0.55, spot_share: 0.4}\n"
    broker.store.activate_policy({"t.yaml": text}, by="ann")
    found = unit_metrics_report(broker, "2026-10")
    assert found.targets is not None
    assert (found.targets.training, found.targets.spot, found.targets.idle) == (0.55, 0.4, 0.05)
    assert "60 %, target: over 55 %\n" in "\n".join(report_view.unit_lines(found))


def test_samples_count_in_the_month_in_which_they_were_told(broker: Broker) -> None:
    begins = datetime(2026, 10, 31, 23, tzinfo=UTC)
    job_id = started(broker.store, 2, begins)
    used(broker, job_id, begins + HOUR / 2, gpu=20.0, gpu_idle=80.0)
    used(broker, job_id, begins + 2 * HOUR, gpu=90.0, gpu_idle=0.0)
    used(broker, job_id, begins + 3 * HOUR, gpu=70.0, gpu_idle=0.0)
    shares = [unit_metrics_report(broker, month, "team-2").use for month in ("2026-10", "2026-11")]
    assert [(one.every, one.idle) for one in shares] == [pytest.approx((0.2, 0.8)), pytest.approx((0.8, 0))]


def test_predictions_have_a_price_with_a_trend(broker: Broker) -> None:
    for month, predictions in ((OCTOBER, 1e6), (NOVEMBER, 4e6)):
        finished(broker.store, month.month, month, [MetricsReported(metrics={"predictions": predictions})])
    found = unit_metrics_report(broker, "2026-11")
    assert found.per_thousand_predictions == Money.usd("0.004583")
    assert [one.per_thousand_predictions for one in found.trend] == [Money.usd("0.018333"), Money.usd("0.004583")]


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("team", {"team-0": 0.8, "team-1": 0.2}),
        ("project", {"team-0 / project-5": 0.8, "team-1 / project-6": 0.2}),
        ("accelerator", {"H100": 0.5}),
        ("capacity_type", {"on_demand": 0.2, "spot": 0.8}),
    ],
)
def test_use_is_grouped_by_what_is_asked_for(broker: Broker, by: str, groups: dict[str, float]) -> None:
    """Two runs of equal length: 80 % busy on spot, 20 % on demand."""
    for number, kind, busy in ((5, CapacityType.SPOT, 80), (6, CapacityType.ON_DEMAND, 20)):
        finished(broker.store, number, NOVEMBER, [use(gpu=busy, gpu_idle=0)], on=kind)
    found = unit_metrics_report(broker, "2026-11", by=by)
    assert {row.group: row.use.every for row in found.groups} == pytest.approx(groups)
    assert sum(row.gpu_hours for row in found.groups) == pytest.approx(found.gpu_hours)
    lines = "\n".join(report_view.unit_lines(found))
    assert "GPU use in all work:         50 %, target: over 60 %, missed" in lines
    assert all(f"{group}:" in lines for group in groups)
    with pytest.raises(UnknownName, match="capacity_type"):
        unit_metrics_report(broker, "2026-11", by="colour")


def test_inference_is_no_training_that_could_run_on_spot(broker: Broker) -> None:
    saves: dict[str, Any] = {"checkpoint": CheckpointPlan(every=HOUR)}
    finished(broker.store, 5, NOVEMBER, on=CapacityType.SPOT, **saves)
    finished(broker.store, 6, NOVEMBER, on=CapacityType.ON_DEMAND, workload=Workload.INFERENCE, **saves)
    found = unit_metrics_report(broker, "2026-11")
    assert found.eligible_spot_hours == found.eligible_hours > 0
