"""Findings against figures that were worked out by hand."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import InvalidInput
from broker.economics.reserve.capacity_findings import AcceleratorUse, CapacityFinding, FindingKind, findings

WEEK = 168
NONE = (0,) * WEEK


def use(demand: tuple[int, ...], rented: tuple[int, ...] = NONE, **changes: Any) -> AcceleratorUse:
    said: dict[str, Any] = {"accelerator": "H100", "demand": demand, "rented": rented, "owned": 0, "reserved": 0}
    return AcceleratorUse(**said | {"rent": 2.0} | changes)


def only(found: AcceleratorUse) -> CapacityFinding:
    (finding,) = findings(found)
    return finding


def test_two_gpus_around_the_clock_are_bought() -> None:
    """Renting costs $2 an hour each, owning $0.80: 2 × 730 h × $1.20 = $1,752 a month."""
    found = only(use((2,) * WEEK, (2,) * WEEK, own_usd=0.8))
    assert (found.kind, found.gpus, found.sentence) == (FindingKind.BUY, 2, "buy 2 H100")
    assert found.saves_usd_per_month == pytest.approx(1752.0)
    assert "2 × 730 h × $1.20 = $1,752.00 a month" in found.because
    assert found.arithmetic == pytest.approx(
        {
            "gpus": 2, "held": 0, "used_share": 1.0, "hours_per_day": 24.0, "rent_usd": 2.0, "buy_usd": 0.8,
            "energy_usd": 0.0, "hours_per_month": 730.0, "usd_per_month": 1752.0,
        }
    )  # fmt: skip


@pytest.mark.parametrize(("hours", "bought"), [(42, 0), (43, 1)])
def test_one_is_bought_above_six_hours_a_day(hours: int, bought: int) -> None:
    """6 h a day are 42 of 168."""
    demand = (1,) * hours + (0,) * (WEEK - hours)
    assert len(findings(use(demand, demand, own_usd=0.1))) == bought


def test_without_a_price_of_owning_it_takes_forty_percent() -> None:
    """40 % of 168 h is 67.2 h; what it saves is not known."""

    def found(hours: int) -> tuple[CapacityFinding, ...]:
        demand = (1,) * hours + (0,) * (WEEK - hours)
        return findings(use(demand, demand))

    assert found(67) == ()
    assert [(one.kind, one.saves_usd_per_month) for one in found(68)] == [(FindingKind.BUY, None)]


def test_four_reserved_of_which_two_are_needed_half_of_the_time() -> None:
    """At $1.20 against $2 a reserved GPU pays from 60 % on. Two are needed in 50 %:
    2 × 730 h × ($1.20 − 50 % × $2) = $292 a month."""
    found = only(use((4,) * 84 + (2,) * 84, reserved=4, held_usd=1.2))
    assert (found.kind, found.gpus) == (FindingKind.OVER_COMMITTED, 2)
    assert found.sentence == "over-committed by 2 H100: let them lapse when the term ends"
    assert found.saves_usd_per_month == pytest.approx(292.0)


def test_needed_in_just_as_many_hours_as_it_pays_from_it_stays() -> None:
    """1.2 / 2 = 60 %; 101 of 168 h are more than that, 100 h (59.5 %) are less."""
    assert findings(use((1,) * 101 + (0,) * 67, reserved=1, held_usd=1.2)) == ()
    assert only(use((1,) * 100 + (0,) * 68, reserved=1, held_usd=1.2)).kind is FindingKind.OVER_COMMITTED


def test_owned_machines_come_before_reserved_ones() -> None:
    """Two owned, two reserved, and two are ever needed: both reserved ones are too many."""
    found = only(use((2,) * WEEK, owned=2, reserved=2, held_usd=1.0))
    assert (found.kind, found.gpus) == (FindingKind.OVER_COMMITTED, 2)
    assert found.saves_usd_per_month == pytest.approx(2 * 730 * 1.0)


def test_rented_while_owned_ones_stood_idle() -> None:
    """Two owned are idle while two are rented in 84 of 168 h: 168 GPU-hours at $2 in a week, $1,460 a month."""
    found = only(use((2,) * 84 + (0,) * 84, (2,) * 84 + (0,) * 84, owned=2, own_usd=0.1))
    assert (found.kind, found.gpus) == (FindingKind.STOP_RENTING, 2)
    assert found.saves_usd_per_month == pytest.approx(1460.0)
    assert found.arithmetic["needless_gpu_hours"] == 168


def test_rented_while_all_that_is_held_was_at_work_is_a_burst() -> None:
    assert findings(use((4,) * 42 + (2,) * 126, (2,) * 42 + (0,) * 126, owned=2)) == ()


def test_an_owned_gpu_that_works_an_hour_a_day_is_not_replaced() -> None:
    """7 of 168 h. Owning costs $0.50 an hour: ($0.50 − 1/24 × $2) × 730 h = $304.17 a month."""
    found = only(use((1,) * 7 + (0,) * 161, owned=1, own_usd=0.5))
    assert (found.kind, found.gpus) == (FindingKind.RENT_INSTEAD, 1)
    assert found.saves_usd_per_month == pytest.approx(304.1667, abs=1e-3)


def test_an_owned_gpu_pays_for_energy_in_the_hours_in_which_it_works() -> None:
    """7 of 168 h at $0.12 of energy: ($0.50 + 1/24 × $0.12 − 1/24 × $2) × 730 h = $307.82 a month. One that never works
    draws nothing that is counted: 730 h × $0.50 = $365."""
    found = only(use((1,) * 7 + (0,) * 161, owned=1, own_usd=0.5, energy_usd=0.12))
    assert found.saves_usd_per_month == pytest.approx(307.8167, abs=1e-3)
    assert (
        "1 × 730 h × ($0.50 used or not + 4.2% × $0.12 energy − 4.2% × $2.00 rented) = $307.82 a month" in found.because
    )
    assert only(use(NONE, owned=1, own_usd=0.5, energy_usd=0.12)).saves_usd_per_month == pytest.approx(365.0)


def test_one_that_is_bought_saves_less_by_its_energy() -> None:
    """730 h × ($2 − $0.80 − $0.20) = $730; at $1.20 of energy nothing is left."""
    around = use((1,) * WEEK, (1,) * WEEK, own_usd=0.8, energy_usd=0.2)
    assert only(around).saves_usd_per_month == pytest.approx(730.0)
    assert findings(replace(around, energy_usd=1.2)) == ()


def again(found: CapacityFinding) -> float:
    """The month's dollars, from nothing but the arithmetic that is attached."""
    by, a_month = found.arithmetic, found.arithmetic["hours_per_month"]
    match found.kind:
        case FindingKind.STOP_RENTING:
            return by["needless_gpu_hours"] * by["rent_usd"] * a_month / by["hours"]
        case FindingKind.OVER_COMMITTED:
            each = by["held_usd"] - by["used_share"] * by["rent_usd"]
        case FindingKind.RENT_INSTEAD:
            each = by["own_usd"] - by["used_share"] * (by["rent_usd"] - by["energy_usd"])
        case FindingKind.BUY:
            each = by["used_share"] * (by["rent_usd"] - by["energy_usd"]) - by["buy_usd"]
        case FindingKind.RESERVE:
            each = by["used_share"] * by["rent_usd"] - by["reserve_usd"]
    return by["gpus"] * a_month * each


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=WEEK, max_size=200),
    st.lists(st.integers(0, 200), max_size=4),
    st.lists(st.integers(0, 200), max_size=4),
    st.sampled_from([0.1, 0.7, 1.5]),
    st.sampled_from([0.0, 0.13]),
)
def test_what_a_finding_saves_follows_from_its_arithmetic(
    hours: list[tuple[int, int]], owned: list[int], reserved: list[int], price: float, energy: float
) -> None:
    asked = use(
        tuple(own + rented for own, rented in hours), tuple(rented for _, rented in hours),
        owned=len(owned), owned_for=sorted((min(a, len(hours)) for a in owned), reverse=True),
        reserved=len(reserved), reserved_for=sorted((min(a, len(hours)) for a in reserved), reverse=True),
        held_usd=price, own_usd=price, reserve_usd=price, energy_usd=energy,
    )  # fmt: skip
    for found in findings(asked):
        assert found.saves_usd_per_month is not None
        assert again(found) == pytest.approx(found.saves_usd_per_month)
        assert found.arithmetic["usd_per_month"] == found.saves_usd_per_month
        assert f"${found.saves_usd_per_month:,.2f} a month" in found.because


def test_what_is_held_is_judged_on_the_hours_since_it_is_there() -> None:
    """Nothing ran in the first week, two GPUs in the second, at the end of which both were there for a week."""
    late = use(NONE + (2,) * WEEK, NONE * 2, reserved=2, held_usd=1.2)
    assert only(late).gpus == 2, "needed in half of all hours, and paying from 60 % on"
    assert findings(replace(late, reserved_for=[WEEK, WEEK])) == ()


def test_renting_before_something_was_held_is_not_needless() -> None:
    """Two rented for two weeks; one GPU is held for the second one: 168 GPU-hours at $2 in 168 h."""
    rented = use((2,) * WEEK * 2, (2,) * WEEK * 2, owned=2, owned_for=[WEEK, 24], own_usd=1.0)
    (found,) = (one for one in findings(rented) if one.kind is FindingKind.STOP_RENTING)
    # The second one was there for 24 of 168 h, 14 % of them: more than may stand idle.
    assert (found.gpus, found.arithmetic["needless_gpu_hours"], found.arithmetic["hours"]) == (2, WEEK + 24, WEEK)
    assert found.saves_usd_per_month == pytest.approx((WEEK + 24) * 2 * 730 / WEEK)
    assert FindingKind.STOP_RENTING not in {one.kind for one in findings(replace(rented, owned_for=[24, 24]))}


def test_it_is_replaced_where_renting_these_hours_would_cost_more() -> None:
    assert findings(use((1,) * 7 + (0,) * 161, owned=1, own_usd=0.08)) == ()


def test_a_baseline_is_reserved_and_the_burst_is_not() -> None:
    """Between 4 and 12 GPUs: at $1 against $2 four are needed always, eight more in a quarter of the hours.
    4 × 730 h × $1 = $2,920 a month."""
    found = only(use((12,) * 42 + (4,) * 126, (12,) * 42 + (4,) * 126, reserve_usd=1.0, own_usd=5.0))
    assert (found.kind, found.gpus) == (FindingKind.RESERVE, 4)
    assert found.saves_usd_per_month == pytest.approx(2920.0)


@pytest.mark.parametrize(("needed", "reserved", "saves"), [(3, 0, None), (6, 8, 730 * (6 * 2 - 8 * 1)), (10, 8, 5840)])
def test_a_machine_of_eight_is_reserved_whole_or_not(needed: int, reserved: int, saves: float | None) -> None:
    """At $1 against $2, a machine of eight pays from four GPUs on: three are rented, and of ten the last two, too."""
    found = findings(use((needed,) * WEEK, reserve_usd=1.0, reserve_lot=8, term_hours=672))
    kept = [one for one in found if one.kind is FindingKind.RESERVE]
    assert [one.gpus for one in kept] == ([reserved] if reserved else [])
    assert saves is None or kept[0].saves_usd_per_month == pytest.approx(saves)


def test_a_year_is_not_reserved_on_a_week_of_use() -> None:
    short = use((4,) * WEEK, (4,) * WEEK, reserve_usd=1.0, own_usd=5.0)
    assert findings(replace(short, term_hours=8760.0)) == ()
    assert only(replace(short, term_hours=672.0)).kind is FindingKind.RESERVE


def test_of_two_ways_to_hold_the_cheaper_one_is_told() -> None:
    both = use((4,) * WEEK, (4,) * WEEK, reserve_usd=1.0, own_usd=0.5)
    assert only(both).kind is FindingKind.BUY
    assert only(replace(both, own_usd=1.5)).kind is FindingKind.RESERVE


def test_less_than_a_week_says_nothing() -> None:
    assert findings(use((9,) * 167, (9,) * 167, own_usd=0.1)) == ()


@pytest.mark.parametrize(
    "wrong",
    [{"demand": ()}, {"rented": (1,) * WEEK}, {"rent": 0.0}, {"owned": -1}, {"demand": (1,)}, {"owned_for": [WEEK]}],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        use(**{"demand": NONE} | wrong)


@given(
    st.lists(st.integers(0, 6), min_size=WEEK, max_size=WEEK),
    st.integers(0, 4),
    st.integers(0, 4),
    st.sampled_from([None, 0.2, 1.0, 3.0]),
)
def test_no_finding_contradicts_another(demand: list[int], owned: int, reserved: int, price: float | None) -> None:
    """More is never held while something that is held is too much, nothing is saved that is not above zero, and never
    more GPUs are spoken of than there are."""
    rented = tuple(max(gpus - owned - reserved, 0) for gpus in demand)
    asked = use(tuple(demand), rented, owned=owned, reserved=reserved, held_usd=price, own_usd=price)
    found = {one.kind: one for one in findings(asked)}
    assert all(one.saves_usd_per_month is None or one.saves_usd_per_month > 0 for one in found.values())
    if FindingKind.OVER_COMMITTED in found:
        assert found[FindingKind.OVER_COMMITTED].gpus <= reserved
    if FindingKind.RENT_INSTEAD in found:
        assert found[FindingKind.RENT_INSTEAD].gpus <= owned
    assert FindingKind.STOP_RENTING not in found, "only bursts were rented"
