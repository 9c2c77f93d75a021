"""Capacity on record: what was added comes back as it was, also from a store of an earlier version, and a mistake can
be taken back.
"""

from datetime import UTC, datetime

import pytest

from broker.core.errors import UnknownName
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.store import Store

OWNED = Holding(
    HoldingKind.OWNED,
    "H100",
    8,
    "basement",
    "Leeds",
    datetime(2026, 1, 15, tzinfo=UTC),
    datetime(2030, 1, 15, tzinfo=UTC),
    upfront=Money.usd(250_000),
    watts=5600.0,
    note="invoice 17",
)


def test_what_was_added_comes_back(store: Store) -> None:
    added = store.add_holding(OWNED, by="ada")
    assert added.holding == OWNED
    assert (added.number, added.added_by) == (1, "ada")
    assert store.holdings() == [added]


def test_a_mistake_is_taken_off_the_record_and_its_number_is_not_used_again(store: Store) -> None:
    store.add_holding(OWNED, by="ada")
    assert store.remove_holding(1, by="bob").holding == OWNED
    assert store.holdings() == []
    assert store.add_holding(OWNED, by="ada").number == 2
    with pytest.raises(UnknownName):
        store.remove_holding(1, by="ada")


NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
PLAN = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
