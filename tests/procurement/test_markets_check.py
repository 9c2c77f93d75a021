"""`capacity list --check` at Google Cloud and Azure: what they list, what was bought, and what others do there."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

import pytest

from broker.app.capacity.capacity import CapacityCheck, check_capacity
from broker.core.errors import AskAPerson, BrokerError
from broker.core.market.capacity import Charge
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.values.money import Money
from broker.procurement.comparison import DifferenceKind
from providers.azure.shop.reservations import AzureCapacityReservations
from tests.procurement.markets import MarketBench, gcp_calendar, gcp_commitment, gcp_reservation
from tests.procurement.test_markets_undo import azure, held

pytestmark = pytest.mark.system
HOUR = timedelta(hours=1)
Open = Callable[[Any], AbstractContextManager[MarketBench]]


def kinds(found: CapacityCheck) -> list[tuple[str, str | None]]:
    assert found.problems == {}
    return [(one.kind, one.purchase) for one in found.differences]


def charge(market: MarketBench, bought: Purchase, amount: Money, at: datetime) -> None:
    told = Charge(bought.quote.provider, bought.quote.starts, at, amount, bought.id, estimated=False)
    market.broker.store.charges.record([told], source="api", at=market.clock.now())


@pytest.mark.parametrize("stall", [gcp_reservation, gcp_calendar, gcp_commitment])
def test_what_google_lists_as_bought_is_no_difference(opened: Open, stall: Any) -> None:
    with opened(stall) as market:
        held(market)
        found = check_capacity(market.broker)
        assert (kinds(found), found.listed, found.asked) == ([], 1, ("gcp",))


def test_unknown_google_reservations_are_found_and_attributed(opened: Open) -> None:
    with opened(gcp_reservation) as market:
        bought = held(market)
        [row] = market.stall.bought()
        market.stall.bought().append({**row, "name": "of-the-console"})
        market.stall.bought().append({**row, "name": "purchase-of-others"})
        found = check_capacity(market.broker)
        assert kinds(found) == [(DifferenceKind.NOT_RECORDED, None), (DifferenceKind.OTHER_STORE, "purchase-of-others")]
        assert "capacity add … --order us-central1-a/of-the-console" in found.differences[0].told
        row["specificReservation"]["count"] = "1"
        [_, changed, _] = check_capacity(market.broker).differences
        assert (changed.kind, changed.purchase) == (DifferenceKind.NOT_AS_BOUGHT, bought.id)
        assert changed.told == "1 × a3-highgpu-8g, but 2 × a3-highgpu-8g was bought"


def test_a_google_reservation_deleted_by_hand_is_billed_until_then(opened: Open) -> None:
    with opened(gcp_reservation) as market:
        bought = held(market)
        world: Any = market.stall.line.market
        begun = datetime.fromisoformat(market.stall.bought()[0]["creationTimestamp"])
        gone = begun + 5 * HOUR
        world.shop.delete_by_hand(market.stall.bought(), bought.id, {"zone": "us-central1-a"}, gone)
        market.clock.advance(timedelta(days=1))
        ended = market.advance(bought)
        assert (ended.state, ended.evidence) == (PurchaseState.ENDED, "deleted by mo@example.com")
        assert ended.charged == bought.quote.amount_due(begun, gone)
        assert market.money(bought) == (Money.ZERO, ended.charged)
        assert kinds(check_capacity(market.broker)) == []


def test_unknown_azure_reservations_are_found_and_attributed(opened: Open) -> None:
    with opened(azure("azure_reservation")) as market:
        held(market)
        assert kinds(check_capacity(market.broker)) == []
        world: Any = market.stall.line.market
        [row] = market.stall.bought()
        for name, tags in (("console", {}), ("theirs", {"gpubroker-purchase": "purchase-of-others"})):
            id = row["id"].replace(row["name"], name)
            world.shop.groups[name] = {"id": id.split("/capacityReservations/")[0], "name": name, "location": "eastus"}
            world.shop.reserved[name] = {**row, "name": name, "id": id, "tags": tags}
        assert kinds(check_capacity(market.broker)) == [
            (DifferenceKind.NOT_RECORDED, None), (DifferenceKind.OTHER_STORE, "purchase-of-others"),
        ]  # fmt: skip


def test_charges_of_google_and_azure_are_matched(opened: Open) -> None:
    with opened(gcp_reservation) as market:
        bought = held(market)
        for _ in range(4):
            market.clock.advance(timedelta(days=1))
            ended = market.advance(bought)
        later = market.clock.now() + timedelta(days=3)
        charge(market, bought, ended.charged, later)
        market.clock.advance(timedelta(days=4))
        world: Any = market.stall.line.market
        world.reservations.clear()
        assert kinds(check_capacity(market.broker)) == []
        charge(market, bought, Money.usd("7"), later + HOUR)
        assert kinds(check_capacity(market.broker)) == [(DifferenceKind.CHARGED_OTHERWISE, bought.id)]


def test_what_azure_bills_after_the_end_is_booked_day_by_day(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it refuses to end it, or its login may not."""

    def forbidden(*_: object) -> None:
        raise AskAPerson("allocated in it, or not: this login may not delete it")

    with opened(azure("azure_reservation")) as market:
        bought = held(market)
        world: Any = market.stall.line.market
        [row] = market.stall.bought()
        begun, world.shop.in_use = datetime.fromisoformat(row["properties"]["timeCreated"]), True
        hour, within = bought.quote.hourly, bought.quote.recurring
        market.clock.time = bought.quote.ends
        for days in (0, 1, 2):
            with monkeypatch.context() as login:
                if days:
                    login.setattr(AzureCapacityReservations, "undo", forbidden)
                with pytest.raises(BrokerError, match="allocated in it"):
                    market.advance(bought)
            midnight = market.clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
            over = max(midnight - begun - bought.quote.length, timedelta(0))
            assert market.money(bought)[1] == within + hour.for_duration(over), f"after {days} days"
            market.clock.advance(timedelta(days=1))
        world.shop.in_use = False
        ended = market.advance(bought)
        over = market.clock.now() - begun - bought.quote.length
        assert (ended.state, over > timedelta(days=2)) == (PurchaseState.UNDONE, True)
        assert market.money(bought) == (Money.ZERO, within + hour.for_duration(over))
        assert ended.charged == market.money(bought)[1]
