"""Undoing what was bought beside AWS, and what becomes of it at its end: each way that the providers have."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from broker.app.capacity import purchases
from broker.core.errors import BrokerError, Refused
from broker.core.purchases.purchase_events import NotBought
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.purchases.quotes import ENDS_AT_TERM
from broker.core.values.money import Money
from tests.actors import ANN
from tests.fakes.gcp_rows import sku
from tests.procurement.markets import MarketBench, gcp_calendar, gcp_commitment, gcp_reservation

pytestmark = pytest.mark.system
Open = Callable[[Any], AbstractContextManager[MarketBench]]


def azure(name: str) -> Any:
    from tests.procurement import azure_market

    return getattr(azure_market, name)


def held(market: MarketBench) -> Purchase:
    asked = market.approved()
    found = market.carry_on(asked, times=3)
    assert found.state is PurchaseState.HELD
    return found


def test_a_google_reservation_is_deleted_and_billed_until_then(opened: Open) -> None:
    with opened(gcp_reservation) as market:
        bought = held(market)
        market.clock.advance(timedelta(hours=24))
        gone = purchases.undo(market.broker, bought.id, by=ANN)
        assert (gone.state, market.stall.bought(), gone.held) == (PurchaseState.UNDONE, [], Money.ZERO)
        spent = market.money(bought)[1]
        assert Money.ZERO < spent < bought.quote.total


def test_a_calendar_reservation_is_cancelled_until_its_lock_time(opened: Open) -> None:
    with opened(gcp_calendar) as market:
        bought, [row] = held(market), market.stall.bought()
        with pytest.raises(Refused, match="no time until which"):
            purchases.undo_terms(market.broker, bought.id)
        row["status"]["lockTime"] = (market.clock.now() + timedelta(days=1)).isoformat()
        assert purchases.undo_terms(market.broker, bought.id).way == "cancel"
        market.clock.advance(timedelta(days=1))
        with pytest.raises(Refused, match="it is locked"):
            purchases.undo_terms(market.broker, bought.id)
        row["status"]["lockTime"] = (market.clock.now() + timedelta(hours=1)).isoformat()
        gone = purchases.undo(market.broker, bought.id, by=ANN)
        assert (gone.state, gone.charged, row["status"]["procurementStatus"]) == (
            PurchaseState.UNDONE, Money.ZERO, "CANCELLED",
        )  # fmt: skip


@pytest.mark.parametrize("word", ["DECLINED", "FAILED"])
def test_what_google_does_not_deliver_releases_its_money(opened: Open, word: str) -> None:
    with opened(gcp_calendar) as market:
        asked = market.approved()
        assert market.advance(asked).state is PurchaseState.ORDERED
        market.stall.bought()[0]["status"]["procurementStatus"] = word
        ended = market.advance(asked)
        assert (ended.reason, market.money(asked)) == (NotBought.PROVIDER_REFUSED, (Money.ZERO, Money.ZERO))


def test_prices_of_flex_start_are_no_reservation(opened: Open) -> None:
    with opened(gcp_reservation) as market:
        world: Any = market.stall.line.market
        before = market.quote()
        world.skus += [
            sku("DWS Flex Start A3 Core running in Americas", "0.01"),
            sku("DWS Flex Start A3 Ram running in Americas", "0.001", unit="GiBy.h"),
            sku("DWS Flex Start Nvidia H100 80GB GPU running in Americas", "3"),
            sku(
                "SSD backed Local Storage attached to DWS Defined Duration VMs",
                "0.01",
                unit="GiBy.mo",
                group="LocalSSD",
            ),
        ]
        assert market.quote().total == before.total


def test_an_operation_that_fails_later_bought_nothing(opened: Open) -> None:
    with opened(gcp_reservation) as market:
        asked = market.approved()
        world: Any = market.stall.line.market
        world.shop.fails = "ZONE_RESOURCE_POOL_EXHAUSTED"
        ended = market.carry_on(asked, times=2)
        assert (ended.reason, "EXHAUSTED" in ended.evidence) == (NotBought.PROVIDER_REFUSED, True)
        assert market.money(asked) == (Money.ZERO, Money.ZERO)


def test_a_google_commitment_is_never_taken_back(opened: Open) -> None:
    with opened(gcp_commitment) as market:
        bought = held(market)
        assert (bought.approvals, [row["plan"] for row in market.stall.bought()]) == (2, ["TWELVE_MONTH"])
        with pytest.raises(Refused, match="takes none back"):
            purchases.undo_terms(market.broker, bought.id)


def test_an_azure_reservation_is_deleted_at_its_end_or_before(opened: Open) -> None:
    with opened(azure("azure_reservation")) as market:
        first = held(market)
        market.clock.advance(timedelta(hours=5))
        gone = purchases.undo(market.broker, first.id, by=ANN)
        assert (gone.state, market.stall.bought()) == (PurchaseState.UNDONE, [])
        second = held(market)
        for _ in range(5):
            market.clock.advance(timedelta(days=1))
            ended = market.advance(second)
        assert ended.undo is not None
        assert (ended.state, ended.undo.way, market.stall.bought()) == (PurchaseState.UNDONE, ENDS_AT_TERM, [])
        assert market.money(second)[0] == Money.ZERO
        [told] = [one.notice for one in market.broker.store.outbox.under(f"purchase/{second.id}/undone")]
        assert told.title == f"Ended: {second.id}"


def test_an_azure_reservation_that_is_in_use_at_its_end_is_tried_again(opened: Open) -> None:
    with opened(azure("azure_reservation")) as market:
        bought = held(market)
        world: Any = market.stall.line.market
        world.shop.in_use = True
        market.clock.advance(timedelta(days=4))
        for _ in range(3):
            with pytest.raises(BrokerError, match="allocated in it"):
                market.advance(bought)
        assert f"purchase/{bought.id}/not-ended" in market.notices()
        world.shop.in_use = False
        assert (market.advance(bought).state, market.stall.bought()) == (PurchaseState.UNDONE, [])


def test_without_the_resource_group_nothing_is_ordered(opened: Open) -> None:
    with opened(azure("azure_reservation")) as market:
        asked = market.approved()
        world: Any = market.stall.line.market
        world.shop.resource_groups.clear()
        ended = market.advance(asked)
        assert (ended.reason, "resource group" in ended.evidence) == (NotBought.PROVIDER_REFUSED, True)


def test_azure_returns_a_reservation_at_its_quoted_refund_within_its_limit(opened: Open) -> None:
    with opened(azure("azure_reserved")) as market:
        bought = held(market)
        world: Any = market.stall.line.market
        world.shop.policy_error = "the yearly limit of refunds is reached"
        with pytest.raises(Refused, match="yearly limit"):
            purchases.undo_terms(market.broker, bought.id)
        world.shop.policy_error, world.shop.refund = "", Decimal("900000")
        gone = purchases.undo(market.broker, bought.id, by=ANN)
        assert (gone.state, gone.charged) == (PurchaseState.UNDONE, Money.usd(100_000))
        assert market.money(bought) == (Money.ZERO, Money.usd(100_000))
