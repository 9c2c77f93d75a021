"""Unit costs: the quoted table to four decimals, break-even against an API, true cluster cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import InvalidInput
from broker.economics.cluster import ClusterCost, annuity, check_quoted_range, cluster_cost
from broker.economics.unit_cost import (
    UnitCost,
    break_even_utilisation,
    check_quoted_utilisation,
    owned,
    per_prediction,
    per_quality_point,
    rented,
    training_run,
)


def at_70_percent(hardware_usd: float, tokens_per_second: float, watts: float, **more: float) -> UnitCost:
    values = {"years": 3.0, "kwh_usd": 0.12, "utilisation": 0.7, **more}
    return owned(hardware_usd=hardware_usd, tokens_per_second=tokens_per_second, watts=watts, **values)


@pytest.mark.parametrize(
    ("inputs", "hardware", "power", "total", "billions"),
    [
        ((700, 65, 350), 0.1626, 0.2564, 0.4190, 1.4),
        ((1600, 70, 450), 0.3451, 0.3061, 0.6513, 1.5),
        ((8000, 114, 400), 1.0596, 0.1671, 1.2267, 2.5),
        ((30000, 239, 700), 1.8954, 0.1395, 2.0349, 5.3),
    ],
    ids=["RTX3090", "RTX4090", "A100", "H100"],
)
def test_the_quoted_table(
    inputs: tuple[float, float, float], hardware: float, power: float, total: float, billions: float
) -> None:
    cost = at_70_percent(*inputs)
    assert round(cost.hardware_usd_per_million_tokens, 4) == hardware
    assert round(cost.power_usd_per_million_tokens, 4) == power
    assert round(cost.usd_per_million_tokens, 4) == total
    assert round(cost.million_tokens_per_year / 1000, 1) == billions


def test_rented_by_the_hour() -> None:
    cost = rented(rent_usd_per_hour=2.52, tokens_per_second=1000, utilisation=0.7)
    assert cost.usd_per_million_tokens == pytest.approx(1.0)
    assert cost.hardware_usd_per_million_tokens == cost.power_usd_per_million_tokens == 0


def test_pue_falls_on_power_only() -> None:
    plain, building = at_70_percent(700, 65, 350), at_70_percent(700, 65, 350, pue=1.5)
    assert building.power_usd_per_million_tokens == pytest.approx(1.5 * plain.power_usd_per_million_tokens)
    assert building.hardware_usd_per_million_tokens == plain.hardware_usd_per_million_tokens


def test_at_the_break_even_the_price_is_the_apis() -> None:
    utilisation = break_even_utilisation(1.2255525, 239, 5.0)
    assert utilisation == pytest.approx(1.2255525 / (5 * 0.8604))
    cost = at_70_percent(30000, 239, 700, utilisation=utilisation)
    assert cost.usd_per_million_tokens == pytest.approx(5.0)
    assert break_even_utilisation(4.0, 100, 0.5) > 1, "the API is cheaper whatever the use"


def test_a_claim_about_utilisation_depends_on_price_and_card() -> None:
    held = check_quoted_utilisation("a 7B model", 0.5, 1.2, 1500, 0.45)
    assert held.holds
    broken = check_quoted_utilisation("a 7B model", 0.5, 1.2, 1500, 5.0)
    assert not broken.holds
    assert "4%" in broken.says
    assert "never reached" in check_quoted_utilisation("a 13B model", 0.1, 4.0, 100, 0.5).says


def test_a_prediction_a_point_and_a_whole_run() -> None:
    assert per_prediction(2.0, 500) == pytest.approx(0.001)
    assert per_quality_point(600, 84, 80) == 150
    assert per_quality_point(3000, 0.82, 0.80) == pytest.approx(1500), "two hundredths"
    with pytest.raises(InvalidInput, match="quality gained"):
        per_quality_point(600, 80, 80)
    run = training_run(
        gpu_hours=1000,
        usd_per_gpu_hour=2,
        failed_share=0.2,
        experiments=0.5,
        preprocessing_share=0.1,
        storage_gb=500,
        storage_usd_per_gb_month=0.02,
        storage_months=3,
    )
    parts = (run.compute_usd, run.failed_usd, run.experiments_usd, run.preprocessing_usd, run.storage_usd)
    assert parts == pytest.approx((2000, 500, 1000, 200, 30))
    assert run.total_usd == pytest.approx(3730)
    assert training_run(gpu_hours=10, usd_per_gpu_hour=1).preprocessing_usd == pytest.approx(2), "a fifth by default"


PRICES = st.floats(1, 1e6)


@given(PRICES, PRICES, st.floats(1, 2000), st.floats(0.01, 1), st.floats(0.01, 1))
def test_more_use_is_never_dearer_per_token(
    hardware: float, speed: float, watts: float, one: float, other: float
) -> None:
    low, high = sorted((one, other))
    busy, idle = (at_70_percent(hardware, speed, watts, utilisation=u) for u in (high, low))
    assert busy.usd_per_million_tokens <= idle.usd_per_million_tokens * (1 + 1e-12)
    assert busy.million_tokens_per_year >= idle.million_tokens_per_year


@pytest.mark.parametrize(
    "wrong",
    [
        {"hardware_usd": 0},
        {"hardware_usd": -1},
        {"years": 0},
        {"utilisation": 0},
        {"utilisation": 70},
        {"tokens_per_second": 0},
        {"watts": -5},
        {"kwh_usd": float("nan")},
        {"pue": 0.9},
    ],
)
def test_bad_input_is_refused(wrong: dict[str, float]) -> None:
    good = {"hardware_usd": 1600, "years": 3, "watts": 450, "kwh_usd": 0.12, "tokens_per_second": 70}
    with pytest.raises(InvalidInput, match="expected"):
        owned(**{**good, "utilisation": 0.7, **wrong})


def cluster(server: float, distribution: float, cooling: float, staff: float, **more: float) -> ClusterCost:
    return cluster_cost(
        server_usd=server,
        gpus=8,
        years=3,
        power_distribution_usd=distribution,
        cooling_usd=cooling,
        staff_usd_per_gpu_hour=staff,
        **more,
    )


def test_an_8xh100_server_at_full_use() -> None:
    cheap, dear = cluster(200e3, 10e3, 15e3, 2), cluster(400e3, 50e3, 100e3, 7)
    assert (round(cheap.usd_per_gpu_hour, 1), round(dear.usd_per_gpu_hour, 1)) == (3.1, 9.6)
    quoted = check_quoted_range(cheap, dear)
    assert not quoted.holds, "$8-15 does not come out at full use"
    assert "38%" in quoted.says
    assert "64%" in quoted.says


def test_low_utilisation_brings_the_quoted_range_out() -> None:
    cheap, dear = cluster(200e3, 10e3, 15e3, 2, utilisation=0.38), cluster(400e3, 50e3, 100e3, 7, utilisation=0.65)
    assert check_quoted_range(cheap, dear).holds


def test_energy_interest_and_resale_count() -> None:
    plain = cluster(200e3, 10e3, 15e3, 2)
    powered = cluster(200e3, 10e3, 15e3, 2, watts=10_200, kwh_usd=0.12, pue=1.3)
    assert powered.energy_usd_per_gpu_hour == pytest.approx(10.2 * 0.12 * 1.3 / 8)
    assert cluster(200e3, 10e3, 15e3, 2, discount_rate=0.08).usd_per_gpu_hour > plain.usd_per_gpu_hour
    assert cluster(200e3, 10e3, 15e3, 2, resale_usd=60e3).usd_per_gpu_hour < plain.usd_per_gpu_hour
    assert annuity(1000, 0, 2, 0.10) == pytest.approx(576.19, abs=0.01), "a loan's textbook payment"
    assert annuity(1000, 0, 2, 1e-9) == pytest.approx(annuity(1000, 0, 2, 0))


@given(st.floats(1e3, 1e6), st.floats(0, 1), st.floats(0.5, 10), st.floats(0, 0.5), st.floats(0, 0.4))
def test_dearer_money_never_makes_owning_cheaper(
    price: float, resale: float, years: float, rate: float, more: float
) -> None:
    low, high = annuity(price, resale * price, years, rate), annuity(price, resale * price, years, rate + more)
    assert high >= low - 1e-6 * price
