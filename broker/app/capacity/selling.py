"""Sells purchases on their provider's resale market."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from broker.app.alerts.routes import recipients
from broker.app.capacity.purchases import buyer, seller_of
from broker.core.actors import Actor
from broker.core.errors import InvalidInput, NotAllowed
from broker.core.purchases.purchase_events import SaleProposed
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.purchases.quotes import ResaleTerms
from broker.core.values.money import Money
from broker.procurement.appending import appended
from broker.procurement.judging import approvals_needed
from broker.procurement.notices import sale_notice
from broker.procurement.reselling import Seller, offer_for_sale, reseller, withdraw_sale

if TYPE_CHECKING:
    from broker.app.wiring import Broker

_AGREED_WITHIN = timedelta(days=7)  # in which the second person agrees to the first one's proposal


def resale_terms(broker: Broker, id: str) -> ResaleTerms:
    """The part of a purchase that could be sold, and its estimated price. Changes nothing. Raises `InvalidInput` if it
    is not held, `Refused` with the alternative if nothing of it can be sold, and the provider's errors."""
    purchase = broker.store.purchase(id)
    market = reseller(seller_of(broker, purchase.quote), purchase.quote)
    if purchase.state is not PurchaseState.HELD or purchase.order is None:
        raise InvalidInput(
            f"{id} cannot be sold: it is {purchase.state}", where=id, hint=f"gpubroker capacity show {id}"
        )
    return market.resale_terms(purchase.quote, purchase.order, purchase.quote.machines)


def sell(broker: Broker, id: str, *, least: Money, by: Actor) -> Purchase:
    """Offer a purchase for ``least`` (USD, in all, before the market's fee). The offer is recorded before the call and
    made once. A purchase that cannot be undone needs two people: the first one's call is recorded as a proposal for
    `_AGREED_WITHIN`, the second one's same call makes the offer. Raises as `resale_terms`, and `NotAllowed` unless
    ``by`` is the buyer, one of its approvers or an administrator."""
    if least <= Money.ZERO:
        raise InvalidInput("the price must be above 0", where="--least", hint="--least 1500")
    purchase = broker.store.purchase(id)
    _may_sell(purchase, by)
    terms, now = resale_terms(broker, id), broker.clock.now()
    if approvals_needed(purchase.quote.undo) > 1 and not _second(purchase, least, by, now):
        proposed = appended(broker.store, purchase, SaleProposed(by=by.identity, least=least), now)
        notice = sale_notice(proposed)
        broker.store.outbox.add(notice, recipients(broker.settings, notice), now)
        return proposed
    offer_for_sale(broker.store, _seller(broker), purchase, terms, least, by.identity, now)
    return buyer(broker).advance(id)


def _second(purchase: Purchase, least: Money, by: Actor, now: datetime) -> bool:
    """Whether another person has proposed the same within `_AGREED_WITHIN`."""
    at = purchase.proposed_at
    lately = at is not None and now - at <= _AGREED_WITHIN
    return lately and purchase.proposed_by != by.identity and purchase.proposed_least == least


def end_sale(broker: Broker, id: str, *, by: Actor) -> Purchase:
    """Withdraw the offer of a purchase, unless it was sold meanwhile. Raises as `sell`, and `InvalidInput` if
    it is not for sale."""
    purchase = broker.store.purchase(id)
    _may_sell(purchase, by)
    if purchase.state is not PurchaseState.SELLING:
        raise InvalidInput(f"{id} is not for sale: it is {purchase.state}", where=id)
    return withdraw_sale(broker.store, _seller(broker), purchase, by.identity, broker.clock.now())


def _may_sell(purchase: Purchase, by: Actor) -> None:
    approvers = {name for question in purchase.questions for name in question.approvers}
    if not by.may_act_for(purchase.user) and by.identity not in approvers:
        raise NotAllowed(
            f"it is the purchase of {purchase.user}; {by.identity} cannot sell it",
            where=purchase.id,
            hint=f"{purchase.user} or one of its approvers can",
        )


def _seller(broker: Broker) -> Seller:
    return partial(seller_of, broker)
