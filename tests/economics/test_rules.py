"""Rules of thumb are data: any of them may be replaced, and a slip is told."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from broker.core.errors import InvalidInput, UnknownName
from broker.economics.buy_or_rent import BuyOrRentInputs, buy_or_rent
from broker.economics.rules import DEFAULTS, RulesOfThumb, replaced


def test_some_are_replaced_and_the_rest_stays() -> None:
    given = {"memory_headroom": 0.15, "gpus_per_node": 4, "quoted_cluster_usd_per_gpu_hour": [6, 9]}
    own = replaced(given)
    assert (own.memory_headroom, own.gpus_per_node, own.quoted_cluster_usd_per_gpu_hour) == (0.15, 4, (6, 9))
    kept = {f.name for f in fields(RulesOfThumb)} - given.keys()
    assert all(getattr(own, name) == getattr(DEFAULTS, name) for name in kept)
    assert replaced({}) == DEFAULTS


def test_a_replaced_rule_is_what_the_arithmetic_is_held_against() -> None:
    case = BuyOrRentInputs(purchase_usd=12_000, rent_usd_per_hour=5.12, years=3)  # pays above 2.1 h/day
    usual = {check.rule: check.holds for check in buy_or_rent(case).rules_of_thumb}
    own = {
        check.rule: check.holds for check in buy_or_rent(case, replaced({"rent_below_hours_per_day": 2})).rules_of_thumb
    }
    assert usual["under 4 h/day: rent"] is False
    assert own["under 2 h/day: rent"] is True


def test_an_unknown_name_is_told_with_what_was_meant() -> None:
    with pytest.raises(UnknownName, match="did you mean 'memory_headroom'"):
        replaced({"memory_hedroom": 0.1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory_headroom", "10%"),
        ("memory_headroom", -0.1),
        ("memory_headroom", True),
        ("memory_headroom", float("nan")),
        ("gpus_per_node", 7.5),
        ("quoted_cluster_usd_per_gpu_hour", 0.3),
        ("quoted_cluster_usd_per_gpu_hour", [0.3]),
        ("quoted_cluster_usd_per_gpu_hour", [0.3, "half"]),
        ("grades", [["A", 0.9]]),
    ],
)
def test_what_is_no_such_value_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"rules.yaml: {name}: expected|{name}: expected"):
        replaced({name: value}, "rules.yaml")
