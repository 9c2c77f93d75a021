"""Whatever dies, hangs or answers wrongly, and wherever: at most one purchase for an intent, and the money right."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from broker.app.capacity import purchases
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.values.money import Money
from tests.actors import ANN
from tests.counts import part
from tests.fakes.aws_cloud import AwsFault
from tests.procurement.conftest import TOTAL, Shop
from tests.procurement.crashes import BuyerKilled, Reaper, mortal

# More than any run has; `test_the_moments_are_all_there` counts them. The quick run tries every sixth; a full run
# another sixth each day.
MOMENTS = 24
AT = [
    pytest.param(at, marks=() if at % 6 == 1 else pytest.mark.system)
    for at in range(1, MOMENTS)
    if at % 6 in (1, part(6))
]


def well(shop: Shop) -> None:
    """AWS does what it should."""


def charged_then_reset(shop: Shop) -> None:
    shop.cloud.late_faults["PurchaseCapacityBlock"] = [AwsFault("InternalError", 500)]


def unreadable(shop: Shop) -> None:
    shop.cloud.mangle["PurchaseCapacityBlock"] = lambda body: b"<html>bad gateway</html>"


def without_an_id(shop: Shop) -> None:
    shop.cloud.mangle["PurchaseCapacityBlock"] = lambda body: body.replace(b"capacityReservationId>", b"other>")


def charged_then_reset_and_listed_late(shop: Shop) -> None:
    charged_then_reset(shop)
    shop.cloud.unlisted = 3


def refused_by_a_server_error(shop: Shop) -> None:
    """The dry run passes; the order itself meets an error of the server, and buys nothing."""
    shop.cloud.unsold = AwsFault("InternalError", 500)


WORLDS = [
    well,
    charged_then_reset_and_listed_late,
    *(
        pytest.param(world, marks=pytest.mark.system)
        for world in (charged_then_reset, unreadable, without_an_id, refused_by_a_server_error)
    ),
]


def carry_on(shop: Shop, purchase: Purchase, times: int = 8) -> Purchase:
    """Somebody looks after it every half a minute; AWS charges for what was bought."""
    found = purchase
    for _ in range(times):
        shop.clock.advance(timedelta(seconds=30))
        found = shop.advance(purchase)
        shop.paid()
    return found


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)  # what is killed is the buyer; minutes on PostgreSQL
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("at", AT)
def test_the_buyer_is_killed_everywhere(shop: Shop, world: Callable[[Shop], None], at: int) -> None:
    asked, reaper = shop.approved(), Reaper(at)
    world(shop)
    try:
        mortal(shop.broker, reaper).advance(asked.id)
    except BuyerKilled:
        pass
    else:
        assert len(reaper.moments) < at, "the reaper missed its moment"
    ended = carry_on(shop, asked)

    sent = len(shop.cloud.calls("PurchaseCapacityBlock")) - sum(
        bool(call.get("DryRun")) for _, call in shop.cloud.calls("PurchaseCapacityBlock")
    )
    assert sent <= 1
    assert len(shop.bought) <= 1
    if shop.bought:
        assert (ended.state, shop.money(asked)) == (PurchaseState.HELD, (Money.ZERO, TOTAL))
        assert len(shop.broker.store.holdings()) == 1
        return
    # The order was written down, and then was not sent or was refused without an answer: only a person may say so.
    assert (ended.state, shop.money(asked)) == (PurchaseState.UNKNOWN, (TOTAL, Money.ZERO))
    assert f"purchase/{asked.id}/unknown" in shop.notices()
    over = purchases.withdraw_purchase(shop.broker, asked.id, by=ANN, nothing_bought=True)
    assert (over.state, shop.money(asked)) == (PurchaseState.NOT_BOUGHT, (Money.ZERO, Money.ZERO))


def test_the_moments_are_all_there(shop: Shop) -> None:
    reaper = Reaper()
    mortal(shop.broker, reaper).advance(shop.approved().id)
    assert {"before order", "after order", "before a commit", "after a write", "before find_orders"} <= {
        *reaper.moments
    }
    assert len(reaper.moments) < MOMENTS


@pytest.mark.parametrize("at", AT)
def test_two_brokers_buy_once(shop: Shop, new_broker: Callable[[], Broker], at: int) -> None:
    """One is stopped at a moment, another looks after the purchase meanwhile, and the first one goes on."""
    asked = shop.approved()
    other = new_broker()

    class Pausing(Reaper):
        def moment(self, name: str) -> None:
            self.moments.append(name)
            if len(self.moments) == at:
                self.moments.append("the other one")
                if name != "before a commit":  # the other one would wait for the store
                    purchases.buyer(other).advance(asked.id)

    mortal(shop.broker, Pausing()).advance(asked.id)
    carry_on(shop, asked)
    assert len(shop.bought) == 1
    assert shop.money(asked) == (Money.ZERO, TOTAL)


def test_a_process_that_was_held_up_does_not_send_its_order(shop: Shop) -> None:
    asked = shop.approved()

    class Frozen(Reaper):
        def moment(self, name: str) -> None:
            super().moment(name)
            if name == "after a write":
                shop.clock.advance(timedelta(minutes=5))

    mortal(shop.broker, Frozen()).advance(asked.id)
    assert shop.bought == []
    assert shop.advance(asked).state is PurchaseState.UNKNOWN


def test_an_order_without_an_answer_is_looked_for_before_a_person_may_end_it(shop: Shop) -> None:
    asked = shop.approved()
    charged_then_reset_and_listed_late(shop)
    assert shop.advance(asked).state is PurchaseState.UNKNOWN
    shop.cloud.unlisted = 0
    found = purchases.withdraw_purchase(shop.broker, asked.id, by=ANN, nothing_bought=True)
    assert (found.state, len(shop.bought)) == (PurchaseState.ORDERED, 1)


def test_without_a_list_of_orders_nothing_is_given_up(shop: Shop) -> None:
    asked = shop.approved()
    charged_then_reset(shop)
    shop.cloud.faults["DescribeCapacityReservations"] = [AwsFault("UnauthorizedOperation", 403)]
    assert shop.advance(asked).state is PurchaseState.UNKNOWN
    with pytest.raises(BrokerError, match="UnauthorizedOperation"):
        purchases.withdraw_purchase(shop.broker, asked.id, by=ANN, nothing_bought=True)
    assert shop.money(asked) == (TOTAL, Money.ZERO)
