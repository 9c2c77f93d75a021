"""Orders that carry no mark of ours, as at SF Compute: two of the same could not be told apart."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from broker.core.purchases.purchases import PurchaseState
from tests.fakes.sfcompute import SfcomputeMarket
from tests.procurement.markets import MarketBench, bench, sfcompute_block


@pytest.fixture
def market(tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[MarketBench]:
    with bench(sfcompute_block(), tmp_path, store_url, monkeypatch) as found:
        yield found


def lost(market: MarketBench) -> None:
    """The provider takes the order; the answer is lost, and the order is listed late."""
    market.stall.line.lost, market.stall.line.unlisted = True, 2 * market.stall.looks


def test_two_orders_of_the_same_are_not_in_flight_together(market: MarketBench) -> None:
    first, second = market.approved(), market.approved()
    lost(market)
    assert market.advance(first).state is PurchaseState.UNKNOWN
    assert market.advance(second).state is PurchaseState.APPROVED
    assert len(market.stall.bought()) == 1
    orders = [market.carry_on(one).order for one in (first, second)]
    assert [order.id if order else None for order in orders] == ["ordr_0", "ordr_1"]
    assert len(market.stall.bought()) == 2


def test_several_orders_that_could_be_it_are_left_to_a_person(market: MarketBench) -> None:
    asked = market.approved()
    lost(market)
    assert market.advance(asked).state is PurchaseState.UNKNOWN
    [row] = market.stall.bought()
    sold = market.stall.line.market
    assert isinstance(sold, SfcomputeMarket)
    sold.orders.append({**row, "id": "ordr_of_the_console"})
    market.stall.line.unlisted = 0
    assert market.advance(asked).state is PurchaseState.UNKNOWN
    row["created_at"] = (market.clock.now() - timedelta(hours=1)).isoformat()  # not this one, then
    found = market.advance(asked)
    assert found.order is not None
    assert found.order.id == "ordr_of_the_console"
