"""Plans on regular demand against the cheapest constant level and against reserving nothing, computed by brute force.

A year of demand is known, and the next year is the same; a purchase is for a year, paid whole. Quoted ratios are those
of the rule without seasons, patience everywhere: 1.167, 1.143, 1.442 and 1.748.
"""

from collections.abc import Sequence

import pytest

from broker.economics.reserve.planner import Memory, Planner, Season, units_to_buy
from broker.economics.reserve.replay import ReserveTerms, Stock, replay

YEAR = 8760
HALF_DAY = [12 if hour % 24 < 12 else 4 for hour in range(YEAR)]
WEEKDAYS = [20 if hour // 24 % 7 < 5 else 5 for hour in range(YEAR)]
HIGH_QUARTER = [15 if hour >= YEAR * 3 // 4 else 4 for hour in range(YEAR)]
CONSTANT = [10] * YEAR
QUARTER_ENDS = [12 if hour // 24 % 91 >= 77 else 4 for hour in range(YEAR)]
BURSTS = [20 if hour // 48 % 15 == 7 else 4 for hour in range(YEAR)]


def cost(demand: Sequence[int], held: int, ratio: float) -> float:
    return held * ratio * len(demand) + sum(max(wanted - held, 0) for wanted in demand)


@pytest.mark.parametrize(
    ("demand", "ratio"),
    [
        (CONSTANT, 0.6), (HALF_DAY, 0.4), (HALF_DAY, 0.6), (HALF_DAY, 0.3), (WEEKDAYS, 0.6), (WEEKDAYS, 0.4),
        (HIGH_QUARTER, 0.6), (HIGH_QUARTER, 0.4), (QUARTER_ENDS, 0.6), (BURSTS, 0.6),
    ],
)  # fmt: skip
@pytest.mark.parametrize("hours_back", [0, 6, 12])  # the plan is made in the day, or at night
def test_a_regular_year_is_planned_within_5_percent(demand: list[int], ratio: float, hours_back: int) -> None:
    known = demand[: len(demand) - hours_back]
    bought = units_to_buy(Memory(YEAR, known), ratio, Stock(), 0)
    least = min(cost(demand, held, ratio) for held in {0, *demand})
    assert cost(demand, bought, ratio) <= 1.05 * least
    assert cost(demand, bought, ratio) <= 1.02 * cost(demand, 0, ratio)


@pytest.mark.parametrize(
    "demand", [CONSTANT, HALF_DAY, WEEKDAYS, QUARTER_ENDS], ids=["const", "day", "week", "quarter"]
)
def test_month_by_month_a_regular_year_never_costs_more_than_nothing(demand: list[int]) -> None:
    terms = ReserveTerms(720, 0.6)
    spent = replay(Planner(720, 0.6), demand[:4380], terms, warm_up=336).cost
    assert spent <= 1.02 * sum(demand[336:4380])


def test_a_falling_trend_is_followed() -> None:
    falling = [20 - 15 * hour // YEAR for hour in range(YEAR)]
    assert Memory(720, falling).level(0.6) < Memory(720, falling[-1000:]).level(0.6) + 1
    assert Memory(YEAR, falling).level(0.6) == 0, "less than any level is left long before a year has paid"


def test_a_rule_that_has_cost_more_than_nothing_becomes_careful() -> None:
    demand = [4] * 600 + [30] * 60 + [4] * 100 + [30] * 5
    memory = Memory(168, demand)
    assert units_to_buy(memory, 0.4, Stock(), 0, careful=True) <= 4 <= memory.level(0.4)


def test_a_pattern_that_just_broke_does_not_count() -> None:
    season = Season(720)
    season.extend(HALF_DAY[:1000])
    assert season.regular_level(0.4) == 12
    season.extend([0, 0, 0])
    assert season.regular_level(0.4) == 0


def test_weeks_that_differ_are_not_regular() -> None:
    season = Season(720)
    season.extend([hour * 7919 % 13 for hour in range(1000)])
    assert season.error is not None
    assert season.error > 0.05
    assert season.regular_level(0.2) == 0


def test_bursts_that_come_back_are_not_bought_each_time() -> None:
    """Without a look at what care from the start would have cost, this cost 1.89 times the best constant level."""
    demand = [20 if hour // 48 % 15 == 7 else 4 for hour in range(336 + 4380)]
    spent = replay(Planner(720, 0.4), demand, ReserveTerms(720, 0.4), warm_up=336).cost
    assert spent <= 1.2 * cost(demand[336:], 4, 0.4)
