"""Reservations (Microsoft.Capacity): a lower rate for machines of one size for one or three years; with a login.

A quote (calculatePrice) returns the id under which the order is placed; repeating an order with the same id has no
effect. An order can be returned at the refund that Azure quotes, up to its yearly limit. REST API "Azure Reservation",
version 2022-11-01.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from broker.core.errors import Malformed, OutcomeUnknown, Refused
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
from providers.azure.fields import nested_object, objects, utc
from providers.azure.retail import SOURCE
from providers.azure.settings import NAME
from providers.azure.shop.counter import YEARS, AzureCounter, check_years, dollars, reject_later_start
from providers.shops import CloudProduct, undo_refusal

_CAPACITY = "/providers/Microsoft.Capacity"
_VERSION = "2022-11-01"
_EXISTS = "alreadyexists"
_STATES = {
    "creating": OrderState.PENDING,
    "pendingresourcehold": OrderState.PENDING,
    "confirmedresourcehold": OrderState.PENDING,
    "pendingbilling": OrderState.PENDING,
    "confirmedbilling": OrderState.HELD,
    "created": OrderState.HELD,
    "succeeded": OrderState.HELD,
    "merged": OrderState.HELD,
    "split": OrderState.HELD,
    "cancelled": OrderState.OVER,
    "expired": OrderState.OVER,
    "billingfailed": OrderState.FAILED,
    "failed": OrderState.REFUSED,
}


class AzureReservedInstances(CloudProduct[AzureCounter]):
    """See `SellsProduct`."""

    repeats_for = timedelta(hours=1)

    def quotes(self, request: QuoteRequest) -> Iterator[CapacityQuote | SkippedRow]:
        """Azure's present price, paid upfront: one quote per region in the price list."""
        check_years(request.length, "reservations")
        reject_later_start(request, "a reservation")
        login, (term, months) = self._counter.login(), YEARS[request.length]
        for offer in self._counter.priced_offers(request, CapacityType.RESERVED, SOURCE, months):
            fields = self._counter.quote(request, PurchaseProduct.RESERVED_INSTANCES, offer.region, offer.instance_type)
            body = _body(login.subscription, offer.instance_type, offer.region, request.machines, term, "gpubroker")
            answer = login.request("reservation price", "POST", f"{_CAPACITY}/calculatePrice", body, version=_VERSION)
            properties = nested_object(answer, "properties")
            id = properties.get("reservationOrderId")
            if not isinstance(id, str) or not id:
                raise Malformed("a price without an order id", where=NAME)
            total = dollars(properties, "pricingCurrencyTotal")
            money = {"offering": id, "total": total, "upfront": total, "undo": Undo.QUOTE, "terms": "upfront"}
            yield CapacityQuote(**{**fields, **money})

    def try_order(self, quote: CapacityQuote, key: str) -> None:
        """Does nothing: Azure has no dry run, and has just quoted the price to this login."""
        self._counter.login()

    def order(self, quote: CapacityQuote, key: str) -> Order:
        login = self._counter.login()
        body = _body(login.subscription, quote.instance_type, quote.region, quote.machines, YEARS[quote.length][0], key)
        path = f"{_CAPACITY}/reservationOrders/{quote.offering}"
        try:
            answer = login.request_once("reservation order", "PUT", path, body, version=_VERSION)
        except Refused as error:
            if _EXISTS not in error.message.replace("_", "").lower():
                raise
            earlier = self.find_orders(quote, key)  # an earlier try of the request has arrived
            if not earlier:
                raise OutcomeUnknown(error.message, where=error.where) from error
            return earlier[0]
        if not isinstance(answer, Mapping) or not nested_object(answer, "properties"):
            raise OutcomeUnknown("an order without properties", where=NAME)
        return _order(answer, quote)

    def find_orders(self, quote: CapacityQuote, key: str) -> Sequence[Order]:
        path = f"{_CAPACITY}/reservationOrders/{quote.offering}"
        try:
            row = self._counter.login().request("reservation order", "GET", path, version=_VERSION)
        except NotFound:
            return []
        return [_order(row, quote)] if nested_object(row, "properties").get("displayName") == key else []

    def undo_terms(self, quote: CapacityQuote, order: Order) -> UndoTerms:
        login, path = self._counter.login(), f"{_CAPACITY}/reservationOrders/{order.id}"
        row = login.request("reservation order", "GET", path, version=_VERSION)
        reservation = next(iter(objects(nested_object(row, "properties").get("reservations"))), {})
        returned = {"reservationId": reservation.get("id"), "quantity": quote.machines}
        body = {"id": path, "properties": {"scope": "Reservation", "reservationToReturn": returned}}
        answer = login.request("refund", "POST", f"{path}/calculateRefund", body, version=_VERSION)
        properties = nested_object(answer, "properties")
        policy = nested_object(properties, "policyResult", "properties")
        errors = [str(error.get("message")) for error in objects(policy.get("policyErrors"))]
        if errors:
            raise undo_refusal(NAME, "this reservation", "; ".join(errors))
        refund = dollars(properties, "pricingRefundAmount")
        reference = f"{properties.get('sessionId')} {reservation.get('id')}"
        return UndoTerms(way="return", refund=min(refund, quote.paid_upfront), reference=reference)

    def undo(self, quote: CapacityQuote, order: Order, terms: UndoTerms) -> None:
        session, _, reservation = terms.reference.partition(" ")
        returned = {"reservationId": reservation, "quantity": quote.machines}
        properties = {
            "sessionId": session,
            "scope": "Reservation",
            "returnReason": "requested by gpubroker",
            "reservationToReturn": returned,
        }
        path = f"{_CAPACITY}/reservationOrders/{order.id}/return"
        self._counter.login().request_once("return", "POST", path, {"properties": properties}, version=_VERSION)


def _body(subscription: str, size: str, region: str, machines: int, term: str, name: str) -> dict[str, Any]:
    return {
        "sku": {"name": size},
        "location": region,
        "properties": {
            "reservedResourceType": "VirtualMachines",
            "billingScopeId": f"/subscriptions/{subscription}",
            "term": term,
            "billingPlan": "Upfront",
            "quantity": machines,
            "displayName": name,
            "appliedScopeType": "Shared",
            "renew": False,
            "reservedResourceProperties": {"instanceFlexibility": "On"},
        },
    }


def _order(row: Mapping[str, Any], quote: CapacityQuote) -> Order:
    properties = nested_object(row, "properties")
    word = str(properties.get("provisioningState", "")).lower()
    state = _STATES.get(word, OrderState.PENDING)
    started = utc(properties.get("createdDateTime")) if state in (OrderState.HELD, OrderState.OVER) else None
    return Order(id=quote.offering, state=state, word=word, billed_from=started)
