"""Selling on a provider's resale market: once, whatever is lost; refused elsewhere with what to do instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from broker.app.capacity import purchases, selling
from broker.app.results.purchases import ResaleTermsResult
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, InvalidInput, NotAllowed, Refused
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.values.money import Money
from broker.procurement.reselling import offer_for_sale
from broker.procurement.using import in_use
from tests.actors import ANN, BOB, person
from tests.cli.documents import check
from tests.empty_store import empty_store
from tests.fakes.aws_cloud import AwsFault
from tests.fakes.sfcompute import SfcomputeMarket
from tests.procurement.conftest import REGION, Shop
from tests.procurement.kinds import NOW_ON, RESERVED, open_shop
from tests.procurement.markets import MarketBench, bench, sfcompute_block

LEAST = Money.usd("1500")


@pytest.fixture
def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MarketBench]:
    with bench(sfcompute_block(), tmp_path, empty_store(tmp_path / "store.db"), monkeypatch) as found:
        yield found


def held(market: MarketBench) -> Purchase:
    """A block at SF Compute that has begun."""
    asked = market.approved()
    market.carry_on(asked, times=3)
    market.clock.advance(timedelta(hours=24))
    return market.advance(asked)


def by_two(broker: Broker, id: str, least: Money = LEAST) -> Purchase:
    """Bob would sell it, and ann agrees."""
    assert selling.sell(broker, id, least=least, by=BOB).state is PurchaseState.HELD
    return selling.sell(broker, id, least=least, by=ANN)


def sales(market: MarketBench) -> list[str]:
    world = market.stall.line.market
    assert isinstance(world, SfcomputeMarket)
    world.now = market.clock.now
    return [row["status"] for row in world.orders if row["side"] == "sell"]


def test_a_block_is_sold_and_its_money_comes_back(market: MarketBench) -> None:
    bought = held(market)
    assert sales(market) == []
    terms = selling.resale_terms(market.broker, bought.id)
    # 2 nodes from 13:00 on, of 72 hours that began at 13:00 the day before, at $10 an hour
    assert (terms.machines, terms.estimate, (terms.ends - terms.starts) / timedelta(hours=1)) == (
        2, Money.usd("960"), 48,
    )  # fmt: skip
    check("capacity-resale", ResaleTermsResult.of(bought.id, terms).model_dump(mode="json", by_alias=True))
    offered = by_two(market.broker, bought.id)
    assert (offered.state, sales(market)) == (PurchaseState.SELLING, ["pending"])
    assert in_use([offered], market.clock.now()) == [], "nothing is placed in what is for sale"
    market.stall.pay()
    sold = market.advance(bought)
    assert (sold.state, sold.proceeds, sold.held) == (PurchaseState.SOLD, LEAST, Money.ZERO)
    assert market.money(bought) == (Money.ZERO, Money.usd("2304") - LEAST)
    assert market.broker.store.holdings() == []
    assert f"purchase/{bought.id}/sold" in market.notices()


@pytest.mark.parametrize("lost", ["lost", "garbled"])
def test_a_sale_without_an_answer_is_offered_once_and_found(market: MarketBench, lost: str) -> None:
    bought = held(market)
    sales(market)
    setattr(market.stall.line, lost, True)
    market.stall.line.unlisted = 1
    found = by_two(market.broker, bought.id)
    assert (found.state, len(sales(market))) == (PurchaseState.SELLING, 1)
    again = market.advance(bought)
    assert (again.sale_order is not None, len(sales(market))) == (True, 1)
    with pytest.raises(InvalidInput, match="it is selling"):
        by_two(market.broker, bought.id)


def test_an_offer_that_was_never_sent_is_ended_by_a_person(market: MarketBench) -> None:
    bought = held(market)
    sales(market)
    market.stall.line.broken = True
    found = by_two(market.broker, bought.id)
    assert (found.state, found.sale_order, sales(market)) == (PurchaseState.SELLING, None, [])
    [told] = [one for one in market.broker.store.outbox.under("purchase/") if "/selling/" in one.notice.key]
    assert "--stop" in told.notice.body
    ended = selling.end_sale(market.broker, bought.id, by=ANN)
    assert (ended.state, ended.sale) == (PurchaseState.HELD, None)


def test_an_offer_is_withdrawn_unless_it_was_sold_meanwhile(market: MarketBench) -> None:
    bought = held(market)
    sales(market)
    by_two(market.broker, bought.id)
    back = selling.end_sale(market.broker, bought.id, by=ANN)
    assert (back.state, sales(market)) == (PurchaseState.HELD, ["cancelled"])
    market.clock.advance(timedelta(minutes=5))
    by_two(market.broker, bought.id)
    market.stall.pay()
    assert selling.end_sale(market.broker, bought.id, by=ANN).state is PurchaseState.SOLD


def test_two_who_sell_at_once_offer_it_once(market: MarketBench) -> None:
    bought = held(market)
    sales(market)
    terms, now = selling.resale_terms(market.broker, bought.id), market.clock.now()

    def seller(broker: Broker) -> Callable[..., object]:
        return lambda quote: purchases.seller_of(broker, quote)

    for broker in (market.broker, market.new_broker()):
        offer_for_sale(broker.store, seller(broker), bought, terms, LEAST, "ann", now)  # type: ignore[arg-type]  # as is
    assert len(sales(market)) == 1


def test_what_could_not_be_undone_is_sold_by_two(market: MarketBench) -> None:
    bought = held(market)
    assert bought.approvals == 2
    sales(market)
    proposed = selling.sell(market.broker, bought.id, least=LEAST, by=ANN)
    assert (proposed.state, proposed.proposed_by, sales(market)) == (PurchaseState.HELD, "ann", [])
    assert f"purchase/{bought.id}/sale-proposed" in market.notices()
    assert in_use([proposed], market.clock.now()) == [proposed], "jobs stay until it is offered"
    other = Money.usd("1400")
    for by, least in ((ANN, LEAST), (BOB, other), (BOB, other)):
        assert selling.sell(market.broker, bought.id, least=least, by=by).state is PurchaseState.HELD
    market.clock.advance(timedelta(minutes=30))
    assert selling.sell(market.broker, bought.id, least=other, by=ANN).state is PurchaseState.SELLING
    assert (len(sales(market)), market.broker.store.purchase(bought.id).proposed_by) == (1, "")


def test_only_who_may_sells(market: MarketBench) -> None:
    bought = held(market)
    with pytest.raises(NotAllowed, match="cannot sell"):
        selling.sell(market.broker, bought.id, least=LEAST, by=person("carl"))
    with pytest.raises(InvalidInput, match="above 0"):
        selling.sell(market.broker, bought.id, least=Money.ZERO, by=BOB)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_reserved_instance_is_sold_on_the_marketplace(shop: Shop) -> None:
    open_shop(shop)
    RESERVED.stock(shop)
    bought = RESERVED.held(shop)
    with pytest.raises(Refused, match="active for 30 days"):
        selling.resale_terms(shop.broker, bought.id)
    shop.clock.advance(timedelta(days=40))
    shop.advance(bought)
    shop.cloud.late_faults["CreateReservedInstancesListing"] = [AwsFault("InternalError", 500)]
    offered = by_two(shop.broker, bought.id, Money.usd("10000"))
    assert (offered.state, offered.sale_order is not None) == (PurchaseState.SELLING, True)
    assert len(shop.cloud.shop.listings) == 1
    assert shop.cloud.shop.listings[0]["ClientToken"].startswith(f"{bought.id}-sale-")
    shop.cloud.shop.buy_listings()
    sold = shop.advance(bought)
    assert (sold.state, sold.proceeds) == (PurchaseState.SOLD, Money.usd("8800"))  # AWS keeps 12 %
    assert shop.money(bought) == (Money.ZERO, sold.charged)
    assert shop.cloud.reserved_instances[REGION]


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_what_has_no_market_is_refused_with_what_to_do_instead(shop: Shop) -> None:
    bought = shop.approved()
    shop.advance(bought)
    shop.paid()
    shop.advance(bought)
    open_shop(shop)
    for held_one, instead in ((bought, "jobs of all teams"), (NOW_ON.held(shop), "capacity cancel")):
        with pytest.raises(Refused, match="no market where") as caught:
            selling.sell(shop.broker, held_one.id, least=LEAST, by=ANN)
        assert instead in caught.value.hint
    assert isinstance(caught.value, BrokerError)
