"""Buy or rent: the quoted cases, the rules that do and do not hold, and what must always be true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import InvalidInput
from broker.economics.buy_or_rent import (
    BuyOrRentInputs,
    BuyOrRentTotals,
    BuyOrRentVerdict,
    buy_or_rent,
    monthly_usd,
    utilisation_of,
)
from broker.economics.sourcing import SourcingNeed, opinions

A100 = BuyOrRentInputs(purchase_usd=12_000, rent_usd_per_hour=5.12, years=3)
RTX4090 = BuyOrRentInputs(purchase_usd=2_200, rent_usd_per_hour=0.18, years=2, watts=550, kwh_usd=0.16, resale_usd=600)


def holds(answer: BuyOrRentTotals) -> dict[str, bool]:
    return {check.rule: check.holds for check in answer.rules_of_thumb}


@pytest.mark.parametrize(("rent", "percent", "total"), [(5.12, 8.9, 94_188), (1.53, 29.8, 28_146)])
def test_an_a100_against_on_demand_and_spot(rent: float, percent: float, total: float) -> None:
    answer = buy_or_rent(replace(A100, rent_usd_per_hour=rent, utilisation=0.7))
    assert answer.break_even_utilisation is not None
    assert round(100 * answer.break_even_utilisation, 1) == percent
    assert answer.hours == pytest.approx(18_396)
    assert round(answer.rent_total_usd) == total
    assert answer.own_total_usd == 12_000
    assert answer.verdict is BuyOrRentVerdict.BUY


def test_the_4090_build_does_not_pay_back_before_about_24_hours_a_day() -> None:
    answer = buy_or_rent(RTX4090)
    assert answer.break_even_hours_per_day == pytest.approx(23.8, abs=0.05)
    month, _ = monthly_usd(RTX4090)
    assert round(month) == 64
    assert round(12 * month) == 771
    for hours in (4, 6, 12, 20):
        part_time = buy_or_rent(replace(RTX4090, utilisation=utilisation_of(hours)))
        assert part_time.verdict is BuyOrRentVerdict.RENT
        assert part_time.payback_months is None
    quoted = holds(answer)
    assert quoted["above 4-6 h/day: buy"] is False, "the often quoted rule does not hold for these inputs"
    assert quoted["under 4 h/day: rent"] is True


@pytest.mark.parametrize(("hours", "rent"), [(4, 0.64), (6, 0.45)])
def test_the_rent_at_which_it_would_pay(hours: float, rent: float) -> None:
    case = replace(RTX4090, utilisation=utilisation_of(hours))
    needed = buy_or_rent(case).break_even_rent_usd_per_hour
    assert round(needed, 2) == rent
    assert buy_or_rent(replace(case, rent_usd_per_hour=needed * 1.01)).verdict is BuyOrRentVerdict.BUY
    assert buy_or_rent(replace(case, rent_usd_per_hour=needed * 0.99)).verdict is BuyOrRentVerdict.RENT
    assert holds(buy_or_rent(replace(case, rent_usd_per_hour=0.64)))["above 4-6 h/day: buy"] is True


def test_payback() -> None:
    assert buy_or_rent(replace(A100, utilisation=0.7)).payback_months == pytest.approx(12_000 / (511 * 5.12))


def test_an_hour_that_costs_more_to_run_than_to_rent_never_pays() -> None:
    answer = buy_or_rent(replace(RTX4090, rent_usd_per_hour=0.05))
    assert answer.break_even_utilisation is answer.break_even_hours_per_day is answer.payback_months is None
    assert answer.verdict is BuyOrRentVerdict.RENT
    assert "never pays" in answer.rules_of_thumb[0].says


def test_waiting_for_delivery_is_paid_twice() -> None:
    late = buy_or_rent(replace(A100, lead_time_weeks=20))
    assert late.waiting_usd == pytest.approx(20 * 168 * 5.12, rel=0.001)
    assert late.own_total_usd == pytest.approx(12_000 + late.waiting_usd)
    assert late.rent_total_usd == pytest.approx(buy_or_rent(A100).rent_total_usd)


def test_a_faster_generation_cheapens_renting() -> None:
    plain = buy_or_rent(A100)
    aged = buy_or_rent(replace(A100, obsolete_after_years=1.5, new_generation_speedup=3))
    assert aged.rent_total_usd == pytest.approx(plain.rent_total_usd * (1 + 1 / 3) / 2)
    assert plain.break_even_utilisation is not None
    assert aged.break_even_utilisation == pytest.approx(plain.break_even_utilisation * 1.5)


def test_discounting_makes_later_rent_cheaper_and_leaves_totals_alone() -> None:
    answer = buy_or_rent(replace(A100, discount_rate=0.1, resale_usd=2000))
    assert answer.own_total_usd == 10_000
    assert answer.own_npv_usd == pytest.approx(12_000 - 2000 / 1.1**3)
    years = sum(8760 * 5.12 / 1.1 ** (year + 0.5) for year in range(3))
    assert answer.rent_npv_usd == pytest.approx(years, rel=0.001)


def test_falling_rents() -> None:
    half = buy_or_rent(replace(A100, years=1, price_decline=0.5))
    assert half.rent_total_usd == pytest.approx(8760 * 5.12 * 0.7213, rel=0.001), "the mean of 0.5^t over a year"
    ladder = buy_or_rent(A100).sensitivity
    assert [point.price_decline for point in ladder] == [0, 0.1, 0.2, 0.3, 0.4, 0.5]
    rents = [point.rent_npv_usd for point in ladder]
    assert rents == sorted(rents, reverse=True)


def test_bursts_are_rented_and_the_baseline_owned() -> None:
    assert buy_or_rent(replace(A100, peak_to_baseline=3)).verdict is BuyOrRentVerdict.HYBRID
    assert buy_or_rent(replace(RTX4090, peak_to_baseline=3, utilisation=0.2)).verdict is BuyOrRentVerdict.RENT


def test_what_was_left_out_is_listed() -> None:
    said = buy_or_rent(A100).assumptions
    assert {"energy: 0", "staff: 0", "PUE: 1", "discount rate: 0"} <= set(said)
    assert not any(note.startswith("energy") for note in buy_or_rent(RTX4090).assumptions)


CASES = st.builds(
    BuyOrRentInputs,
    purchase_usd=st.floats(500, 1e6),
    rent_usd_per_hour=st.floats(0.05, 100),
    years=st.floats(0.5, 8),
    utilisation=st.floats(0.01, 1),
    watts=st.floats(0, 10_000),
    kwh_usd=st.floats(0, 0.5),
    pue=st.floats(1, 2),
    staff_usd_per_hour=st.floats(0, 7),
    facility_usd=st.floats(0, 1e5),
    discount_rate=st.floats(0, 0.3),
    price_decline=st.floats(0, 0.6),
    lead_time_weeks=st.floats(0, 20),
)


@given(CASES, st.floats(0, 1))
def test_cheaper_energy_never_makes_renting_better(case: BuyOrRentInputs, factor: float) -> None:
    cheaper = buy_or_rent(replace(case, kwh_usd=case.kwh_usd * factor))
    answer = buy_or_rent(case)
    assert cheaper.own_npv_usd <= answer.own_npv_usd * (1 + 1e-9)
    assert cheaper.rent_npv_usd == answer.rent_npv_usd
    if answer.verdict is BuyOrRentVerdict.BUY:
        assert cheaper.verdict is BuyOrRentVerdict.BUY


@given(CASES)
def test_signs_bounds_and_break_evens_agree(case: BuyOrRentInputs) -> None:
    answer = buy_or_rent(case)
    assert answer.own_total_usd > 0
    assert answer.rent_total_usd > 0
    assert answer.rent_npv_usd <= answer.rent_total_usd * (1 + 1e-9)
    assert answer.break_even_rent_usd_per_hour > 0
    at_rent = buy_or_rent(replace(case, rent_usd_per_hour=answer.break_even_rent_usd_per_hour))
    assert at_rent.own_npv_usd == pytest.approx(at_rent.rent_npv_usd)
    if answer.break_even_utilisation is not None and answer.break_even_utilisation <= 1:
        at_use = buy_or_rent(replace(case, utilisation=answer.break_even_utilisation))
        assert at_use.own_npv_usd == pytest.approx(at_use.rent_npv_usd)
    assert (answer.verdict is BuyOrRentVerdict.BUY) == (answer.own_npv_usd < answer.rent_npv_usd)


@given(CASES, st.floats(1, 3))
def test_a_higher_rent_never_speaks_for_renting(case: BuyOrRentInputs, factor: float) -> None:
    dearer = buy_or_rent(replace(case, rent_usd_per_hour=case.rent_usd_per_hour * factor))
    if buy_or_rent(case).verdict is BuyOrRentVerdict.BUY and not case.lead_time_weeks:
        assert dearer.verdict is BuyOrRentVerdict.BUY


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"purchase_usd": 0}, "purchase price"),
        ({"rent_usd_per_hour": -1}, "rent"),
        ({"rent_usd_per_hour": float("nan")}, "rent"),
        ({"years": 0}, "years"),
        ({"utilisation": 1.1}, "utilisation"),
        ({"resale_usd": 20_000}, "resale"),
        ({"pue": 0.5}, "PUE"),
        ({"discount_rate": 8}, "discount"),
        ({"lead_time_weeks": 200}, "longer than"),
    ],
)
def test_bad_input_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        replace(A100, **wrong)


@pytest.mark.parametrize("hours", [0, -1, 25])
def test_a_day_has_24_hours(hours: float) -> None:
    with pytest.raises(InvalidInput, match="hours per day"):
        utilisation_of(hours)


@pytest.mark.parametrize(
    ("situation", "says"),
    [
        (SourcingNeed(2, 12), {"rent"}),
        (SourcingNeed(5, 18), {"buy"}),
        (SourcingNeed(5, 12), set()),
        (SourcingNeed(20, 36), {"buy"}),
        (SourcingNeed(20, 36, gpus=8), {"buy", "rent"}),
        (SourcingNeed(12, 12, gpus=8, bursty=True, steady_baseline=True), {"rent", "hybrid"}),
        (SourcingNeed(5, 12, sensitive=True, regional_spread=True), {"on_premises", "multi_cloud"}),
    ],
)
def test_rules_of_thumb_about_sourcing(situation: SourcingNeed, says: set[str]) -> None:
    assert {opinion.says for opinion in opinions(situation)} == says


def test_a_commitment_is_paid_for_every_hour() -> None:
    used = BuyOrRentInputs(purchase_usd=30_000, rent_usd_per_hour=4.858, years=3, utilisation=0.5)
    found = buy_or_rent(replace(used, take_or_pay=True))
    assert round(found.rent_total_usd) == 127_668
    assert found.rent_total_usd == pytest.approx(2 * buy_or_rent(used).rent_total_usd)
    assert found.break_even_utilisation is None
    assert found.rules_of_thumb == (), "rules on hours of use say nothing of a commitment"
    assert found.break_even_rent_usd_per_hour == pytest.approx(30_000 / (3 * 8760))
    assert found.payback_months == pytest.approx(12 * 30_000 / (4.858 * 8760))
