"""Savings plans for compute (Microsoft.BillingBenefits): a lower rate for a promised hourly payment; with a login.

The order is an alias with the purchase's key as its name: the same alias buys nothing twice. Azure validates the order
without executing it. A plan is paid by the month or hour by hour over its term, and cannot be cancelled. REST API
"Billing Benefits", version 2022-11-01.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import ROUND_UP, Decimal
from typing import Any

from broker.core.errors import OutcomeUnknown, Refused
from broker.core.market.offers import CapacityType, SkippedRow
from broker.core.purchases.quotes import CapacityQuote, Order, OrderState, PurchaseProduct, QuoteRequest
from broker.core.values.money import Money
from providers.azure.errors import NotThere
from providers.azure.fields import inside, objects
from providers.azure.retail import PLAN_SOURCE
from providers.azure.settings import NAME
from providers.azure.shop.counter import YEARS, AzureCounter, check_years, only_now, term_of
from providers.shops import FinalProduct

_BENEFITS = "/providers/Microsoft.BillingBenefits"
_VERSION = "2022-11-01"
_STATES = {
    "creating": OrderState.PENDING,
    "created": OrderState.PENDING,
    "pendingbilling": OrderState.PENDING,
    "confirmedbilling": OrderState.HELD,
    "succeeded": OrderState.HELD,
    "cancelled": OrderState.OVER,
    "expired": OrderState.OVER,
    "failed": OrderState.REFUSED,
}


class AzureSavingsPlans(FinalProduct[AzureCounter]):
    """See `SellsProduct`."""

    never = (NAME, "a savings plan", "Azure takes none back")
    repeats_for = timedelta(hours=1)

    def quotes(self, request: QuoteRequest) -> Iterator[CapacityQuote | SkippedRow]:
        """The promise that pays the machines at the plan's rates, one quote a region."""
        check_years(request.length, "savings plans")
        only_now(request, "a savings plan")
        months = YEARS[request.length][1]
        for offer in self._counter.priced(request, CapacityType.RESERVED, PLAN_SOURCE, months):
            assert offer.price is not None
            fields = self._counter.quote(request, PurchaseProduct.SAVINGS_PLAN, offer.region, offer.instance_type)
            promised = (offer.price.dollars * request.machines).quantize(Decimal("0.001"), rounding=ROUND_UP)
            total = Money.usd(promised) * (request.length // timedelta(hours=1))
            yield CapacityQuote(**{**fields, "total": total, "terms": "compute"})

    def try_order(self, quote: CapacityQuote, key: str) -> None:
        """Let Azure validate the order. Raises `Refused` with its reason."""
        login = self._counter.login()
        body = {"benefits": [_properties(login.subscription, quote, key)]}
        answer = login.asked("validate", "POST", f"{_BENEFITS}/validate", body, version=_VERSION)
        for one in objects(answer.get("benefits") if isinstance(answer, Mapping) else None):
            if one.get("valid") is False:
                raise Refused(f"{one.get('reasonCode')}: {one.get('reason')}", where=NAME)

    def order(self, quote: CapacityQuote, key: str) -> Order:
        login = self._counter.login()
        body = {"sku": {"name": "Compute_Savings_Plan"}, "properties": _properties(login.subscription, quote, key)}
        path = f"{_BENEFITS}/savingsPlanOrderAliases/{key}"
        answer = login.asked_once("savings plan order", "PUT", path, body, version=_VERSION)
        if not isinstance(answer, Mapping) or not inside(answer, "properties"):
            raise OutcomeUnknown("an order without properties", where=NAME)
        return _order(answer, quote, key)

    def find_orders(self, quote: CapacityQuote, key: str) -> Sequence[Order]:
        path = f"{_BENEFITS}/savingsPlanOrderAliases/{key}"
        try:
            row = self._counter.login().asked("savings plan order", "GET", path, version=_VERSION)
        except NotThere:
            return []
        return [_order(row, quote, key)]


def _properties(subscription: str, quote: CapacityQuote, key: str) -> dict[str, Any]:
    hours = quote.length // timedelta(hours=1)
    return {
        "displayName": key,
        "billingScopeId": f"/subscriptions/{subscription}",
        "term": term_of(quote),
        "appliedScopeType": "Shared",
        "commitment": {"grain": "Hourly", "currencyCode": "USD", "amount": float(quote.total.dollars / hours)},
    }


def _order(row: Mapping[str, Any], quote: CapacityQuote, key: str) -> Order:
    word = str(inside(row, "properties").get("provisioningState", "")).lower()
    state = _STATES.get(word, OrderState.PENDING)
    return Order(id=key, state=state, word=word, billed_from=quote.starts if state is OrderState.HELD else None)
