"""Owned, reserved, on demand, spot: the same hours by the same rules, and what changes the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType
from broker.economics.ways import WaysInputs, compare, costs

CASE = WaysInputs(
    gpus=8, gpus_per_machine=8, years=3, utilisation=0.5, server_usd=300_000, reserved_usd_per_hour=15,
    on_demand_usd_per_hour=24, spot_usd_per_hour=10, resale_share=0.2, server_watts=10_000, kwh_usd=0.1, pue=1.5,
    staff_usd_per_gpu_hour=0.5, spot_overhead=0.1,
)  # fmt: skip


def totals(case: WaysInputs) -> dict[CapacityType, float]:
    return {one.way: one.total_usd for one in costs(case)}


def changed(name: str, value: float) -> WaysInputs:
    changes: dict[str, Any] = {name: value}
    return replace(CASE, **changes)


def test_each_way_by_hand() -> None:
    found = totals(CASE)
    hours = 3 * 8760
    assert found[CapacityType.RESERVED] == pytest.approx(15 * hours), "take-or-pay: every hour"
    assert found[CapacityType.ON_DEMAND] == pytest.approx(24 * hours / 2)
    assert found[CapacityType.SPOT] == pytest.approx(10 * hours / 2 * 1.1)
    energy, staff = 10 * 0.1 * 1.5 * hours / 2, 0.5 * 8 * hours
    assert found[CapacityType.OWNED] == pytest.approx(300_000 * 0.8 + energy + staff)


def test_the_h100_at_half_a_day() -> None:
    """One H100 reserved at $4.858/h for three years is $127,668, however many hours it is used."""
    one = WaysInputs(gpus=1, gpus_per_machine=1, years=3, utilisation=0.5, reserved_usd_per_hour=4.858)
    assert round(totals(one)[CapacityType.RESERVED]) == 127_668


def test_servers_and_machines_are_whole() -> None:
    nine = totals(replace(CASE, gpus=9))
    assert nine == {way: pytest.approx(2 * usd) for way, usd in totals(CASE).items()}


def test_a_flip_is_where_another_way_becomes_cheapest() -> None:
    found = compare(CASE)
    assert found.ways[0].way is CapacityType.SPOT
    for flip in found.flips:
        assert flip.then is not CapacityType.SPOT
        before = compare(changed(flip.name, flip.value + 0.98 * (flip.flips_at - flip.value)))
        assert before.ways[0].way is CapacityType.SPOT
        assert compare(changed(flip.name, flip.flips_at)).ways[0].way is flip.then
    (spot,) = [one for one in found.flips if one.name == "spot_usd_per_hour"]
    second = found.ways[1].total_usd
    assert spot.flips_at == pytest.approx(second / (3 * 8760 / 2 * 1.1), rel=2e-3)


def test_waiting_is_rented_and_falling_rents_help_the_renter() -> None:
    waiting = totals(replace(CASE, lead_time_weeks=26))
    assert waiting[CapacityType.OWNED] > totals(CASE)[CapacityType.OWNED]
    falling = totals(replace(CASE, price_decline=0.3))
    assert falling[CapacityType.ON_DEMAND] < totals(CASE)[CapacityType.ON_DEMAND]
    locked = totals(replace(CASE, price_decline=0.3, term_years=3))
    assert locked[CapacityType.RESERVED] == pytest.approx(totals(CASE)[CapacityType.RESERVED]), "one term, one price"
    assert falling[CapacityType.RESERVED] == pytest.approx(15 * 8760 * (1 + 0.7 + 0.49))


@settings(deadline=None, max_examples=40)
@given(st.floats(0.05, 1), st.floats(0.5, 6), st.floats(0, 0.2))
def test_more_use_never_costs_less_and_the_cheapest_comes_first(use: float, years: float, rate: float) -> None:
    case = replace(CASE, utilisation=use, years=years, discount_rate=rate)
    found = [one.npv_usd for one in costs(case)]
    assert found == sorted(found)
    more = totals(replace(case, utilisation=min(1.0, use * 1.2)))
    assert all(more[way] >= usd * (1 - 1e-9) for way, usd in totals(case).items())


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no price of owning or renting is known"):
        compare(WaysInputs(gpus=1, gpus_per_machine=1, years=1, utilisation=1))
    with pytest.raises(InvalidInput, match="lead time"):
        replace(CASE, lead_time_weeks=200)
    with pytest.raises(InvalidInput, match="utilisation"):
        replace(CASE, utilisation=50)
