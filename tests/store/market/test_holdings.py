"""Capacity on record: what was added comes back as it was, also from a store of an earlier version, and a mistake can
be taken back.
"""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from broker.core.errors import UnknownName
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.store import Store, open_store
from tests.store.older import take_back

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


def test_the_upgrade_takes_the_providers_id_from_the_note(url: str, clock: ManualClock) -> None:
    notes = {
        "cr-0123456789abcdef0 (purchase-1)": "cr-0123456789abcdef0",
        f"invoice 7, {PLAN}": PLAN,
        "the two in the basement": "",
    }
    with closing(open_store(url, clock=clock)) as store:
        for note in notes:
            held = Holding(HoldingKind.RESERVATION, "H100", 8, "aws", "us", NOW, NOW + timedelta(days=1), note=note)
            store.add_holding(held, by="ann")
        with store._database.writing() as connection:
            take_back(connection, "0025")
    with closing(open_store(url, clock=clock)) as store:
        assert {one.holding.note: one.holding.order_id for one in store.holdings()} == notes
