"""The utilization-efficiency curve."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import InvalidInput
from broker.economics.assumptions import DEFAULTS
from broker.economics.scaling import ScalingModel, curve, fit

SIZES = [1, 2, 4, 8, 16, 32, 64]


def test_amdahls_law_is_the_case_without_communication() -> None:
    assert ScalingModel(serial=0.05).speedup(1000) == pytest.approx(1 / (0.05 + 0.95 / 1000))
    assert ScalingModel().speedup(64) == 64
    assert math.isinf(ScalingModel(serial=0.1).peak)


def test_communication_makes_more_gpus_useless_at_some_point() -> None:
    model = ScalingModel(serial=0.02, communication=0.0005)
    assert model.peak == pytest.approx(math.sqrt(0.98 / 0.0005))
    assert model.marginal(model.peak) == pytest.approx(0, abs=1e-12)
    assert model.speedup(model.peak) > model.speedup(2 * model.peak)


@given(
    st.floats(0, 0.3), st.floats(0, 0.01), st.floats(1, 1e4), st.sampled_from([[1, 2, 4, 8], [2, 4, 8, 16], [4, 64]])
)
def test_the_model_is_found_again_from_its_own_points(
    serial: float, communication: float, rate: float, sizes: list[int]
) -> None:
    model = ScalingModel(serial, communication)
    if len(sizes) < 3:
        model = ScalingModel(serial, 0.0)  # two sizes cannot tell two coefficients apart
    found, residual = fit((n, rate * model.speedup(n)) for n in sizes)
    for size in sizes:
        ratio = found.speedup(size) / found.speedup(sizes[0])
        assert ratio == pytest.approx(model.speedup(size) / model.speedup(sizes[0]), rel=1e-3)
    assert residual < 0.01 * max(sizes)


def test_noise_never_gives_negative_coefficients() -> None:
    found, residual = fit([(1, 100), (2, 205), (4, 420), (8, 850)])
    assert (found.serial, found.communication) == (0, 0)
    assert residual > 0


def test_the_cheapest_size_that_meets_the_deadline() -> None:
    model = ScalingModel(serial=0.02, communication=0.0005)
    alone = curve(model, gpu_hours=1000, usd_per_gpu_hour=2, sizes=SIZES)
    assert alone.efficient_gpus == 1, "without a deadline or fixed cost nothing beats one GPU"
    urgent = curve(
        model, gpu_hours=1000, usd_per_gpu_hour=2, sizes=SIZES, assumptions=replace(DEFAULTS, deadline_hours=150)
    )
    assert urgent.efficient_gpus == 8
    assert [p.gpus for p in urgent.sizes if p.meets_deadline] == [8, 16, 32, 64]
    staffed = curve(
        model, gpu_hours=1000, usd_per_gpu_hour=2, sizes=SIZES, assumptions=replace(DEFAULTS, fixed_usd_per_hour=50)
    )
    assert staffed.efficient_gpus == 16
    impossible = curve(
        model, gpu_hours=1000, usd_per_gpu_hour=2, sizes=SIZES, assumptions=replace(DEFAULTS, deadline_hours=10)
    )
    assert impossible.efficient_gpus is None
    assert (alone.diminishing_gpus, alone.fastest_gpus) == (8, 32)


@given(st.floats(0, 0.5), st.floats(0, 0.05), st.floats(1, 1e5), st.floats(0.1, 50))
def test_utilization_never_rises_with_size(serial: float, communication: float, work: float, price: float) -> None:
    drawn = curve(ScalingModel(serial, communication), gpu_hours=work, usd_per_gpu_hour=price, sizes=SIZES)
    utilization = [point.utilization for point in drawn.sizes]
    costs = [point.cost_usd for point in drawn.sizes]
    assert utilization == sorted(utilization, reverse=True)
    assert all(later >= earlier * (1 - 1e-9) for earlier, later in itertools.pairwise(costs))


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidInput, match="two different"):
        fit([(4, 100), (4, 101)])
    with pytest.raises(InvalidInput, match="throughput"):
        fit([(1, 0), (2, 5)])
    with pytest.raises(InvalidInput, match="serial"):
        ScalingModel(serial=1.5)
    with pytest.raises(InvalidInput, match="sizes"):
        curve(ScalingModel(), gpu_hours=1, usd_per_gpu_hour=1, sizes=[])
