"""Cancels and returns purchases, on the provider's terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.app.capacity.purchases import buyer, judged_now, seller_of
from broker.core.actors import Actor
from broker.core.errors import InvalidInput, NotAllowed
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.purchases.quotes import UndoTerms
from broker.core.values.money import Money

if TYPE_CHECKING:
    from broker.app.wiring import Broker


def undo_terms(broker: Broker, id: str) -> UndoTerms:
    """The present cost of undoing a purchase, from the provider. Changes nothing. Raises `InvalidInput` if it was not
    ordered or is over, `Refused` if it cannot be undone, and the provider's errors."""
    purchase = broker.store.purchase(id)
    if purchase.state not in (PurchaseState.ORDERED, PurchaseState.HELD) or purchase.order is None:
        before = purchase.state.before_order
        raise InvalidInput(
            f"it cannot be undone: its state is {purchase.state}",
            where=id,
            hint=f"gpubroker capacity undo {id}" if before else f"gpubroker capacity show {id}",
        )
    seller = seller_of(broker, purchase.quote)
    listed = seller.find_orders(purchase.quote, purchase.id)
    newest = next((one for one in listed if one.id == purchase.order.id), purchase.order)
    return seller.undo_terms(purchase.quote, newest)


def undo(broker: Broker, id: str, *, by: Actor, at_most: Money = Money.ZERO) -> Purchase:
    """Cancel or return a purchase if the provider charges ``at_most`` (USD) for that. The request is recorded before
    the call; `CapacityBuyer.advance` finds out what became of a call without an answer. Raises as `undo_terms`,
    `NotAllowed` unless ``by`` is the buyer, an approver by the policies in force or an administrator, and
    `InvalidInput` if it costs more."""
    purchase = broker.store.purchase(id)
    if not by.may_act_for(purchase.user) and not _is_approver(broker, purchase, by):
        raise NotAllowed(f"it is the purchase of {purchase.user}; {by.identity} cannot undo it", where=id)
    terms = undo_terms(broker, id)
    if terms.charge > at_most:
        raise InvalidInput(
            f"undoing it costs {terms.charge.rounded(2)}; at most {at_most.rounded(2)} was accepted",
            where="--at-most",
            hint=f"--at-most {terms.charge}",
        )
    return buyer(broker).ask_undo(purchase, terms, by.identity)


def _is_approver(broker: Broker, purchase: Purchase, by: Actor) -> bool:
    with broker.store.reading() as look:
        asked = judged_now(broker, look, purchase).questions
    return any(question.may_answer(by.identity, purchase.user) for question in asked)
