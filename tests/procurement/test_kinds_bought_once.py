"""Every kind of product, killed before and after every write and call, with answers lost, unreadable and listed late:
exactly one purchase per intent, the hold right, the ledger balanced."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from broker.app.capacity import purchases
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.core.purchases.purchase_events import NotBought
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.purchases.quotes import Undo
from broker.core.values.money import Money
from tests.actors import ANN
from tests.counts import part
from tests.fakes.aws_cloud import AwsFault
from tests.procurement.conftest import Shop
from tests.procurement.crashes import MOMENTS, Reaper, advance_and_die, advance_beside, moments_of, mortal
from tests.procurement.kinds import BLOCK, KINDS, LATER, NOW_ON, PLAN, Kind, open_shop

SOLD = (BLOCK, *KINDS)
AT = [
    pytest.param(at, marks=() if at % 12 == 4 else pytest.mark.system)
    for at in range(1, MOMENTS)
    if at % 12 == 4 or at % 6 == part(6)
]
CRASHES = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


def well(shop: Shop, kind: Kind) -> None:
    """AWS does what it should."""


def charged_then_reset(shop: Shop, kind: Kind) -> None:
    shop.cloud.late_faults[kind.call] = [AwsFault("InternalError", 500)]


def charged_then_reset_and_listed_late(shop: Shop, kind: Kind) -> None:
    charged_then_reset(shop, kind)
    shop.cloud.unlisted = shop.cloud.shop.unlisted = 3


def unreadable(shop: Shop, kind: Kind) -> None:
    shop.cloud.mangle[kind.call] = lambda body: b"<html>bad gateway</html>"


def refused_by_a_server_error(shop: Shop, kind: Kind) -> None:
    """The dry run passes; the order itself meets an error of the server, and buys nothing."""
    shop.cloud.unsold = AwsFault("InternalError", 500)


def without_an_id(shop: Shop, kind: Kind) -> None:
    shop.cloud.mangle[kind.call] = lambda body: body.replace(b"capacityReservationId>", b"other>")


OTHERS = (well, charged_then_reset, unreadable, refused_by_a_server_error)
WORLDS = [
    *((kind, charged_then_reset_and_listed_late) for kind in SOLD),
    *(pytest.param(kind, world, marks=pytest.mark.system) for kind in SOLD for world in OTHERS),
    pytest.param(BLOCK, without_an_id, marks=pytest.mark.system),
]


def carry_on(shop: Shop, kind: Kind, purchase: Purchase, times: int = 12) -> Purchase:
    """Somebody looks after it every half a minute; AWS charges for what was bought."""
    found = purchase
    for _ in range(times):
        shop.clock.advance(timedelta(seconds=30))
        found = shop.advance(purchase)
        kind.paid(shop)
    return found


@CRASHES
@pytest.mark.parametrize(("kind", "world"), WORLDS)
@pytest.mark.parametrize("at", AT)
def test_the_buyer_is_killed_everywhere(shop: Shop, kind: Kind, world: Callable[[Shop, Kind], None], at: int) -> None:
    open_shop(shop)
    kind.stock(shop)
    asked = kind.approved(shop)
    world(shop, kind)
    advance_and_die(shop.broker, asked, at)
    ended = carry_on(shop, kind, asked)
    assert len(kind.bought(shop)) <= 1
    assert kind.sent(shop) <= 1 or kind is not BLOCK, "AWS would have sold it twice"
    shop.check_end(asked, ended, bool(kind.bought(shop)), kind.upfront)


@pytest.mark.parametrize("kind", SOLD, ids=str)
def test_the_moments_are_all_there(shop: Shop, kind: Kind) -> None:
    open_shop(shop)
    kind.stock(shop)
    asked = kind.approved(shop)
    found = {"before find_orders"} if kind is BLOCK else set()
    assert {"before order", "after order", "before a commit", "after a write"} | found <= moments_of(shop.broker, asked)


@CRASHES
@pytest.mark.parametrize("kind", SOLD, ids=str)
@pytest.mark.parametrize("at", AT)
def test_two_brokers_buy_once(shop: Shop, new_broker: Callable[[], Broker], kind: Kind, at: int) -> None:
    open_shop(shop)
    kind.stock(shop)
    asked = kind.approved(shop)
    advance_beside(shop.broker, new_broker(), asked, at)
    ended = carry_on(shop, kind, asked)
    assert len(kind.bought(shop)) == 1
    assert shop.money(asked) == (ended.quote.recurring, kind.upfront)


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
    charged_then_reset_and_listed_late(shop, BLOCK)
    assert shop.advance(asked).state is PurchaseState.UNKNOWN
    shop.cloud.unlisted = shop.cloud.shop.unlisted = 0
    found = purchases.withdraw_purchase(shop.broker, asked.id, by=ANN, nothing_bought=True)
    assert (found.state, len(shop.bought)) == (PurchaseState.ORDERED, 1)


def test_without_a_list_of_orders_nothing_is_given_up(shop: Shop) -> None:
    asked = shop.approved()
    charged_then_reset(shop, BLOCK)
    shop.cloud.faults["DescribeCapacityReservations"] = [AwsFault("UnauthorizedOperation", 403)]
    assert shop.advance(asked).state is PurchaseState.UNKNOWN
    with pytest.raises(BrokerError, match="UnauthorizedOperation"):
        purchases.withdraw_purchase(shop.broker, asked.id, by=ANN, nothing_bought=True)
    assert shop.money(asked) == (asked.ceiling, Money.ZERO)


@pytest.mark.parametrize("kind", [NOW_ON, PLAN], ids=str)
def test_an_order_that_aws_knows_by_its_key_is_sent_again(shop: Shop, kind: Kind) -> None:
    open_shop(shop)
    kind.stock(shop)
    asked = kind.approved(shop)
    refused_by_a_server_error(shop, kind)
    assert shop.advance(asked).state is PurchaseState.UNKNOWN
    shop.cloud.unsold = None
    assert shop.advance(asked).state is PurchaseState.UNKNOWN, "the first call may still be on its way"
    shop.clock.advance(timedelta(seconds=20))
    assert shop.advance(asked).order is not None
    tokens = {call.get("ClientToken") or call.get("clientToken") for _, call in shop.cloud.calls(kind.call)}
    assert (len(kind.bought(shop)), tokens - {None}) == (1, {asked.id})


def test_a_refusal_of_a_repeated_order_says_nothing_of_the_first(shop: Shop) -> None:
    open_shop(shop)
    asked = NOW_ON.approved(shop)
    refused_by_a_server_error(shop, NOW_ON)
    shop.advance(asked)
    shop.cloud.unsold = AwsFault("InsufficientInstanceCapacity", 400)
    shop.clock.advance(timedelta(seconds=20))
    found = shop.advance(asked)
    assert (found.state, found.repeats, NOW_ON.sent(shop)) == (PurchaseState.UNKNOWN, 1, 2)
    assert shop.money(asked) == (asked.ceiling, Money.ZERO), "the first may have been taken"


def test_an_order_is_not_repeated_for_ever(shop: Shop) -> None:
    open_shop(shop)
    asked = NOW_ON.approved(shop)
    refused_by_a_server_error(shop, NOW_ON)
    ended = carry_on(shop, NOW_ON, asked, times=40)
    assert (ended.state, ended.repeats, NOW_ON.sent(shop)) == (PurchaseState.UNKNOWN, 3, 4)
    assert shop.notices().count(f"purchase/{asked.id}/unknown") == 1


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_price_that_rises_between_quote_and_order_is_not_paid(shop: Shop, kind: Kind) -> None:
    open_shop(shop)
    kind.stock(shop)
    asked = kind.approved(shop)
    raise_prices(shop)
    ended = shop.advance(asked)
    assert (ended.state, ended.reason) == (PurchaseState.NOT_BOUGHT, NotBought.DEARER)
    assert (kind.bought(shop), shop.money(asked)) == ([], (Money.ZERO, Money.ZERO))


def raise_prices(shop: Shop) -> None:
    shop.cloud.products = [text.replace('"USD": "10"', '"USD": "10.01"') for text in shop.cloud.products]
    for rate in shop.cloud.rates:
        rate["rate"] = "6.00001"


@pytest.mark.parametrize(
    ("kind", "undo", "approvals"),
    [(NOW_ON, Undo.ANY_TIME, 1), (LATER, Undo.QUOTE, 1), (PLAN, Undo.UNTIL, 1)],
    ids=str,
)
def test_how_it_can_be_undone_decides_how_many_approve(shop: Shop, kind: Kind, undo: Undo, approvals: int) -> None:
    open_shop(shop)
    kind.stock(shop)
    asked = shop.buy(kind.quote(shop))
    assert (asked.quote.undo, asked.approvals_missing) == (undo, approvals)
