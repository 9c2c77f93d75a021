"""Rules of thumb of the active policies, as advice takes them."""

import pytest

from broker.app.assumptions import assumptions_from_files, load_assumptions
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.economics.assumptions import DEFAULTS

RULES = "{rent_below_hours_per_day: 5, grid_of_days: [0.5, 0.8]}"
POLICY = f"version: 1\npolicy: mine\nassumptions: {RULES}\n"


def never() -> Broker:
    raise AssertionError("there is no store")


def test_without_a_store_or_a_policy_the_defaults_hold(broker: Broker) -> None:
    assert load_assumptions(broker.settings.store_url + ".missing", never) is DEFAULTS
    assert broker.store.active_policy() is None
    assert load_assumptions(broker.settings.store_url, lambda: broker) is DEFAULTS


def test_files_may_agree_but_not_contradict() -> None:
    more = "version: 1\nassumptions: {rent_below_hours_per_day: 5, mfu: 0.35}\n"
    found = assumptions_from_files({"a.yaml": POLICY, "b.yaml": more})
    assert (found.rent_below_hours_per_day, found.mfu) == (5, 0.35)
    with pytest.raises(InvalidInput) as caught:
        assumptions_from_files({"a.yaml": POLICY, "b.yaml": more.replace("5", "3", 1)})
    (problem,) = caught.value.problems
    assert (caught.value.where, problem.message) == ("b.yaml", "contradicts a.yaml:3: 3 here, and 5 there")


def test_every_rule_that_makes_no_sense_is_told_with_its_place() -> None:
    rules = "{rent_below_hours: 5, mfu: -1, grid_of_days: 0.5, mtbf: 2}"
    with pytest.raises(InvalidInput) as caught:
        assumptions_from_files({"a.yaml": f"version: 1\nassumptions: {rules}\n"})
    found = [f"{p.line}:{p.column} {p.key}: {p.message}" for p in caught.value.problems]
    assert found[:2] == [
        "2:15 assumptions.rent_below_hours: unknown assumption 'rent_below_hours'; did you mean"
        " 'rent_below_hours_per_day'?",
        "2:41 assumptions.mfu: expected a number above 0, up to 1; got '-1'",
    ]
    assert [p.column for p in caught.value.problems] == [15, 41, 59, 64]
