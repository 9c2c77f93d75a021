"""The optimum: as found by trying everything, never above any rule."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import InvalidInput
from broker.economics.reserve.planner import Planner
from broker.economics.reserve.replay import ReserveTerms, charge, replay
from tests.lab.reserve_rules import OnDemand, StaggeredQuantile, optimum, static_best, wang

small = st.lists(st.integers(0, 2), min_size=1, max_size=6)
demands = st.lists(st.integers(0, 25), min_size=1, max_size=150)
terms_of = st.builds(ReserveTerms, st.integers(1, 40), st.floats(0.05, 1.3), st.booleans())


@given(small, st.integers(1, 4), st.floats(0.05, 1.2), st.booleans())
def test_it_is_what_trying_every_purchase_finds(demand: list[int], term: int, ratio: float, end_known: bool) -> None:
    terms = ReserveTerms(term, ratio, end_known)
    every = product(range(max(demand) + 1), repeat=len(demand))
    least = min(charge([(h, n) for h, n in enumerate(units) if n], demand, terms).cost for units in every)
    assert optimum(demand, terms).cost == pytest.approx(least)


@given(demands, terms_of)
def test_no_rule_costs_less(demand: list[int], terms: ReserveTerms) -> None:
    best = optimum(demand, terms).cost
    for rule in (Planner(terms.term, terms.ratio), StaggeredQuantile(terms.ratio), wang(terms), OnDemand()):
        assert replay(rule, demand, terms).cost >= best - 1e-6 * max(best, 1)
    assert static_best(demand, terms).cost >= best - 1e-6 * max(best, 1)


def test_fractions_of_units_are_refused() -> None:
    with pytest.raises(InvalidInput, match="whole"):
        optimum([1.5, 2], ReserveTerms(3, 0.5))


def test_no_demand_costs_nothing() -> None:
    assert optimum([0] * 10, ReserveTerms(3, 0.5)).cost == 0
