"""The price book against live prices: what moved, and where to check it again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from broker.app.market.book import check_book
from broker.app.wiring import Broker
from broker.core.market.offers import CapacityType, Doubt, Offer
from broker.core.values.money import Money
from broker.settings import Settings
from cli import registries
from tests.actors import EVERYBODYS
from tests.empty_store import empty_store

BOOK = """
[[pages]]
provider = "acme"
source = "Acme prices"
url = "https://acme.example/prices"
date = "2026-10-01"
region = "west"
machines = [
  { type = "Big", gpu = "H100", n = 8, on_demand = "20", spot = "8" },
  { type = "small", gpu = "L4", n = 1, on_demand = "1" },
]
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    (tmp_path / "book.toml").write_text(BOOK)
    settings = Settings(home=tmp_path, store=empty_store(tmp_path / "store.db"))
    settings.providers["pricebook"] = {"file": str(tmp_path / "book.toml")}
    made = Broker(settings, registries(), EVERYBODYS)
    yield made
    made.store.close()


def tell(broker: Broker, *offers: Offer) -> None:
    now = broker.clock.now()
    broker.store.record_poll("acme", started=now - timedelta(seconds=1), finished=now, offers=offers)


def live(broker: Broker, price: str, **changed: object) -> Offer:
    pool = ("acme", "west", None, "big", "H100", 8, CapacityType.ON_DEMAND)
    told = Offer(*pool, Money.usd(price), broker.clock.now(), "api")
    return replace(told, **changed)  # type: ignore[arg-type]  # fields of an offer


def test_the_row_that_moved_most_is_first_with_its_page(broker: Broker) -> None:
    spot = live(broker, "8.1", capacity_type=CapacityType.SPOT)
    tell(broker, live(broker, "25"), live(broker, "22", zone="west-a"), live(broker, "1", region="east"), spot)
    first, second, third = check_book(broker).rows
    assert (first.instance_type, first.moved) == ("Big", True)
    assert first.change == pytest.approx(0.1)
    assert (first.url, str(first.page_date)) == ("https://acme.example/prices", "2026-10-01")
    assert second.change == pytest.approx(0.0125)
    assert not second.moved
    assert (third.instance_type, third.live_price_per_hour, third.change) == ("small", None, None)


def test_a_price_in_doubt_moves_nothing(broker: Broker) -> None:
    tell(broker, live(broker, "2"))
    with broker.store._database.writing() as connection:
        from broker.store.schema.market import OfferRow

        connection.execute(update(OfferRow).values(doubt=Doubt.TOO_LOW.value))
    assert all(row.live_price_per_hour is None for row in check_book(broker).rows)
