"""Advances purchases from approval to paid capacity; each is ordered at most once.

Several processes may do so with the same store. `OrderSent` is written under the store's write lock before the call to
the provider; from then on no process sends that order again. If the answer is lost (a crash, a time-out, an unreadable
answer), the order is searched for by its tag, and a person is notified. Only a person may declare that nothing was
bought (`declare_nothing_bought`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol

from broker.core.errors import (
    AskAPerson,
    BrokerError,
    GiveUp,
    OutcomeUnknown,
    RetryLater,
    TryAnotherOffer,
)
from broker.core.market.offers import SkippedRow
from broker.core.notices import Notice
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import Answer
from broker.core.ports import PolicySet, SellsCapacity
from broker.core.purchases.purchase_events import (
    AskedAgain,
    NotBought,
    OrderNotTaken,
    OrderPaid,
    OrderSent,
    OrderTaken,
    OrderUnanswered,
    PurchaseEnded,
    PurchaseEvent,
    PurchaseFailed,
)
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.purchases.quotes import CapacityQuote, Order, OrderState
from broker.core.values.clock import Clock
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.ledger.entries import Entry
from broker.ledger.journal import Reading
from broker.procurement.judging import Buying, decision_of, judge_purchase, objections
from broker.procurement.money import paid_for, released
from broker.procurement.notices import notice_of

# A process that is delayed longer than this after it wrote `OrderSent` does not send the order.
_SENT_WITHIN = timedelta(seconds=10)
# The process that sent an order may wait this long for the answer; the time-outs of providers are shorter.
_MAY_BE_ANSWERED = timedelta(seconds=50)
# The shortest time between an order and the start of its period.
_TOO_SHORT = timedelta(minutes=5)


class PurchaseWriting(Reading, Protocol):
    """The part of a store transaction that purchases need."""

    def purchase(self, id: str) -> Purchase | None: ...

    def append_purchase(self, id: str, event: PurchaseEvent, at: datetime) -> Purchase: ...

    def record(self, decision: Decision) -> None: ...

    def post(self, entries: tuple[Entry, ...]) -> None: ...

    def add_holding(self, holding: Holding, *, by: str, at: datetime) -> int: ...


class PurchaseStore(Protocol):
    """The part of the store that purchases need."""

    def writing(self) -> AbstractContextManager[PurchaseWriting]: ...

    def purchase(self, id: str) -> Purchase: ...


class CapacityBuyer:
    """Advances purchases. ``seller``: returns the provider with a name. ``policy``: returns the policies in force from
    a snapshot of the store. ``tell``: sends a notice, each key once.

    `advance` may be called at any time and by several processes at once.
    """

    def __init__(
        self,
        store: PurchaseStore,
        seller: Callable[[str], SellsCapacity],
        policy: Callable[[Any], PolicySet],
        clock: Clock,
        tell: Callable[[Notice], None],
    ) -> None:
        self._store = store
        self._seller = seller
        self._policy = policy
        self._clock = clock
        self._tell = tell

    def advance(self, id: str) -> Purchase:
        """Take every step that is possible now; returns the purchase afterwards. Idempotent. Raises `StoreProblem`, and
        the provider's error if a person must act or a later call may work; the purchase then stays valid."""
        purchase = self._store.purchase(id)
        try:
            while (changed := self._step(purchase)).seq != purchase.seq:
                purchase = changed
            return changed
        finally:
            if (notice := notice_of(self._store.purchase(id))) is not None:
                self._tell(notice)

    def _step(self, purchase: Purchase) -> Purchase:
        now = self._clock.now()
        match purchase.state:
            case PurchaseState.ASKING if now >= purchase.quote.starts - _TOO_SHORT:
                return self._fail(purchase, NotBought.TOO_LATE)
            case PurchaseState.APPROVED:
                return self._order(purchase)
            case PurchaseState.ORDERING if purchase.sent_at is None or now >= purchase.sent_at + _MAY_BE_ANSWERED:
                return self._look_for(purchase, "the process that sent the order did not report an answer")
            case PurchaseState.UNKNOWN:
                return self._look_for(purchase, purchase.evidence)
            case PurchaseState.ORDERED:
                return self._confirm(purchase)
            case PurchaseState.HELD if now >= purchase.quote.ends:
                return self._write(purchase, PurchaseEnded())
            case _:
                return purchase

    # --- the order ---------------------------------------------------------------------------------------------------

    def _order(self, purchase: Purchase) -> Purchase:
        now = self._clock.now()
        if now >= purchase.quote.starts - _TOO_SHORT:
            return self._fail(purchase, NotBought.TOO_LATE)
        seller = self._seller(purchase.quote.provider)
        newest = [quote for quote in _quotes(seller, purchase.quote) if quote.same_capacity(purchase.quote)]
        if not newest:
            return self._fail(purchase, NotBought.GONE)
        quote = min(newest, key=lambda one: (one.total, one.offering != purchase.quote.offering, one.offering))
        if quote.total > purchase.ceiling:
            said = f"it costs {quote.total.rounded(2)} now; at most {purchase.ceiling.rounded(2)} was approved"
            return self._fail(purchase, NotBought.DEARER, said)
        try:
            seller.try_order(quote, purchase.id)
        except (GiveUp, TryAnotherOffer) as error:
            return self._fail(purchase, NotBought.PROVIDER_REFUSED, str(error))
        sent = self._judged_again(purchase, quote)
        if sent.state is not PurchaseState.ORDERING or sent.seq != purchase.seq + 1:
            return sent  # the policies object, or another process was faster
        return self._send(sent, seller)

    def _judged_again(self, purchase: Purchase, quote: CapacityQuote) -> Purchase:
        """Judge by the rules in force and record that the order is sent, in one transaction: no change of rules and no
        other purchase can come between."""
        now = self._clock.now()
        with self._store.writing() as tx:
            current = tx.purchase(purchase.id)
            if current is None or current.seq != purchase.seq:
                return self._store.purchase(purchase.id) if current is None else current
            judged = judge_purchase(Buying.again(purchase, quote), self._policy(tx), tx, now)
            tx.record(decision_of(purchase.id, judged, now))
            if judged.answer is Answer.DENY:
                denied = tuple(verdict.objection for verdict in judged.denials)
                said = PurchaseFailed(reason=NotBought.POLICY, evidence=objections(judged.denials), objections=denied)
                tx.post(released(purchase, now))
                return tx.append_purchase(purchase.id, said, now)
            known = {question.rule for question in purchase.questions}
            new = tuple(question for question in judged.questions if question.rule not in known)
            return tx.append_purchase(purchase.id, AskedAgain(questions=new) if new else OrderSent(quote=quote), now)

    def _send(self, purchase: Purchase, seller: SellsCapacity) -> Purchase:
        if purchase.sent_at is None or self._clock.now() > purchase.sent_at + _SENT_WITHIN:
            return purchase  # another process may have searched for it already
        try:
            order = seller.order(purchase.quote, purchase.id)
        except OutcomeUnknown as error:
            return self._look_for(purchase, str(error))
        except (RetryLater, AskAPerson) as error:
            self._write(purchase, OrderNotTaken(evidence=str(error)))
            raise
        except (GiveUp, TryAnotherOffer) as error:
            return self._fail(purchase, NotBought.PROVIDER_REFUSED, str(error))
        return self._write(self._store.purchase(purchase.id), OrderTaken(order=order))

    # --- after the order ---------------------------------------------------------------------------------------------

    def _look_for(self, purchase: Purchase, evidence: str) -> Purchase:
        """Search for the order by its tag. A search without result proves nothing: the provider may list it late."""
        try:
            found = self._seller(purchase.quote.provider).find_orders(purchase.quote, purchase.id)
        except BrokerError as error:
            found, evidence = [], f"{evidence}; and the orders cannot be listed: {error}"
        if found:
            return self._write(purchase, OrderTaken(order=_first(found), found=True))
        if purchase.state is PurchaseState.UNKNOWN:
            return purchase
        return self._write(purchase, OrderUnanswered(evidence=evidence))

    def _confirm(self, purchase: Purchase) -> Purchase:
        order = purchase.order
        assert order is not None
        if order.state is OrderState.PENDING:
            found = self._seller(purchase.quote.provider).find_orders(purchase.quote, purchase.id)
            order = next((one for one in found if one.id == order.id), order)
        match order.state:
            case OrderState.PENDING:
                return purchase
            case OrderState.FAILED:
                return self._fail(purchase, NotBought.NOT_PAID, order.word)
            case _:
                return self._paid(purchase, order)

    def _paid(self, purchase: Purchase, order: Order) -> Purchase:
        now, charged = self._clock.now(), purchase.quote.total
        with self._store.writing() as tx:
            current = tx.purchase(purchase.id)
            if current is None or current.seq != purchase.seq:
                return purchase if current is None else current
            number = tx.add_holding(_holding(purchase, order, charged), by=purchase.user, at=now)
            tx.post(paid_for(purchase, charged, now))
            return tx.append_purchase(purchase.id, OrderPaid(order=order, charged=charged, holding=number), now)

    # --- people ------------------------------------------------------------------------------------------------------

    def declare_nothing_bought(self, purchase: Purchase, by: str, evidence: str) -> Purchase:
        """Record that a person verified at the provider that an unanswered order was not executed. Searches for the
        order once more; raises the provider's error if that fails."""
        found = self._seller(purchase.quote.provider).find_orders(purchase.quote, purchase.id)
        if found:
            return self._write(purchase, OrderTaken(order=_first(found), found=True))
        return self._fail(purchase, NotBought.FOUND_NOTHING, evidence, by=by)

    def end_unbought(self, purchase: Purchase, reason: NotBought, by: str, evidence: str) -> Purchase:
        """Record that a person ended a purchase before its order."""
        return self._fail(purchase, reason, evidence, by=by)

    # --- writing -----------------------------------------------------------------------------------------------------

    def _write(self, purchase: Purchase, event: PurchaseEvent) -> Purchase:
        """Append the event, unless the purchase has changed meanwhile; returns its current state."""
        now = self._clock.now()
        with self._store.writing() as tx:
            current = tx.purchase(purchase.id)
            if current is None or current.seq != purchase.seq:
                return purchase if current is None else current
            if isinstance(event, PurchaseFailed):
                tx.post(released(purchase, now))
            return tx.append_purchase(purchase.id, event, now)

    def _fail(self, purchase: Purchase, reason: NotBought, evidence: str = "", by: str = "") -> Purchase:
        return self._write(purchase, PurchaseFailed(reason=reason, by=by, evidence=evidence))


def _quotes(seller: SellsCapacity, quote: CapacityQuote) -> Iterator[CapacityQuote]:
    return (one for one in seller.quotes(quote.request) if not isinstance(one, SkippedRow))


def _first(orders: Sequence[Order]) -> Order:
    """The order to use. This program never creates several with one tag."""
    alive = [order for order in orders if order.state is not OrderState.FAILED]
    return min(alive or orders, key=lambda order: order.id)


def _holding(purchase: Purchase, order: Order, charged: Money) -> Holding:
    quote = purchase.quote
    return Holding(
        kind=HoldingKind.RESERVATION,
        accelerator=quote.accelerator,
        gpus=quote.count * quote.machines,
        provider=quote.provider,
        site=quote.zone or quote.region,
        starts=quote.starts,
        ends=quote.ends,
        upfront=charged,
        hourly=Money.ZERO,
        watts=0.0,
        note=f"{order.id} ({purchase.id})",
    )
