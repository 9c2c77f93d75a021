"""Capacity and discounts that the subscription holds: offers at no price, and what was bought."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from broker.core.errors import Refused
from broker.core.market.capacity import Reservation
from broker.core.market.offers import CapacityType, MoneyKind, Offer, OfferQuery
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.azure.provider import Azure
from tests.contracts.provider_contract import NOW
from tests.fakes.server import HttpAnswer
from tests.providers.azure.conftest import H100, rows_of

if TYPE_CHECKING:
    from tests.fakes.azure_cloud import AzureCloud

RESERVED = OfferQuery(capacity_types=(CapacityType.RESERVED,))


def held(azure: Azure) -> dict[tuple[str | None, str], Offer]:
    rows = [row for row in rows_of(azure, RESERVED) if isinstance(row, Offer) and row.money is MoneyKind.AMORTISED]
    return {(row.zone, row.source): row for row in rows}


def test_capacity_that_is_held_costs_nothing_more(azure: Azure, cloud: AzureCloud) -> None:
    from tests.fakes.azure_cloud import reservation

    cloud.groups = {"open": "Open", "named": None, "others": "Targeted"}
    shared = {"utilizationInfo": {"currentCapacity": 4, "usedReservedCountBySubscription": {"a": 2, "b": 1}}}
    cloud.reservations = {
        "open": [
            reservation("open", "one", H100, 3, 1),
            reservation("open", "two", H100, 2, 2),
            reservation("open", "three", H100, 2, 2, zones=["2"]),
            reservation("open", "cpu", "Standard_D2_v3", 9, 0),
            reservation("open", "failed", H100, 9, 0, properties={"provisioningState": "Failed"}),
            reservation("open", "regional", H100, 4, 0, zones=[], properties={"instanceView": shared}),
        ],
        "named": [reservation("named", "four", H100, 1, 0)],
        "others": [reservation("others", "five", H100, 1, 0, properties={"instanceView": {}}, zones=["2"])],
    }
    found = held(azure)
    assert {key: (row.slots, row.engine, row.availability.value) for key, row in found.items()} == {
        ("eastus-az3", "azure-capacity-reservations"): (2, "skypilot", "available"),
        ("eastus-az1", "azure-capacity-reservations"): (0, "skypilot", "unavailable"),
        (None, "azure-capacity-reservations"): (1, "skypilot", "available"),
        ("eastus-az3", "azure-capacity-reservations:targeted"): (1, None, "available"),
        ("eastus-az1", "azure-capacity-reservations:targeted"): (None, None, "unknown"),
    }
    for offer in found.values():
        assert (offer.price, offer.term_months) == (Money.ZERO, None)
        assert offer.has_valid_price()


def test_a_block_is_held_from_its_first_day_to_its_last(azure: Azure, cloud: AzureCloud, clock: ManualClock) -> None:
    from tests.fakes.azure_cloud import reservation

    cloud.groups = {"blocks": "Block"}
    plan = {"scheduleProfile": {"start": "2026-11-23", "end": "2026-11-25"}}
    cloud.reservations = {"blocks": [reservation("blocks", "one", H100, 2, 0, properties=plan)]}
    [one] = azure.reservations()
    assert (one.kind, one.machines, one.free, one.open) == ("capacity_block", 2, 2, False)
    assert (one.starts, one.ends) == (NOW.replace(day=23, hour=0), NOW.replace(day=25, hour=0))
    assert held(azure) == {}
    clock.advance(timedelta(days=2))
    assert len(held(azure)) == 1
    clock.advance(timedelta(days=2))
    assert held(azure) == {}


def test_what_is_held_is_told_with_its_place_and_group(azure: Azure, cloud: AzureCloud) -> None:
    from tests.fakes.azure_cloud import reservation

    cloud.groups = {"open": "Open"}
    cloud.reservations = {"open": [reservation("open", "one", H100, 3, 1)]}
    [one] = azure.reservations()
    assert (one.id, one.region, one.zone, one.instance_type) == ("open/one", "eastus", "eastus-az3", H100)
    assert (one.kind, one.machines, one.free, one.open, one.holds_capacity) == (
        "capacity_reservation", 3, 2, True, True,
    )  # fmt: skip


def test_discounts_that_were_bought_are_told_and_make_no_offers(azure: Azure, cloud: AzureCloud) -> None:
    from tests.fakes.azure_cloud import bought, plan

    cloud.bought = [
        bought("ri-1", H100, 2),
        bought("ri-2", "Standard_D8_v4", 9),
        bought("ri-3", H100, 1, provisioningState="Expired"),
        bought("ri-4", H100, 1, expiryDateTime="2026-11-01T00:00:00Z"),
    ]
    cloud.plans = [plan("sp-1"), plan("sp-2", provisioningState="PendingBilling")]
    told = {one.id: one for one in azure.reservations()}
    assert {id: (one.kind, one.machines, one.region, one.instance_type) for id, one in told.items()} == {
        "ri-1": ("reserved_instances", 2, "eastus", H100),
        "sp-1": ("savings_plan", 0, "*", "*"),
    }
    assert not any(one.holds_capacity for one in told.values())
    assert told["ri-1"].ends == datetime(2027, 3, 1, 10, 0, 0, 123456, tzinfo=UTC)
    assert told["sp-1"].starts == datetime(2026, 1, 1, tzinfo=UTC)
    assert held(azure) == {}


def test_who_may_not_see_what_was_bought_sees_the_rest(azure: Azure, cloud: AzureCloud) -> None:
    from tests.fakes.azure_cloud import plan, reservation

    cloud.groups, cloud.reservations = {"open": "Open"}, {"open": [reservation("open", "one", H100, 3, 1)]}
    cloud.plans = [plan("sp-1")]
    cloud.answers = {"Microsoft.Capacity/": HttpAnswer(403, {"error": {"code": "Forbidden", "message": "no"}})}
    told: list[Reservation] = []
    with pytest.raises(Refused, match="azure/reservations") as caught:
        told.extend(azure.reservations())
    assert "Reservations Reader" in caught.value.hint
    assert [one.id for one in told] == ["open/one", "sp-1"]
