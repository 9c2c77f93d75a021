"""Owned, reserved, on demand, spot: the quoted cases, the rules that do and do not hold, what must always be true."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.buy_or_rent import BreakEven, BuyOrRent, BuyOrRentVerdict, applicable_rules, compare, priced_ways

OWNED, RESERVED, ON_DEMAND, SPOT = (
    CapacityType.OWNED, CapacityType.RESERVED, CapacityType.ON_DEMAND, CapacityType.SPOT,
)  # fmt: skip
PLAIN = replace(DEFAULTS, resale_share=0, lead_time_weeks=0, utilization=1, pue=1)
A100 = replace(PLAIN, purchase_usd=12_000, rent_usd_per_hour=5.12)
RTX4090 = replace(
    PLAIN, purchase_usd=2_200, rent_usd_per_hour=0.18, years=2, watts=550, kwh_usd=0.16, resale_share=600 / 2_200
)
EIGHT = replace(
    PLAIN, gpus=8, gpus_per_machine=8, utilization=0.5, purchase_usd=300_000, reserved_usd_per_hour=15,
    rent_usd_per_hour=24, spot_usd_per_hour=10, resale_share=0.2, watts=10_000, kwh_usd=0.1, pue=1.5,
    staff_usd_per_gpu_hour=0.5,
)  # fmt: skip


def answer(case: Assumptions) -> BuyOrRent:
    return compare(case, vary=False)


def even(case: Assumptions) -> BreakEven:
    found = answer(case).break_even
    assert found is not None
    return found


def totals(case: Assumptions) -> dict[CapacityType, float]:
    return {one.way: one.total_usd for one in priced_ways(case)}


def values(case: Assumptions) -> dict[CapacityType, float]:
    return {one.way: one.present_value_usd for one in priced_ways(case)}


def holds(case: Assumptions) -> dict[str, bool]:
    return {check.rule: check.holds for check in answer(case).rules_of_thumb}


@pytest.mark.parametrize(("hours", "rent"), [(4, 0.64), (6, 0.45)])
def test_the_rent_at_which_it_would_pay(hours: float, rent: float) -> None:
    case = replace(RTX4090, hours_per_day=hours)
    needed = even(case).rent_usd_per_hour
    assert round(needed, 2) == rent
    assert answer(replace(case, rent_usd_per_hour=needed * 1.01)).verdict is BuyOrRentVerdict.BUY
    assert answer(replace(case, rent_usd_per_hour=needed * 0.99)).verdict is BuyOrRentVerdict.RENT
    assert holds(replace(case, rent_usd_per_hour=0.64))["above 4-6 h/day: buy"] is True


def test_payback() -> None:
    assert even(replace(A100, utilization=0.7)).payback_months == pytest.approx(12_000 / (511 * 5.12))


def test_an_hour_that_costs_more_to_run_than_to_rent_never_pays() -> None:
    case = replace(RTX4090, rent_usd_per_hour=0.05)
    assert even(case).utilization is even(case).hours_per_day is even(case).payback_months is None
    assert answer(case).verdict is BuyOrRentVerdict.RENT
    assert "never pays" in answer(case).rules_of_thumb[0].says


def test_waiting_for_delivery_is_paid_twice_and_what_comes_too_late_is_left_out() -> None:
    late = replace(A100, lead_time_weeks=20)
    assert even(late).waiting_usd == pytest.approx(20 * 168 * 5.12, rel=0.001)
    assert totals(late)[OWNED] == pytest.approx(12_000 + even(late).waiting_usd)
    assert totals(late)[ON_DEMAND] == pytest.approx(totals(A100)[ON_DEMAND])
    soon = answer(replace(late, years=0.3))
    assert [one.way for one in soon.ways] == [ON_DEMAND]
    assert any("owning is left out" in note for note in soon.assumptions)


def test_a_faster_generation_cheapens_renting() -> None:
    aged = replace(A100, obsolete_after_years=1.5, new_generation_speedup=3)
    assert totals(aged)[ON_DEMAND] == pytest.approx(totals(A100)[ON_DEMAND] * (1 + 1 / 3) / 2)
    assert even(aged).utilization == pytest.approx((even(A100).utilization or 0) * 1.5)


def test_discounting_makes_later_rent_cheaper_and_leaves_totals_alone() -> None:
    case = replace(A100, discount_rate=0.1, resale_share=1 / 6)
    assert totals(case)[OWNED] == pytest.approx(10_000)
    assert values(case)[OWNED] == pytest.approx(12_000 - 2000 / 1.1**3)
    years = sum(8760 * 5.12 / 1.1 ** (year + 0.5) for year in range(3))
    assert values(case)[ON_DEMAND] == pytest.approx(years, rel=0.001)


def test_falling_rents() -> None:
    half = replace(A100, years=1, price_decline=0.5)
    assert totals(half)[ON_DEMAND] == pytest.approx(8760 * 5.12 * 0.7213, rel=0.001), "the mean of 0.5^t over a year"
    ladder = answer(A100).falling_rents
    assert [point.price_decline for point in ladder] == [0, 0.1, 0.2, 0.3, 0.4, 0.5]
    rents = [point.rented_usd for point in ladder]
    assert rents == sorted(rents, reverse=True)
    falling, locked = replace(EIGHT, price_decline=0.3), replace(EIGHT, price_decline=0.3, term_years=3)
    assert totals(locked)[RESERVED] == pytest.approx(totals(EIGHT)[RESERVED]), "one term, one price"
    assert totals(falling)[RESERVED] == pytest.approx(15 * 8760 * (1 + 0.7 + 0.49))


def test_bursts_are_rented_and_the_baseline_owned() -> None:
    assert answer(replace(A100, peak_to_baseline=3)).verdict is BuyOrRentVerdict.HYBRID
    assert answer(replace(RTX4090, peak_to_baseline=3, utilization=0.2)).verdict is BuyOrRentVerdict.RENT


def test_each_way_by_hand_in_whole_machines() -> None:
    found, hours = totals(EIGHT), 3 * 8760
    assert found[RESERVED] == pytest.approx(15 * hours), "take-or-pay: every hour"
    assert found[ON_DEMAND] == pytest.approx(24 * hours / 2)
    assert found[SPOT] == pytest.approx(10 * hours / 2 * 1.1)
    energy, staff = 10 * 0.1 * 1.5 * hours / 2, 0.5 * 8 * hours
    assert found[OWNED] == pytest.approx(300_000 * 0.8 + energy + staff)
    assert totals(replace(EIGHT, gpus=9)) == {way: pytest.approx(2 * usd) for way, usd in found.items()}
    one = replace(PLAIN, reserved_usd_per_hour=4.858, utilization=0.5)
    assert round(totals(one)[RESERVED]) == 127_668, "one reserved H100, however many hours it is used"


def test_a_turning_point_is_where_another_way_becomes_cheapest() -> None:
    found = compare(EIGHT)
    assert found.ways[0].way is SPOT

    def with_input(name: str, value: float) -> Assumptions:
        changes: dict[str, Any] = {name: value}
        return replace(EIGHT, **changes)

    for turn in found.turning_points:
        assert turn.then is not SPOT
        assert priced_ways(with_input(turn.input, turn.value + 0.98 * (turn.flips_at - turn.value)))[0].way is SPOT
        assert priced_ways(with_input(turn.input, turn.flips_at))[0].way is turn.then
    (spot,) = [one for one in found.turning_points if one.input == "spot_usd_per_hour"]
    assert spot.flips_at == pytest.approx(found.ways[1].total_usd / (3 * 8760 / 2 * 1.1), rel=2e-3)


CASES = st.builds(
    replace,
    st.just(A100),
    purchase_usd=st.floats(500, 1e6),
    rent_usd_per_hour=st.floats(0.05, 100),
    years=st.floats(0.5, 8),
    utilization=st.floats(0.01, 1),
    watts=st.floats(0, 10_000),
    kwh_usd=st.floats(0, 0.5),
    pue=st.floats(1, 2),
    staff_usd_per_gpu_hour=st.floats(0, 7),
    facility_usd=st.floats(0, 1e5),
    discount_rate=st.floats(0, 0.3),
    price_decline=st.floats(0, 0.6),
    lead_time_weeks=st.floats(0, 20),
)


@given(CASES, st.floats(0, 1), st.floats(1, 3))
def test_cheaper_energy_and_dearer_rent_never_speak_for_renting(
    case: Assumptions, factor: float, dearer: float
) -> None:
    cheaper = replace(case, kwh_usd=case.kwh_usd * factor)
    assert values(cheaper)[OWNED] <= values(case)[OWNED] * (1 + 1e-9)
    assert values(cheaper)[ON_DEMAND] == values(case)[ON_DEMAND]
    raised = replace(case, rent_usd_per_hour=(case.rent_usd_per_hour or 0) * dearer)
    if priced_ways(case)[0].way is OWNED and not case.lead_time_weeks:
        assert priced_ways(raised)[0].way is OWNED


@settings(deadline=None)
@given(CASES)
def test_signs_bounds_and_break_evens_agree(case: Assumptions) -> None:
    found = answer(case)
    assert all(0 < one.present_value_usd <= one.total_usd * (1 + 1e-9) for one in found.ways if one.way is ON_DEMAND)
    at_rent = values(replace(case, rent_usd_per_hour=even(case).rent_usd_per_hour))
    assert at_rent[OWNED] == pytest.approx(at_rent[ON_DEMAND])
    share = even(case).utilization
    if share is not None and share <= 1:
        at_use = values(replace(case, utilization=share))
        assert at_use[OWNED] == pytest.approx(at_use[ON_DEMAND])
    assert [one.present_value_usd for one in found.ways] == sorted(one.present_value_usd for one in found.ways)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hours_per_day": 2, "years": 1}, {"rent"}),
        ({"hours_per_day": 5, "years": 1.5}, {"buy"}),
        ({"hours_per_day": 5, "years": 1}, set()),
        ({"hours_per_day": 20}, {"buy"}),
        ({"hours_per_day": 20, "gpus": 8}, {"buy", "rent"}),
        ({"hours_per_day": 12, "years": 1, "gpus": 8, "peak_to_baseline": 3}, {"rent", "hybrid"}),
    ],
)
def test_rules_of_thumb_about_sourcing(changes: dict[str, Any], says: set[str]) -> None:
    found = applicable_rules(replace(PLAIN, **changes))
    assert {check.rule.rpartition(": ")[2] for check in found} == says


def test_without_a_price_there_is_nothing_to_compare() -> None:
    with pytest.raises(InvalidInput, match="no price of owning or renting is known"):
        compare(PLAIN)
