"""What AWS lists against what was bought and recorded: every way in which they can differ."""

from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from broker.app.capacity import purchases
from broker.app.capacity.capacity import CapacityCheck, check_capacity
from broker.app.service.duties import CapacityCheckDuty
from broker.app.wiring import Broker
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.procurement.comparison import DifferenceKind
from cli import registries
from tests.actors import ANN, EVERYBODYS
from tests.fakes.aws_cloud import AwsFault
from tests.procurement.conftest import NOW, REGION, Shop


def kinds(found: CapacityCheck) -> list[tuple[str, str]]:
    return [(one.kind, one.order) for one in found.differences]


def bought(shop: Shop) -> Purchase:
    shop.advance(shop.approved())
    shop.paid()
    [purchase] = shop.broker.store.purchases()
    held = shop.advance(purchase)
    assert held.state is PurchaseState.HELD
    return held


def order_of(purchase: Purchase) -> str:
    assert purchase.order is not None
    return purchase.order.id


def elsewhere(shop: Shop, id: str = "cr-of-the-console", **more: Any) -> None:
    """Somebody bought at AWS's console."""
    row = {
        "CapacityReservationId": id,
        "InstanceType": "p5.48xlarge",
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": "us-east-1a",
        "TotalInstanceCount": 1,
        "AvailableInstanceCount": 1,
        "State": "active",
        "StartDate": NOW,
        "Tags": [],
        **more,
    }
    shop.cloud.reservations.setdefault(REGION, []).append(row)


def record(shop: Shop, order_id: str, note: str = "") -> None:
    """Ann puts a reservation on record that AWS calls by that id."""
    ends = NOW + timedelta(days=30)
    held = Holding(
        HoldingKind.RESERVATION, "H100", 8, "aws", REGION, starts=NOW, ends=ends, note=note, order_id=order_id
    )
    shop.broker.store.add_holding(held, by=ANN.identity)


def test_what_was_bought_and_is_listed_as_bought_is_no_difference(shop: Shop) -> None:
    nothing = check_capacity(shop.broker)
    assert (kinds(nothing), nothing.listed, nothing.asked, nothing.problems) == ([], 0, ("aws",), {})
    shop.advance(shop.approved())
    assert kinds(check_capacity(shop.broker)) == [], "it is ordered, and AWS lists what is paid"
    shop.paid()
    shop.advance(shop.broker.store.purchases()[0])
    found = check_capacity(shop.broker)
    assert (kinds(found), found.listed) == ([], 1)


def test_what_was_bought_at_the_console_is_found_until_somebody_records_it(shop: Shop) -> None:
    elsewhere(shop)
    [found] = check_capacity(shop.broker).differences
    assert (found.kind, found.order, found.purchase) == (DifferenceKind.NOT_RECORDED, "cr-of-the-console", None)
    assert "1 × p5.48xlarge" in found.told
    assert "capacity add … --order cr-of-the-console" in found.told
    record(shop, "", note="invoice 7, cr-of-the-console")
    assert kinds(check_capacity(shop.broker)) == [(DifferenceKind.NOT_RECORDED, "cr-of-the-console")], (
        "a note decides nothing"
    )
    record(shop, "cr-of-the-console")
    assert kinds(check_capacity(shop.broker)) == []


def test_a_name_that_only_begins_like_a_recorded_one_is_not_recorded(shop: Shop) -> None:
    elsewhere(shop, "cr-1")
    record(shop, "cr-12")
    assert kinds(check_capacity(shop.broker)) == [(DifferenceKind.NOT_RECORDED, "cr-1")]


def test_what_another_store_bought_is_named_by_its_purchase(shop: Shop) -> None:
    elsewhere(shop, Tags=[{"Key": "gpubroker-purchase", "Value": "purchase-of-others"}])
    [found] = check_capacity(shop.broker).differences
    assert (found.kind, found.purchase) == (DifferenceKind.OTHER_STORE, "purchase-of-others")


def test_what_was_paid_and_is_not_listed_any_more_is_missing(shop: Shop) -> None:
    held = bought(shop)
    shop.paid("cancelled")
    [found] = check_capacity(shop.broker).differences
    assert (found.kind, found.order, found.purchase) == (DifferenceKind.NOT_LISTED, order_of(held), held.id)
    assert "$4,000.00 was paid" in found.told
    shop.clock.time = held.quote.ends
    assert kinds(check_capacity(shop.broker)) == [], "its time has passed"


def test_what_lies_in_a_region_that_is_not_asked_any_more_is_not_missing(shop: Shop) -> None:
    bought(shop)
    asked = {"aws": {**shop.broker.settings.providers["aws"], "regions": ("eu-west-1",)}}
    with closing(
        Broker(shop.broker.settings.model_copy(update={"providers": asked}), registries(), EVERYBODYS, clock=shop.clock)
    ) as broker:
        found = check_capacity(broker)
    assert (kinds(found), found.listed) == ([], 0)


def test_a_provider_that_fails_makes_nothing_missing(shop: Shop) -> None:
    bought(shop)
    shop.cloud.faults["DescribeCapacityReservations"] = [AwsFault("InternalError", 500, "down")] * 9
    found = check_capacity(shop.broker)
    assert kinds(found) == []
    assert list(found.problems) == ["aws"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"TotalInstanceCount": 1}, "1 × p5.48xlarge, but 2 × p5.48xlarge was bought"),
        ({"EndDate": NOW + timedelta(days=2)}, "ends 2026-11-25 12:00 UTC, but 2026-11-26 12:00 UTC was bought"),
    ],
)
def test_other_machines_or_another_end_than_were_bought(shop: Shop, change: dict[str, Any], told: str) -> None:
    bought(shop)
    shop.bought[0].update(change)
    [found] = check_capacity(shop.broker).differences
    assert (found.kind, found.told) == (DifferenceKind.NOT_AS_BOUGHT, told)


def test_two_orders_of_one_purchase_are_named_both(shop: Shop) -> None:
    held = bought(shop)
    elsewhere(shop, "cr-second", Tags=[{"Key": "gpubroker-purchase", "Value": held.id}], TotalInstanceCount=2)
    found = kinds(check_capacity(shop.broker))
    assert sorted(found) == sorted([(DifferenceKind.TWICE, order_of(held)), (DifferenceKind.TWICE, "cr-second")])


def test_what_a_person_declared_not_bought_and_is_there_after_all(shop: Shop) -> None:
    shop.cloud.late_faults["PurchaseCapacityBlock"] = [AwsFault("InternalError", 500, "charged, then reset")]
    shop.cloud.unlisted = 9
    unknown = shop.advance(shop.approved())
    assert unknown.state is PurchaseState.UNKNOWN
    ended = purchases.withdraw_purchase(shop.broker, unknown.id, by=ANN, nothing_bought=True)
    assert (ended.state, shop.money(ended)) == (PurchaseState.NOT_BOUGHT, (Money.ZERO, Money.ZERO))
    shop.cloud.unlisted = 0
    shop.paid()
    [found] = check_capacity(shop.broker).differences
    assert (found.kind, found.purchase) == (DifferenceKind.NOT_AS_BOUGHT, unknown.id)
    assert "its money was released" in found.told


def test_people_are_told_of_each_difference_once(shop: Shop) -> None:
    elsewhere(shop)
    said: list[str] = []
    duty = CapacityCheckDuty(shop.broker, say=said.append)
    for _ in range(3):
        duty.once()
    assert len(said) == 1
    assert "cr-of-the-console" in said[0]
    assert len(shop.broker.store.outbox.under("capacity/")) == 1
