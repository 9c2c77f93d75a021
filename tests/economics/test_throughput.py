"""Speeds: the quoted roofline numbers, training times, and what does not fit."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import InvalidInput
from broker.core.market.accelerators import lookup
from broker.economics.assumptions import DEFAULTS
from broker.economics.kinds import Precision
from broker.economics.memory import Subject
from broker.economics.model import ModelShape
from broker.economics.throughput import (
    Bound,
    decode,
    measured_mfu,
    peak_tflops,
    ridge_point,
    training_time,
)


def model(parameters: float) -> Subject:
    return Subject(parameters, parameters)


QUOTED = {  # card: bandwidth in GB/s, tokens/s of 14 GB at efficiency 1.0 and 0.7
    "H100": (3350, 239, 167.5),
    "A100-80GB": (2000, 143, 100),
    "A100": (1600, 114, 80),
    "RTX4090": (1008, 72, 50.4),
    "RTX3090": (936, 67, 46.8),
}


@pytest.mark.parametrize("name", QUOTED)
def test_the_shipped_table_is_within_3_percent_of_it(name: str) -> None:
    _, peak, usual = QUOTED[name]
    full = decode(lookup(name), model(7e9), 1, replace(DEFAULTS, decode_efficiency=1.0))
    assert full.tokens_per_second == pytest.approx(peak, rel=0.03)
    default = decode(lookup(name), model(7e9))
    assert default.tokens_per_second == pytest.approx(usual, rel=0.03)
    assert default.bound is Bound.MEMORY


def test_ridge_point_of_the_a100() -> None:
    assert ridge_point(312, 2000) == 156


def test_a_model_that_does_not_fit_has_no_speed() -> None:
    big = decode(lookup("RTX4090"), model(70e9))
    assert not big.fits
    assert (big.tokens_per_second, big.latency_per_token_ms, big.bound) == (None, None, None)
    assert decode(lookup("H100"), model(70e9), 2).fits


def test_latency_of_a_token_is_the_time_to_read_the_weights_whatever_the_batch() -> None:
    one = decode(lookup("A100-80GB"), model(7e9), 1, replace(DEFAULTS, batch=1))
    many = decode(lookup("A100-80GB"), model(7e9), 1, replace(DEFAULTS, batch=64))
    assert one.latency_per_token_ms == pytest.approx(1000 * 14e9 / (2039e9 * 0.7))
    assert many.latency_per_token_ms == pytest.approx(one.latency_per_token_ms)
    assert many.tokens_per_second == pytest.approx(64 * one.tokens_per_second)  # type: ignore[operator]  # fits


def test_a_large_batch_meets_the_compute_roof() -> None:
    a100 = lookup("A100-80GB")
    below = decode(a100, model(7e9), 1, replace(DEFAULTS, batch=150))
    above = decode(a100, model(7e9), 1, replace(DEFAULTS, batch=160))
    assert (below.bound, above.bound) == (Bound.MEMORY, Bound.COMPUTE), "the ridge of FP16 is 153 FLOP/B here"
    assert above.tokens_per_second == pytest.approx(312e12 * 0.7 / 14e9)


def test_reading_the_kv_cache_costs_speed() -> None:
    h100 = lookup("H100")
    without = decode(h100, model(7e9), 1, replace(DEFAULTS, batch=16)).tokens_per_second
    shaped = Subject(7e9, 7e9, ModelShape(32, 4096, 32, 8, 128))  # 128 KiB of cache a token
    with_cache = decode(h100, shaped, 1, replace(DEFAULTS, batch=16, context=8192)).tokens_per_second
    assert with_cache == pytest.approx(without * 14 / (14 + 16 * 8192 * 131_072 / 1e9))  # type: ignore[operator]  # both fit


def test_which_units_compute_which_precision() -> None:
    assert peak_tflops(lookup("H100"), Precision.FP8) == 1979
    assert peak_tflops(lookup("A100"), Precision.FP8) == 312, "no FP8 units: computed in 16 bits"
    assert peak_tflops(lookup("A100"), Precision.INT8) == 624
    assert peak_tflops(lookup("L4"), Precision.INT4) == 121
    assert peak_tflops(lookup("H100"), Precision.FP32) is None


def test_gpt3_takes_about_a_month_on_1024_a100() -> None:
    """Narayanan et al. 2021: 175B, 300B tokens, 1024 A100 at 140 TFLOPS each (45 %) took 34 days with recomputation,
    which is 8/6 of the work."""
    run = training_time(
        lookup("A100-80GB"), parameters=175e9, tokens=300e9, gpus=1024, assumptions=replace(DEFAULTS, mfu=140 / 312)
    )
    assert run.hours / 24 == pytest.approx(34 * 6 / 8, rel=0.02)
    assert run.gpu_hours == pytest.approx(1024 * run.hours)
    assert measured_mfu(run.tokens_per_second, 175e9, 1024, 312) == pytest.approx(140 / 312)


def test_an_impossible_mfu_points_to_its_cause() -> None:
    with pytest.raises(InvalidInput, match="dense peak"):
        measured_mfu(1e6, 70e9, 8, 989)


@given(st.floats(1e8, 1e12), st.floats(1, 10), st.integers(1, 512), st.integers(1, 512))
def test_training_never_gets_faster_by_more_work_or_fewer_gpus(
    parameters: float, factor: float, gpus: int, more: int
) -> None:
    h100 = lookup("H100")
    base = training_time(h100, parameters=parameters, tokens=1e9, gpus=gpus)
    assert training_time(h100, parameters=parameters * factor, tokens=1e9, gpus=gpus).hours >= base.hours
    assert training_time(h100, parameters=parameters, tokens=1e9, gpus=gpus + more).hours < base.hours


@given(st.integers(1, 2000), st.floats(1e8, 3e10))
def test_a_larger_batch_never_generates_less(batch: int, parameters: float) -> None:
    card = lookup("H100")
    small = decode(card, model(parameters), 1, replace(DEFAULTS, batch=batch))
    large = decode(card, model(parameters), 1, replace(DEFAULTS, batch=batch + 1))
    if small.tokens_per_second is not None and large.tokens_per_second is not None:
        assert large.tokens_per_second >= small.tokens_per_second
    else:
        assert small.fits is False is large.fits


def test_time_without_a_known_peak_is_refused() -> None:
    with pytest.raises(InvalidInput, match="not known"):
        training_time(lookup("K80"), parameters=1e9, tokens=1e9, gpus=1)


def test_two_cards_are_not_twice_one() -> None:
    """7B, 32 layers: 64 all-reduces of 8 KB, 30 µs each over PCIe, 10 µs over NVLink."""
    for name, exchange in (("RTX4090", 64 * (30e-6 + 8192 / 25e9)), ("H100", 64 * (10e-6 + 8192 / 450e9))):
        one, two = (decode(lookup(name), model(7e9), gpus).latency_per_token_ms for gpus in (1, 2))
        assert one is not None
        assert two == pytest.approx(one / 2 + 1000 * exchange, rel=0.01), name
