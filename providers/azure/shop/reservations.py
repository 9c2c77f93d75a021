"""Capacity reservations, each in a group of its own (azure-mgmt-compute); with a login.

A reservation is billed at the on-demand price of its machines until it is deleted, used or not: Azure has no end for
it, so it is deleted at the end of its period. Group and reservation have the purchase's key as their name, so a
repeated request makes nothing twice. Before a reservation is deleted its group is marked, so that it can be told from
one that was never made. The group is open: machines of the size use it without naming it.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from broker.core.errors import InvalidInput, Refused
from broker.core.market.offers import CapacityType, SkippedRow
from broker.core.purchases.quotes import (
    CapacityQuote,
    Order,
    OrderState,
    PurchaseProduct,
    QuoteRequest,
    Undo,
    UndoTerms,
)
from providers.azure.errors import NotFound
from providers.azure.fields import nested_object, utc
from providers.azure.retail import SOURCE
from providers.azure.settings import NAME, PURCHASE_TAG
from providers.azure.shop.counter import AzureCounter, reject_later_start
from providers.http import setting
from providers.shops import CloudProduct

_GROUPS_VERSION = "2021-04-01"
_DELETED_TAG = "gpubroker-undone"
_STATES = {
    "creating": OrderState.PENDING,
    "succeeded": OrderState.HELD,
    "updating": OrderState.HELD,
    "deleting": OrderState.UNDOING,
    "failed": OrderState.REFUSED,
}


class AzureCapacityReservations(CloudProduct[AzureCounter]):
    """See `SellsProduct`."""

    repeats_for = timedelta(hours=1)
    ends_itself = False

    def quotes(self, request: QuoteRequest) -> Iterator[CapacityQuote | SkippedRow]:
        """One quote a region, at the on-demand price. Whether machines are free is known only when one is ordered."""
        reject_later_start(request, "a capacity reservation")
        if request.length < timedelta(hours=1):
            raise InvalidInput(f"expected 1 hour or more; got {request.length}", where="--for", hint="--for 7d")
        for offer in self._counter.priced_offers(request, CapacityType.ON_DEMAND, SOURCE):
            assert offer.price is not None
            fields = self._counter.quote(
                request, PurchaseProduct.CAPACITY_RESERVATION, offer.region, offer.instance_type
            )
            total = offer.price.for_duration(request.length) * request.machines
            yield CapacityQuote(**{**fields, "total": total, "undo": Undo.ANY_TIME})

    def try_order(self, quote: CapacityQuote, key: str) -> None:
        """Check that the resource group exists; Azure has no dry run of a reservation."""
        login, resources = self._counter.login(), self._resources
        path = f"/subscriptions/{login.subscription}/resourcegroups/{resources}"
        try:
            login.request("resource group", "GET", path, version=_GROUPS_VERSION)
        except NotFound as error:
            hint = f"az group create --name {resources} --location {quote.region}, or {setting(NAME, 'resource_group')}"
            raise Refused(f"there is no resource group {resources}", where=NAME, hint=hint) from error

    def order(self, quote: CapacityQuote, key: str) -> Order:
        login, resources = self._counter.login(), self._resources
        tags = {PURCHASE_TAG: key}
        group = {"location": quote.region, "tags": tags, "properties": {"reservationType": "Open"}}
        body = {
            "location": quote.region,
            "sku": {"name": quote.instance_type, "capacity": quote.machines},
            "tags": tags,
        }
        login.call(
            f"{key}: capacity reservation group",
            lambda client: client.capacity_reservation_groups.create_or_update(resources, key, group),
        )
        login.call_once(
            f"{key}: capacity reservation",
            lambda client: client.capacity_reservations.begin_create_or_update(
                resources, key, key, body, polling=False, retry_total=0
            ),
        )
        return Order(id=key, state=OrderState.PENDING, word="creating")

    def find_orders(self, quote: CapacityQuote, key: str) -> Sequence[Order]:
        login, resources = self._counter.login(), self._resources
        try:
            row = login.call(
                f"{key}: capacity reservation",
                lambda client: client.capacity_reservations.get(resources, key, key, expand="instanceView"),
            )
            return [_order(row, key)]
        except NotFound:
            pass
        try:
            group = login.call(
                f"{key}: capacity reservation group",
                lambda client: client.capacity_reservation_groups.get(resources, key),
            )
        except NotFound:
            return []
        deleted_tag = nested_object(group, "tags").get(_DELETED_TAG)
        return [Order(id=key, state=OrderState.OVER, word="deleted")] if deleted_tag else []

    def undo_terms(self, quote: CapacityQuote, order: Order) -> UndoTerms:
        return UndoTerms(way="delete")

    def undo(self, quote: CapacityQuote, order: Order, terms: UndoTerms) -> None:
        login, resources, key = self._counter.login(), self._resources, order.id
        patch = {"tags": {PURCHASE_TAG: key, _DELETED_TAG: "yes"}}
        login.call(
            f"{key}: capacity reservation group",
            lambda client: client.capacity_reservation_groups.update(resources, key, patch),
        )
        try:
            login.call_once(
                f"{key}: capacity reservation",
                lambda client: client.capacity_reservations.begin_delete(
                    resources, key, key, polling=False, retry_total=0
                ),
            )
        except NotFound:
            return  # it is gone

    @property
    def _resources(self) -> str:
        return self._counter.settings.resource_group


def _order(row: Mapping[str, Any], key: str) -> Order:
    properties = nested_object(row, "properties")
    word = str(properties.get("provisioningState", "")).lower()
    state = _STATES.get(word, OrderState.PENDING)
    started = utc(properties.get("timeCreated")) if state is OrderState.HELD else None
    return Order(id=key, state=state, word=word, billed_from=started)
