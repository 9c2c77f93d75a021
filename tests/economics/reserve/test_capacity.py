"""The capacity plan of one accelerator, worked by hand, and what must hold of it on any demand."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import InvalidInput
from broker.core.values.money import Money
from broker.economics.reserve.capacity import AcceleratorPlan, PurchaseOption, plan_capacity
from broker.economics.reserve.holdings import BurstPrices, Holding, HoldingKind, RecordedHolding, SupplyScenario

NOW = datetime(2026, 3, 2, tzinfo=UTC)
MONTH = PurchaseOption("a month", 720, 1.2)


def held(
    number: int,
    gpus: int,
    hourly: str,
    days: int = 30,
    kind: HoldingKind = HoldingKind.RESERVATION,
    watts: float = 0.0,
) -> RecordedHolding:
    holding = Holding(
        kind,
        "H100",
        gpus,
        "aws",
        "us-east-1",
        NOW - timedelta(days=300),
        NOW + timedelta(days=days),
        hourly=Money.usd(hourly),
        watts=watts,
    )
    return RecordedHolding(number, holding, NOW, "ada")


def by_scenario(plan: AcceleratorPlan) -> dict[SupplyScenario, float]:
    return {cost.scenario: cost.usd_per_month.expected for cost in plan.scenarios}


# Between 4 and 12 GPUs, 12 for six hours of each day: on average 6.
DAILY = ([4] * 9 + [12] * 6 + [4] * 9) * 28


def test_the_rule_is_shown_with_the_numbers_of_the_case() -> None:
    """At $1 against $2 a GPU needed in half of the hours is worth it: 4 are needed always, 8 more in a quarter. A month
    of 730 h: holding none costs 4 × $1 more, holding 12 costs 8 × ($1 − $2 ÷ 4) more."""
    plan = plan_capacity("H100", DAILY, NOW, BurstPrices(2.0, None), [PurchaseOption("month", 720, 1.0)])
    assert plan.choices[0].baseline_gpus == 4
    assert "GPU 4 in 100%, GPU 5 in 25% of the hours, asked" in plan.notes[0]
    assert plan.notes[1].endswith("constant number, 4: hold 0: $2,920; hold 4: $0; hold 12: $2,920")


def test_a_part_of_a_machine_is_not_bought_beside_what_is_held_nor_in_its_place() -> None:
    """Four are held at $2, a machine of eight costs $1 a GPU and rent is $2. Of 10 GPUs the last 6 are 75 % of a
    machine: bought; of 7 the last 3 are 38 %: rented. What is held in fours is renewed as it is, not by an eighth."""
    machine = PurchaseOption("eight", 720, 1.0, lot=8)
    plans = [
        plan_capacity("H100", [gpus] * 24 * 60, NOW, BurstPrices(2.0, None), [machine], [held(1, 4, "6")])
        for gpus in (10, 7)
    ]
    assert [(plan.choices[0].baseline_gpus, plan.choices[0].buy_now_gpus) for plan in plans] == [(12, 8), (4, 0)]
    assert [use.renew_by for plan in plans for use in plan.held] == ["the same price"] * 2
    eights = plan_capacity("H100", [10] * 24 * 60, NOW, BurstPrices(2.0, None), [machine], [held(1, 8, "12")])
    assert [(use.renew_gpus, use.renew_by) for use in eights.held] == [(8, "eight")]


def test_what_is_rented_beyond_what_is_held_is_rented_in_whole_machines() -> None:
    """Four are held for $1 each; six are needed: a machine of eight is rented for $2 a GPU. Of three, none is."""
    prices = BurstPrices(2.0, None, lot=8)
    costs = [
        by_scenario(plan_capacity("H100", [gpus] * 24 * 60, NOW, prices, holdings=[held(1, 4, "4")])) for gpus in (6, 3)
    ]
    assert [cost[SupplyScenario.AS_IS] for cost in costs] == [pytest.approx(730 * (4 + 16)), pytest.approx(730 * 4)]


def test_the_cost_of_a_month_is_that_of_the_year_with_its_season() -> None:
    """Ten GPUs, and forty in the last quarter: 17.5 on average at $2, not the forty of now."""
    demand = [10] * 39 * 168 + [40] * 13 * 168
    cost = by_scenario(plan_capacity("H100", demand, NOW, BurstPrices(2.0, None)))[SupplyScenario.AS_IS]
    assert cost == pytest.approx(730 * 17.5 * 2.0)


@pytest.mark.parametrize("share", [0.3, 0.55, 0.97])
def test_the_price_up_to_which_reserving_pays_is_exact(share: float) -> None:
    """Needed in a random share s of the hours, a GPU pays up to the ratio r at which r + 0.8 r (1 − r) = s."""
    spread = [int(hour * 0.6180339887 % 1 < share) for hour in range(24 * 365)]
    plan = plan_capacity("H100", spread, NOW, BurstPrices(2.0, None))
    ratio = max(row.ratio for row in plan.sensitivity if row.baseline_gpus)
    assert ratio + 0.8 * ratio * (1 - ratio) == pytest.approx(share, abs=0.03)
    assert ratio not in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def test_steady_part_held_and_bursts_rented_by_hand() -> None:
    plan = plan_capacity("H100", DAILY, NOW, BurstPrices(2.0, 1.0, 0.5), [MONTH])
    assert plan.prices.burst_usd_per_gpu_hour == 1.5
    assert plan.choices[0].ratio == pytest.approx(0.8)
    assert (plan.baseline_gpus, plan.buy_now_gpus) == (4, 4)
    costs = by_scenario(plan)
    assert costs[SupplyScenario.AS_IS] == pytest.approx(730 * 6 * 1.5)
    assert costs[SupplyScenario.ALL_ON_DEMAND] == pytest.approx(730 * 6 * 2.0)
    assert costs[SupplyScenario.ALL_SPOT] == pytest.approx(730 * 6 * 1.0)
    assert costs[SupplyScenario.PLANNED] == pytest.approx(730 * (4 * 1.2 + 2 * 1.5))
    planned = next(cost for cost in plan.scenarios if cost.scenario is SupplyScenario.PLANNED)
    assert planned.reserved_anew_usd == pytest.approx(730 * 4.8)
    assert planned.on_demand_usd == pytest.approx(730 * 2.0)
    assert planned.spot_usd == pytest.approx(730 * 1.0)


def test_the_cheaper_bursts_are_the_less_is_worth_holding() -> None:
    plan = plan_capacity("H100", DAILY, NOW, BurstPrices(2.0, 1.0), [MONTH])
    assert [mix.spot_share for mix in plan.burst_mix] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert [mix.baseline_gpus for mix in plan.burst_mix] == [4, 4, 4, 4, 0]
    assert [mix.burst_usd_per_gpu_hour for mix in plan.burst_mix] == [2.0, 1.75, 1.5, 1.25, 1.0]
    assert plan.burst_mix[0].usd_per_month == plan.choices[0].usd_per_month
    assert plan_capacity("H100", DAILY, NOW, BurstPrices(2.0, None), [MONTH]).burst_mix == ()


def test_what_is_held_is_used_from_the_bottom_and_what_is_not_worth_it_lapses() -> None:
    plan = plan_capacity(
        "H100", DAILY, NOW, BurstPrices(2.0, None), [MONTH], [held(1, 2, "2.4", 10), held(2, 6, "7.2", 90)]
    )
    assert (plan.baseline_gpus > 0, plan.buy_now_gpus) == (True, 0)
    first, second = plan.held  # the longer one serves the first six GPUs
    assert [use.number for use in plan.held] == [2, 1]
    assert first.utilisation == pytest.approx((4 + 2 * 0.25) / 6)
    assert second.utilisation == pytest.approx(0.25)
    assert first.usd_per_used_gpu_hour == pytest.approx(1.2 / 0.75)
    assert (first.renew_gpus, first.let_lapse_gpus, second.renew_gpus, second.let_lapse_gpus) == (4, 2, 0, 2)
    assert [(step.action, step.gpus, step.at) for step in plan.steps] == [
        ("let_lapse", 2, NOW + timedelta(days=10)),
        ("renew", 4, NOW + timedelta(days=90)),
        ("let_lapse", 2, NOW + timedelta(days=90)),
    ]
    assert any("8 GPUs are held and 4" in note for note in plan.notes)


def test_a_holding_dearer_than_bursts_lapses_where_nothing_cheaper_can_be_held() -> None:
    plan = plan_capacity("H100", DAILY, NOW, BurstPrices(2.0, None), [], [held(1, 4, "12")])
    assert (plan.held[0].renew_gpus, plan.held[0].let_lapse_gpus) == (0, 4)
    replaced = plan_capacity("H100", DAILY, NOW, BurstPrices(2.0, None), [MONTH], [held(1, 4, "12")])
    assert (replaced.held[0].renew_gpus, replaced.held[0].renew_by) == (4, "a month")


def test_a_commitment_serves_nothing_and_pays_bursts_up_to_what_was_promised() -> None:
    promise = held(1, 8, "3", kind=HoldingKind.COMMITMENT)
    plan = plan_capacity("H100", [4] * 336, NOW, BurstPrices(2.0, None), [], [promise])
    assert plan.held_gpus == 0
    assert by_scenario(plan)[SupplyScenario.AS_IS] == pytest.approx(730 * 4 * 2.0)  # of which $3 an hour were promised
    idle = plan_capacity("H100", [0] * 336, NOW, BurstPrices(2.0, None), [], [promise])
    assert by_scenario(idle)[SupplyScenario.AS_IS] == pytest.approx(730 * 3.0)


def test_owned_machines_cost_energy_only_in_use() -> None:
    owned = held(1, 4, "0.4", 900, HoldingKind.OWNED, watts=4000)
    market = BurstPrices(2.0, None)
    busy = plan_capacity("H100", [4] * 336, NOW, market, [], [owned], kwh_usd=0.1, pue=1.5)
    idle = plan_capacity("H100", [0] * 336, NOW, market, [], [owned], kwh_usd=0.1, pue=1.5)
    assert by_scenario(busy)[SupplyScenario.AS_IS] == pytest.approx(730 * (0.4 + 4 * 0.1 * 1.5))
    assert by_scenario(idle)[SupplyScenario.AS_IS] == pytest.approx(730 * 0.4)
    assert idle.held[0].usd_per_used_gpu_hour is None


def test_past_and_future_holdings_serve_nothing_now() -> None:
    past = RecordedHolding(1, Holding(HoldingKind.RESERVATION, "H100", 4, "aws", "", NOW - timedelta(2), NOW), NOW, "a")
    ahead = RecordedHolding(
        2, Holding(HoldingKind.RESERVATION, "H100", 4, "aws", "", NOW + timedelta(1), NOW + timedelta(9)), NOW, "a"
    )
    plan = plan_capacity("H100", DAILY, NOW, BurstPrices(2.0, None), [], [past, ahead])
    assert plan.held_gpus == 0
    assert [use.number for use in plan.held] == [2]


def test_a_long_term_is_not_put_first_on_little_demand() -> None:
    cheap = PurchaseOption("three years", 3 * 8760, 0.5)
    plan = plan_capacity("H100", DAILY, NOW, BurstPrices(2.0, None), [cheap, MONTH])
    assert [choice.option for choice in plan.choices] == ["a month", "three years"]
    alone = plan_capacity("H100", DAILY, NOW, BurstPrices(2.0, None), [cheap])
    assert any("prefer a shorter term" in note for note in alone.notes)


def test_purchases_are_staggered_by_how_sure_they_are() -> None:
    rising = [10] * 300 + [12] * 60
    plan = plan_capacity("H100", rising, NOW, BurstPrices(2.0, None), [MONTH])
    buys = [step for step in plan.steps if step.action == "buy"]
    assert buys[0].condition == ""
    assert [step.at for step in buys] == sorted(step.at for step in buys)
    assert all(step.condition for step in buys[1:])
    assert sum(step.gpus for step in buys) <= 12


def test_reserving_at_or_above_the_price_of_bursts_is_never_advised() -> None:
    plan = plan_capacity("H100", DAILY, NOW, BurstPrices(2.0, 1.0, 1.0), [MONTH])
    assert not plan.baseline_gpus
    assert by_scenario(plan)[SupplyScenario.PLANNED] == by_scenario(plan)[SupplyScenario.AS_IS]
    assert any("reserve nothing" in note for note in plan.notes)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=700), st.floats(0.1, 3.0), st.floats(0.1, 3.0))
def test_costs_are_finite_and_a_dearer_reservation_never_raises_the_baseline(
    demand: list[int], one: float, other: float
) -> None:
    cheap, dear = sorted((one, other))
    market = BurstPrices(2.0, 0.9, 0.3)
    low = plan_capacity("H100", demand, NOW, market, [PurchaseOption("r", 720, cheap)])
    high = plan_capacity("H100", demand, NOW, market, [PurchaseOption("r", 720, dear)])
    assert high.choices[0].baseline_gpus <= low.choices[0].baseline_gpus
    for plan in (low, high):
        for cost in plan.scenarios:
            spread = cost.usd_per_month
            assert math.isfinite(spread.expected)
            assert 0 <= spread.low <= spread.high
            assert cost.held_usd + cost.reserved_anew_usd + cost.on_demand_usd + cost.spot_usd == pytest.approx(
                spread.expected
            )
    ordered = [row.baseline_gpus for row in low.sensitivity]
    assert ordered == sorted(ordered, reverse=True)


def test_no_demand_and_senseless_prices_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no demand"):
        plan_capacity("H100", [], NOW, BurstPrices(2.0, None))
    with pytest.raises(InvalidInput):
        plan_capacity("H100", [-1], NOW, BurstPrices(2.0, None), [MONTH])
    with pytest.raises(InvalidInput):
        BurstPrices(0.0, None)
    with pytest.raises(InvalidInput, match="spot"):
        BurstPrices(2.0, None, 0.5)
