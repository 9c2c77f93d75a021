"""Predictions of a store's runs against what happened, and measured speeds in advice."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from broker.app.assumptions import with_measurements
from broker.app.billing.report import forecasts_report
from broker.app.finished_runs import finished_runs
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.core.events import events as ev
from broker.core.events.agent_events import MetricsReported
from broker.core.events.outcomes import Cause, JobState
from broker.core.job.jobs import Job, Model
from broker.core.job.placements import Placement
from broker.core.market.accelerators import lookup
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.economics.assumptions import DEFAULTS
from broker.ledger.entries import Movement, Tags, move
from broker.ledger.finops.accuracy import PredictionKind
from tests.actors import with_clock
from tests.past import finished, offer

HOUR = timedelta(hours=1)
AT = datetime(2026, 11, 10, tzinfo=UTC)


@pytest.fixture
def broker(new_broker: Callable[[], Broker]) -> Broker:
    return with_clock(new_broker(), ManualClock(AT + 10 * 24 * HOUR))


def ran(
    broker: Broker,
    job_id: str,
    *,
    expected: timedelta | None,
    tokens: float,
    ends: datetime = AT,
    then: str = "H100",
    spot: int | None = None,
    generated: float = 0.0,
) -> None:
    """A run of two hours on eight GPUs whose first attempt was taken back after one; ``then``: the second's GPUs;
    ``spot``: the attempt on a spot machine; ``generated``: share of the tokens, of a run of inference."""
    model = Model(parameters=7e9, method="inference" if generated else "adamw")
    job = Job(name=job_id, run="train", team="nlp", model=model)
    told = {"tokens": tokens / 2} | ({"generated_tokens": tokens * generated / 2} if generated else {})
    rate = Money.usd("10")
    placement = Placement(offer(ends), 1, rate, Money.usd("15"), (), expected, None, 1.0, 1.0, 0.1)
    with broker.store.writing() as tx:
        items: list[tuple[int | None, ev.EventBody]] = [
            (None, ev.Submitted(job=job, user="ann", max_duration_seconds=1e5)),
        ]
        for number, cause in ((1, Cause.PREEMPTED), (2, Cause.COMPLETED)):
            start = ends + (number - 1) * HOUR
            there = placement if number == 1 else replace(placement, offer=replace(offer(ends), accelerator=then))
            if number == spot:
                there = replace(there, offer=replace(there.offer, capacity_type=CapacityType.SPOT))
            items += [
                (number, ev.LaunchRequested(key=f"{job_id}-{number}", engine="stage", placement=there)),
                (number, ev.Launched(handle="h")),
                (number, ev.MachineUp(since=start)),
                (number, MetricsReported(metrics={name: number * figure for name, figure in told.items()})),
                (number, ev.AttemptEnded(cause=cause)),
                (number, ev.MachineGone(gone_at=start + HOUR)),
            ]
        tx.append(job_id, items, ends)
        tx.append(job_id, [(None, ev.JobEnded(state=JobState.SUCCEEDED)), (None, ev.JobClosed())], ends + 2 * HOUR)


def test_predictions_of_first_plans_are_compared_with_what_happened(broker: Broker) -> None:
    ran(broker, "run-1-xxxxx", expected=1.5 * HOUR, tokens=1e9)
    finished(broker.store, 1, AT)  # its work was not known
    found = forecasts_report(broker, "month")
    assert (found.runs, found.unpredicted) == (2, 1)
    errors = {one.kind: one for one in found.errors}
    assert errors[PredictionKind.TIME].runs == 1
    assert errors[PredictionKind.TIME].ratio == pytest.approx(2 / 1.5)
    assert errors[PredictionKind.INTERRUPTIONS].happened == 1
    assert errors[PredictionKind.INTERRUPTIONS].predicted == pytest.approx(0.15)
    assert errors[PredictionKind.PRICE].runs == 2
    assert forecasts_report(broker, "month", "nlp").runs == 1


def test_finished_inference_measures_serving(broker: Broker) -> None:
    """16 GPU-hours, 3,000 tokens/s a GPU, a third of them generated."""
    ran(broker, "run-1-xxxxx", expected=None, tokens=3000.0 * 16 * 3600, generated=1 / 3)
    with broker.store.reading() as look:
        assumptions = with_measurements(look, DEFAULTS, broker.clock.now())
    served = assumptions.served_on("H100", 7e9)
    assert served is not None
    assert served == pytest.approx((3000, 1 / 3, 1))
    assert assumptions.served_on("H100", 8e9) is None
    assert assumptions.served_on("L40S", 7e9) is None
    assert assumptions.prompt_share_on("H100", 7e9)[1] == 0, "its limit was not reading"


def test_measured_mfu_replaces_the_assumed_one(broker: Broker) -> None:
    card = lookup("H100")
    assert card.tflops_bf16 is not None
    tokens = 0.25 * card.tflops_bf16 * 1e12 * 16 * 3600 / (6 * 7e9)
    with broker.store.reading() as look:
        assert with_measurements(look, DEFAULTS, broker.clock.now()) is DEFAULTS
    ran(broker, "run-1-xxxxx", expected=None, tokens=tokens)
    with broker.store.reading() as look:
        assumptions = with_measurements(look, DEFAULTS, broker.clock.now())
    mfu, runs = assumptions.mfu_on("H100")
    assert mfu == pytest.approx(0.25, rel=1e-3)
    assert runs == 1
    assert assumptions.mfu_on("A100-80GB") == (DEFAULTS.mfu, 0)
    assert "measured by 1 run on H100" in assumptions.mfu_text("H100")
    assert assumptions.mfu_on("H100", 7.1e9) == (mfu, runs), "of the same model"
    assert "measured by 1 run of a model of this size" in assumptions.mfu_text("H100", 7e9)
    assert "measured by 1 run on H100" in assumptions.mfu_text("H100", 70e9)
    assert assumptions.prompt_share_on("H100", 7e9) == (DEFAULTS.prefill_efficiency, 0), "it was trained"
    assert assumptions.price_text("H100").startswith("a finished run on H100 was charged $")
    assert assumptions.price_text("L4") == ""


def test_of_too_many_runs_those_count_that_ended_last(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.app.finished_runs.MAX_RUNS", 2)
    for name, day in (("zebra", 0), ("bert", 2), ("ant", 1)):
        ran(broker, f"{name}-xxxxx", expected=None, tokens=1.0, ends=AT + day * 24 * HOUR)
    with broker.store.reading() as look:
        found = finished_runs(look, AT, broker.clock.now())
    assert {run.job_id for run in found} == {"bert-xxxxx", "ant-xxxxx"}
    assert forecasts_report(broker, "month").runs == 2


def test_a_run_on_different_accelerators_measures_none_of_them(broker: Broker) -> None:
    ran(broker, "run-1-xxxxx", expected=HOUR, tokens=1e9, then="A100-80GB")
    found = forecasts_report(broker, "month")
    assert (found.runs, found.measured) == (1, [])


def test_measured_interruptions_replace_the_assumed_share_of_redone_hours(broker: Broker) -> None:
    assert DEFAULTS.spot_overhead_on("H100", 8) == (DEFAULTS.spot_overhead, 0)
    ran(broker, "run-1-xxxxx", expected=HOUR, tokens=1e9, spot=1)
    with broker.store.reading() as look:
        assumptions = with_measurements(look, DEFAULTS, broker.clock.now())
    share, runs = assumptions.spot_overhead_on("H100", 8)
    assert share == pytest.approx(0.125 * 8 * DEFAULTS.hours_lost_per_interruption)
    assert runs == 1
    assert "by the interruptions of 1 run on H100" in assumptions.spot_text("H100", 8)
    assert assumptions.spot_overhead_on("A100-80GB")[1] == 0


@pytest.mark.parametrize(("spot", "rate"), [(None, None), (1, 125.0), (2, 0.0)])
def test_interruptions_are_of_the_hours_that_were_on_spot_machines(
    broker: Broker, spot: int | None, rate: float | None
) -> None:
    """Whatever the first plan was: eight hours on spot GPUs with the interruption in them, or after it."""
    ran(broker, "run-1-xxxxx", expected=HOUR, tokens=1e9, spot=spot)
    (measured_one,) = forecasts_report(broker, "month").measured
    assert measured_one.interruptions_per_1000_hours == rate


def test_prepaid_hours_are_a_cost_as_plans_expect_them(broker: Broker) -> None:
    ran(broker, "run-1-xxxxx", expected=2 * HOUR, tokens=1e9)
    with broker.store.writing() as tx:
        for movement in (Movement.HOLD, Movement.SETTLE):
            tx.post(
                move(
                    movement, Money.usd("15"), movement_id=f"run-1/{movement.value}", money=MoneyKind.AMORTISED, at=AT,
                    covers=(AT, AT + HOUR), tags=Tags("run-1-xxxxx", "ann"),
                )
            )  # fmt: skip
    (cost,) = [one for one in forecasts_report(broker, "month").errors if one.kind is PredictionKind.COST]
    assert cost.happened == pytest.approx(15)


def test_a_month_to_come_has_no_outcomes(broker: Broker) -> None:
    with pytest.raises(InvalidInput, match="has not begun"):
        forecasts_report(broker, "2026-12")
