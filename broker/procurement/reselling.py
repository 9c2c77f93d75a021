"""Offers a purchase on its provider's resale market, once.

`SaleAsked` is written before the call; from then on no job is placed in the purchase and no process offers it again. If
the answer is lost, the offer is searched for by the sale's key or its content. An offer that nobody accepts can be
withdrawn; until then the purchase is paid as before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from broker.core.errors import AskAPerson, BrokerError, GiveUp, OutcomeUnknown, Refused, RetryLater, TryAnotherOffer
from broker.core.purchases.purchase_events import SaleAsked, SaleEnded, SaleListed, Sold
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.purchases.quotes import CapacityQuote, Order, OrderState, ResaleTerms, Undo
from broker.core.purchases.selling import ResellsProduct, SellsProduct
from broker.core.values.money import Money
from broker.procurement.appending import appended

if TYPE_CHECKING:
    from broker.store.store import Store

Seller = Callable[[CapacityQuote], SellsProduct]


def reseller(seller: SellsProduct, quote: CapacityQuote) -> ResellsProduct:
    """The seller for the purchase. Raises `Refused`, with the alternative, if it has no resale market."""
    if isinstance(seller, ResellsProduct):
        return seller
    instead = "see what undoing it costs: gpubroker capacity cancel PURCHASE --dry-run"
    if quote.undo is Undo.NONE:
        instead = "use it: jobs of all teams are placed in it automatically; `gpubroker capacity review` shows whose"
    product = quote.product.value.replace("_", " ")
    raise Refused(f"{quote.provider} has no market where a {product} can be sold again", hint=instead)


def offer_for_sale(
    store: Store, seller: Seller, purchase: Purchase, terms: ResaleTerms, least: Money, by: str, now: datetime
) -> Purchase:
    """Record that the purchase is for sale, and offer it at the provider, once. If the provider refuses, raises its
    error and the purchase stays as it was."""
    market = reseller(seller(purchase.quote), purchase.quote)
    asked = appended(store, purchase, SaleAsked(by=by, terms=terms, least=least), now)
    if asked.state is not PurchaseState.SELLING or asked.seq != purchase.seq + 1 or asked.order is None:
        return asked  # another process was faster
    try:
        listed = market.sell(asked.quote, asked.order, terms, least, _key(asked))
    except OutcomeUnknown:
        return look_for_sale(store, seller, asked, now)
    except (RetryLater, AskAPerson, GiveUp, TryAnotherOffer) as error:
        appended(store, asked, SaleEnded(by=by, evidence=str(error)), now)
        raise
    return appended(store, asked, SaleListed(order=listed), now)


def look_for_sale(store: Store, seller: Seller, purchase: Purchase, now: datetime) -> Purchase:
    """Query the state of the offer. Raises the provider's errors."""
    found = _sale(reseller(seller(purchase.quote), purchase.quote), purchase)
    if found is None:
        return purchase
    order, brings = found
    match order.state:
        case OrderState.HELD:
            return appended(store, purchase, Sold(order=order, proceeds=brings), now)
        case OrderState.PENDING | OrderState.UNDOING:
            known = purchase.sale_order is not None
            return purchase if known else appended(store, purchase, SaleListed(order=order), now)
        case _:
            return appended(store, purchase, SaleEnded(evidence=order.word), now)


def withdraw_sale(store: Store, seller: Seller, purchase: Purchase, by: str, now: datetime) -> Purchase:
    """Withdraw the offer, unless it was sold meanwhile. Raises the provider's errors."""
    market = reseller(seller(purchase.quote), purchase.quote)
    found = _sale(market, purchase)
    if found is not None and found[0].state is OrderState.PENDING:
        try:
            market.end_sale(purchase.quote, found[0])
        except BrokerError:
            found = _sale(market, purchase)
            if found is None or found[0].state is OrderState.PENDING:
                raise
        else:
            return appended(store, purchase, SaleEnded(by=by), now)
    if found is None:
        return appended(store, purchase, SaleEnded(by=by, evidence="the provider lists no offer of it"), now)
    return look_for_sale(store, seller, purchase, now)


def _key(purchase: Purchase) -> str:
    """The key of this offer, distinct from the keys of the order and of earlier offers."""
    assert purchase.sale_at is not None
    return f"{purchase.id}-sale-{int(purchase.sale_at.timestamp())}"


def _sale(market: ResellsProduct, purchase: Purchase) -> tuple[Order, Money] | None:
    """The offer of this purchase at the provider. Without a known id, it must be the only one there."""
    assert purchase.sale is not None
    assert purchase.sale_at is not None
    found: Sequence[tuple[Order, Money]] = market.find_sales(
        purchase.quote, purchase.sale, purchase.sale_at, _key(purchase)
    )
    if purchase.sale_order is not None:
        return next((one for one in found if one[0].id == purchase.sale_order.id), None)
    return found[0] if len(found) == 1 else None
