"""Unit costs: the quoted table to four decimals, break-even against an API, true cluster cost."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import InvalidInput
from broker.economics.assumptions import DEFAULTS
from broker.economics.unit_cost import (
    ClusterCost,
    TokenCost,
    annuity,
    break_even_utilization,
    check_quoted_cost,
    check_quoted_utilization,
    cluster_cost,
    token_cost,
    training_run,
)


def at_70_percent(hardware_usd: float, tokens_per_second: float, watts: float, **more: Any) -> TokenCost:
    return token_cost(
        tokens_per_second, replace(DEFAULTS, purchase_usd=hardware_usd, watts=watts, **{"pue": 1, **more})
    )


def test_rented_by_the_hour_and_by_the_prediction() -> None:
    cost = token_cost(1000, replace(DEFAULTS, rent_usd_per_hour=2.52, tokens_per_prediction=500))
    assert cost.usd_per_million_tokens == pytest.approx(1.0)
    assert cost.hardware_usd == cost.power_usd == 0
    assert cost.usd_per_prediction == pytest.approx(0.0005)


def test_pue_falls_on_power_only() -> None:
    plain, building = at_70_percent(700, 65, 350), at_70_percent(700, 65, 350, pue=1.5)
    assert building.power_usd == pytest.approx(1.5 * plain.power_usd)
    assert building.hardware_usd == plain.hardware_usd


def test_at_the_break_even_the_price_is_the_apis() -> None:
    utilization = break_even_utilization(1.2255525, 239, 5.0)
    assert utilization == pytest.approx(1.2255525 / (5 * 0.8604))
    cost = at_70_percent(30000, 239, 700, utilization=utilization, api_usd=5.0)
    assert cost.usd_per_million_tokens == pytest.approx(5.0)
    assert cost.break_even_utilization == pytest.approx(utilization)
    assert break_even_utilization(4.0, 100, 0.5) > 1, "the API is cheaper whatever the use"


def test_a_claim_about_utilization_depends_on_price_and_card() -> None:
    assert check_quoted_utilization("a 7B model", 0.5, 1.2, 1500, 0.45).holds
    broken = check_quoted_utilization("a 7B model", 0.5, 1.2, 1500, 5.0)
    assert not broken.holds
    assert "4%" in broken.says
    assert "never reached" in check_quoted_utilization("a 13B model", 0.1, 4.0, 100, 0.5).says


def test_a_whole_run_and_a_point_of_quality() -> None:
    stored = replace(
        DEFAULTS, failed_share=0.2, experiments=0.5, preprocessing_share=0.1, storage_gb=500,
        storage_usd_per_gb_month=0.02, storage_months=3, quality=0.82, baseline_quality=0.80,
    )  # fmt: skip
    run = training_run(1000, 2, stored)
    parts = (run.compute_usd, run.failed_usd, run.experiments_usd, run.preprocessing_usd, run.storage_usd)
    assert parts == pytest.approx((2000, 500, 1000, 200, 30))
    assert run.total_usd == pytest.approx(3730)
    assert run.usd_per_quality_point == pytest.approx(1865), "two hundredths"
    percent = training_run(1000, 2, replace(stored, quality=84, baseline_quality=80))
    assert percent.quality_point == 1
    assert percent.usd_per_quality_point == pytest.approx(3730 / 4)
    assert training_run(10, 1).preprocessing_usd == pytest.approx(2), "a fifth by default"
    with pytest.raises(InvalidInput, match="quality gained"):
        training_run(10, 1, replace(stored, quality=0.8))


PRICES = st.floats(1, 1e6)


@given(PRICES, PRICES, st.floats(1, 2000), st.floats(0.01, 1), st.floats(0.01, 1))
def test_more_use_is_never_dearer_per_token(
    hardware: float, speed: float, watts: float, one: float, other: float
) -> None:
    low, high = sorted((one, other))
    busy, idle = (at_70_percent(hardware, speed, watts, utilization=u) for u in (high, low))
    assert busy.usd_per_million_tokens <= idle.usd_per_million_tokens * (1 + 1e-12)
    assert busy.million_tokens_per_year >= idle.million_tokens_per_year


def cluster(server: float, facility: float, staff: float, **more: Any) -> ClusterCost:
    known = {"resale_share": 0, "utilization": 1, "watts": 0, **more}
    return cluster_cost(server, replace(DEFAULTS, facility_usd=facility, staff_usd_per_gpu_hour=staff, **known))


def test_an_8xh100_server_at_full_use_and_at_low_use() -> None:
    cheap, dear = cluster(200e3, 25e3, 2), cluster(400e3, 150e3, 7)
    assert (round(cheap.usd_per_gpu_hour, 1), round(dear.usd_per_gpu_hour, 1)) == (3.1, 9.6)
    (quoted,) = cheap.rules_of_thumb
    assert not quoted.holds, "$8-15 does not come out at full use"
    assert "38%" in quoted.says
    (at_low_use,) = cluster(200e3, 25e3, 2, utilization=0.38).rules_of_thumb
    assert at_low_use.holds
    assert not check_quoted_cost(15.01, 9).holds


def test_energy_interest_and_resale_count() -> None:
    plain = cluster(200e3, 25e3, 2)
    powered = cluster(200e3, 25e3, 2, watts=10_200, kwh_usd=0.12, pue=1.3)
    assert powered.energy_usd == pytest.approx(10.2 * 0.12 * 1.3 / 8)
    assert cluster(200e3, 25e3, 2, discount_rate=0.08).usd_per_gpu_hour > plain.usd_per_gpu_hour
    assert cluster(200e3, 25e3, 2, resale_share=0.3).usd_per_gpu_hour < plain.usd_per_gpu_hour
    assert annuity(1000, 0, 2, 0.10) == pytest.approx(576.19, abs=0.01), "a loan's textbook payment"
    assert annuity(1000, 0, 2, 1e-9) == pytest.approx(annuity(1000, 0, 2, 0))


@given(st.floats(1e3, 1e6), st.floats(0, 1), st.floats(0.5, 10), st.floats(0, 0.5), st.floats(0, 0.4))
def test_dearer_money_never_makes_owning_cheaper(
    price: float, resale: float, years: float, rate: float, more: float
) -> None:
    low, high = annuity(price, resale * price, years, rate), annuity(price, resale * price, years, rate + more)
    assert high >= low - 1e-6 * price
