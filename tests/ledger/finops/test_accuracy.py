"""Predictions against outcomes, and what runs measured."""

from dataclasses import replace

import pytest

from broker.core.market.accelerators import lookup
from broker.economics.assumptions import DEFAULTS
from broker.economics.images import embedding_speed
from broker.ledger.finops.accuracy import (
    PredictionKind,
    RunOutcome,
    measured_speeds,
    model_speeds,
    prediction_errors,
    served_speeds,
)

RUN = RunOutcome("a", "H100", usd=120.0, hours=6.0, gpu_hours=48.0, interruptions=0, expected_usd=100.0,
                 expected_hours=5.0, expected_usd_per_gpu_hour=2.0, expected_interruptions=0.5)  # fmt: skip


def test_each_kind_has_its_own_error() -> None:
    cheaper = replace(RUN, job_id="b", usd=50.0, hours=5.0, interruptions=2)
    errors = {one.kind: one for one in prediction_errors([RUN, cheaper])}
    cost = errors[PredictionKind.COST]
    assert (cost.runs, cost.predicted, cost.happened) == (2, 200.0, 170.0)
    assert cost.ratio == pytest.approx((1.2 + 0.5) / 2)
    assert cost.mean_error == pytest.approx(0.35)
    assert cost.worst == pytest.approx(0.5)
    assert cost.within == 0.5
    assert errors[PredictionKind.TIME].mean_error == pytest.approx(0.1)
    assert errors[PredictionKind.PRICE].happened == pytest.approx((2.5 + 50 / 48) / 2), (
        "the mean of prices, not their sum"
    )
    assert errors[PredictionKind.PRICE].ratio == pytest.approx((2.5 / 2 + 50 / 48 / 2) / 2)
    assert errors[PredictionKind.INTERRUPTIONS].ratio == 2.0


def test_what_was_not_predicted_does_not_count() -> None:
    unknown = replace(RUN, expected_usd=None, expected_hours=None, expected_interruptions=None)
    assert [one.kind for one in prediction_errors([unknown])] == [PredictionKind.PRICE]
    assert prediction_errors([]) == ()


def test_mfu_is_that_of_runs_that_reported_tokens() -> None:
    told = replace(RUN, parameters=7e9, tokens=48 * 3600 * 0.3 * 989.5e12 / (6 * 7e9))
    (one,) = measured_speeds([told, RUN], {"H100": 989.5e12})
    assert one.mfu == pytest.approx(0.3)
    assert (one.runs, one.mfu_runs, one.token_runs) == (2, 1, 1)
    assert one.interruptions_per_1000_hours is None
    spot = replace(RUN, interruptions=4, spot_gpu_hours=48.0, spot_interruptions=3)
    assert measured_speeds([spot], {})[0].interruptions_per_1000_hours == pytest.approx(62.5)


def test_more_than_the_peak_is_no_measurement() -> None:
    told = replace(RUN, parameters=70e9, tokens=1e13)
    assert measured_speeds([told], {"H100": 989.5e12})[0].mfu is None
    assert model_speeds([told], {"H100": 989.5e12}) == ()


def test_runs_of_one_model_measure_it_apart_from_others() -> None:
    peaks = {"H100": 1e15}
    trained = replace(RUN, parameters=7e9, tokens=48 * 3600 * 0.3 * 1e15 / (6 * 7e9))
    larger = replace(RUN, parameters=70e9, tokens=48 * 3600 * 0.5 * 1e15 / (6 * 70e9))
    read = replace(RUN, parameters=7e9, trains=False, tokens=48 * 3600 * 0.6 * 1e15 / (2 * 7e9))
    found = {(one.parameters, one.trains): one for one in model_speeds([trained, trained, larger, read, RUN], peaks)}
    assert {key: (round(one.share, 9), one.runs) for key, one in found.items()} == {
        (7e9, True): (0.3, 2), (70e9, True): (0.5, 1), (7e9, False): (0.6, 1),
    }  # fmt: skip
    assumptions = replace(
        DEFAULTS,
        measured_models=tuple((m.accelerator, m.parameters, m.trains, m.share, m.runs) for m in found.values()),
    )
    assert assumptions.mfu_on("H100", 7e9)[1] == 2
    plain, known = (
        embedding_speed(7e9, 1e9, lookup("H100"), replace(one, tokens_per_item=256)) for one in (DEFAULTS, assumptions)
    )
    assert plain is not None
    assert known is not None
    assert known.items_per_second / plain.items_per_second == pytest.approx(0.6 / DEFAULTS.prefill_efficiency)


def test_runs_that_generate_measure_serving_and_not_reading() -> None:
    served = replace(RUN, parameters=8e9, trains=False, tokens=48 * 3600 * 2000.0, generated=48 * 3600 * 500.0)
    silent = replace(served, job_id="b", tokens=48 * 3600 * 8000.0, generated=None)
    (speed,) = served_speeds([served, silent, RUN])
    assert (speed.tokens_per_second, speed.generated_share, speed.runs) == (2000.0, 0.25, 1)
    assert served_speeds([silent])[0].generated_share is None
    assert [one.runs for one in model_speeds([served, silent], {"H100": 1e15})] == [1], "the silent one alone"
