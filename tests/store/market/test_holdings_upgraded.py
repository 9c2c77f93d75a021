"""Holdings of a store of an earlier version, where only the note said what the provider calls them."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta

from broker.core.values.clock import ManualClock
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.store import open_store
from tests.store.older import take_back

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
