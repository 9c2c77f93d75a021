"""Policy versions and settings."""

from datetime import timedelta

import pytest

from broker.core.errors import Conflict
from broker.core.values.clock import ManualClock
from broker.store import Store


def test_the_last_activation_is_in_force(store: Store, clock: ManualClock) -> None:
    assert store.active_policy() is None
    first = store.activate_policy({"team.yaml": "budgets: []\n"}, by="ada", note="the first")
    clock.advance(timedelta(hours=1))
    second = store.activate_policy({"team.yaml": "budgets: []\n", "ü.yaml": "x"}, by="bob")
    assert (first.number, second.number) == (1, 2)
    assert store.active_policy() == second
    assert second.files == {"team.yaml": "budgets: []\n", "ü.yaml": "x"}
    assert second.activated_at - first.activated_at == timedelta(hours=1)
    assert store.policy_history() == [second, first]
    assert store.activate_policy(first.files, by="ada").number == 3


def test_activating_what_is_in_force_records_nothing(store: Store) -> None:
    first = store.activate_policy({"a": "1", "b": "2"}, by="ada")
    assert store.activate_policy({"b": "2", "a": "1"}, by="bob") == first
    assert len(store.policy_history()) == 1


def test_a_version_that_replaces_another_than_was_seen_is_refused(store: Store) -> None:
    store.activate_policy({"a": "1"}, by="ada", base=0)
    with pytest.raises(Conflict, match="version 1 is active, not 0"):
        store.activate_policy({"a": "2"}, by="bob", base=0)
    assert store.activate_policy({"a": "2"}, by="bob", base=1).number == 2


def test_settings_are_kept(store: Store) -> None:
    assert store.setting("clock") is None
    store.set_setting("clock", "one")
    store.set_setting("clock", "two")
    assert store.setting("clock") == "two"
    assert store.keep_setting("clock", "three") == "two"
    assert store.keep_setting("sandbox", "first") == "first"
    assert store.setting("sandbox") == "first"
