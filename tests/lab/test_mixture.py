"""The mixture of purchase rules: its bound holds on any demand, and it follows the rule that costs less."""

from __future__ import annotations

import random

import pytest

from broker.economics.reserve.planner import Planner
from broker.economics.reserve.replay import Buyer, ReserveTerms, replay
from tests.lab.reserve_rules import Mixture, OnDemand, StaggeredQuantile


def hostile(seed: int) -> list[int]:
    """Levels that jump, and long stretches of nothing."""
    chance = random.Random(seed)
    demand: list[int] = []
    while len(demand) < 1000:
        level = chance.choice([0, 0, 1, 5, 30])
        demand += [max(level + chance.randrange(-3, 4), 0) for _ in range(chance.randrange(5, 300))]
    return demand


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("ratio", [0.3, 0.6, 0.9])
def test_it_costs_at_most_its_bound_over_each_of_its_rules(seed: int, ratio: float) -> None:
    demand, terms = hostile(seed), ReserveTerms(168, ratio)
    mixture = Mixture(168, ratio, priors=(0.6, 0.2, 0.2))
    spent = replay(mixture, demand, terms, warm_up=168).cost
    alone: list[Buyer] = [Planner(168, ratio), StaggeredQuantile(ratio), OnDemand()]
    for place, rule in enumerate(alone):
        own = replay(rule, demand, terms, warm_up=168).cost
        assert spent <= mixture.bound(place)
        assert mixture.bound(place) >= own - 1e-6, "the bound is the rule's cost and what is added"


def test_weights_leave_a_rule_that_costs_more() -> None:
    class Spender(OnDemand):
        def buy(self, stock: object, hour: int, hours_left: int | None) -> int:
            return 10 if hour % 24 == 0 else 0

    mixture = Mixture(24, 0.6, [Spender(), OnDemand()], (0.5, 0.5))
    replay(mixture, [1] * 2000, ReserveTerms(24, 0.6))
    assert mixture.weights[0] < 0.01


def test_a_single_rule_is_that_rule() -> None:
    demand, terms = hostile(7), ReserveTerms(168, 0.5)
    alone = replay(Planner(168, 0.5), demand, terms, warm_up=168)
    assert replay(Mixture(168, 0.5, [Planner(168, 0.5)], (1.0,)), demand, terms, warm_up=168) == alone


class Holder(OnDemand):
    """Buys so many units in the first hour."""

    def __init__(self, units: int) -> None:
        self._units = units

    def buy(self, stock: object, hour: int, hours_left: int | None) -> int:
        return self._units if hour == 0 else 0


def test_it_buys_each_rules_share() -> None:
    mixture = Mixture(24, 0.6, [Holder(10), OnDemand()], (0.5, 0.5))
    assert replay(mixture, [10] * 20, ReserveTerms(24, 0.6)).purchases == ((0, 5),)


def test_the_bound_by_hand() -> None:
    """Ten hours: the holder pays 0.6 an hour, the other rule 1; the mixture holds 1 unit, the mean is half of one."""
    mixture = Mixture(24, 0.6, [Holder(1), OnDemand()], (0.5, 0.5))
    replay(mixture, [1] * 10, ReserveTerms(24, 0.6))
    spread, apart = 10 * 0.4, 10 * 0.5 * 0.6
    assert mixture.bound(0) == pytest.approx(6 + spread + apart)
    assert mixture.bound(1) == pytest.approx(10 + spread + apart)
