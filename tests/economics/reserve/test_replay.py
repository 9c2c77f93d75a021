"""The measuring rule, worked by hand, and what must hold of every rule of purchase on any demand."""

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import InvalidInput
from broker.economics.reserve.planner import Planner
from broker.economics.reserve.replay import Buyer, ReserveTerms, Stock, charge, replay
from tests.lab.reserve_rules import OnDemand, StaggeredQuantile, static_best, wang, wang_randomised


class ScriptedBuyer:
    """Buys what it was told, and keeps what it was shown."""

    def __init__(self, orders: dict[int, int]) -> None:
        self.orders = orders
        self.seen: list[float] = []
        self.seen_at: list[int] = []
        self.left: list[int | None] = []

    def remember(self, history: Iterable[float]) -> None:
        self.seen += history

    def buy(self, stock: Stock, hour: int, hours_left: int | None) -> int:
        self.seen_at.append(len(self.seen))
        self.left.append(hours_left)
        return self.orders.get(hour, 0)

    def observe(self, demand: float, held: int) -> None:
        self.seen.append(demand)


# Hours 0 and 1 are history; what counts is 3, 5, 2, 4. Two units bought at the first hour that counts and one at its
# third, for three hours each: 2, 2, 3, 1 are held. On demand: 1 + 3 + 0 + 3 = 7. Idle: 0 + 0 + 1 + 0.
DEMAND = [9, 9, 3, 5, 2, 4]
ORDERS = {0: 2, 2: 1}


def test_by_hand_with_the_end_unknown() -> None:
    buyer = ScriptedBuyer(ORDERS)
    outcome = replay(buyer, DEMAND, ReserveTerms(3, 0.5), warm_up=2)
    assert outcome.held == (2, 2, 3, 1)
    assert outcome.on_demand == 7
    assert outcome.idle == 1
    # Two units for three hours at 0.5, and one for the two hours that are left of the series.
    assert outcome.reserved == pytest.approx(2 * 3 * 0.5 + 1 * 2 * 0.5)
    assert outcome.cost == pytest.approx(11)
    assert buyer.left == [None] * 4


def test_by_hand_with_the_end_known() -> None:
    buyer = ScriptedBuyer(ORDERS)
    outcome = replay(buyer, DEMAND, ReserveTerms(3, 0.5, end_known=True), warm_up=2)
    assert outcome.reserved == pytest.approx(3 * 3 * 0.5)  # whole terms
    assert outcome.cost == pytest.approx(11.5)
    assert buyer.left == [4, 3, 2, 1]


def test_at_the_start_of_an_hour_only_the_hours_before_it_are_known() -> None:
    buyer = ScriptedBuyer({})
    replay(buyer, DEMAND, ReserveTerms(3, 0.5), warm_up=2)
    assert buyer.seen_at == [2, 3, 4, 5]
    assert buyer.seen == DEMAND


def rules(terms: ReserveTerms) -> list[Buyer]:
    return [Planner(terms.term, terms.ratio), StaggeredQuantile(terms.ratio), wang(terms), OnDemand()]


demands = st.lists(st.integers(0, 25), min_size=1, max_size=200)
terms_of = st.builds(ReserveTerms, st.integers(1, 60), st.floats(0.05, 1.3), st.booleans())


@given(demands, terms_of)
def test_costs_are_finite_and_not_negative_and_all_demand_is_served(demand: list[int], terms: ReserveTerms) -> None:
    outcomes = [replay(rule, demand, terms) for rule in [*rules(terms), *wang_randomised(terms, 3)]]
    for outcome in [*outcomes, static_best(demand, terms)]:
        assert math.isfinite(outcome.cost)
        assert min(outcome.reserved, outcome.on_demand, outcome.idle) >= 0
        used = sum(min(wanted, held) for wanted, held in zip(demand, outcome.held, strict=True))
        assert used + outcome.on_demand == sum(demand)
        assert used + outcome.idle == sum(outcome.held)


@given(demands, st.integers(1, 60), st.floats(0.05, 1.0))
def test_the_best_static_level_is_the_best_of_all_levels(demand: list[int], term: int, ratio: float) -> None:
    for end_known in (False, True):
        terms = ReserveTerms(term, ratio, end_known)
        renewals = range(0, len(demand), term)
        each = [charge([(hour, units) for hour in renewals], demand, terms).cost for units in range(max(demand) + 1)]
        assert static_best(demand, terms).cost == pytest.approx(min(each))


@pytest.mark.parametrize("demand", [[1.0, -2.0], [1.0, float("nan")], [float("inf")]])
def test_demand_that_is_none_is_refused(demand: list[float]) -> None:
    with pytest.raises(InvalidInput):
        replay(OnDemand(), demand, ReserveTerms(3, 0.5))


def test_a_warm_up_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="leaves nothing"):
        replay(OnDemand(), [1, 2], ReserveTerms(3, 0.5), warm_up=2)
