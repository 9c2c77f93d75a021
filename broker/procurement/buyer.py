"""Carries purchases from their approval to paid capacity, so that each is ordered at most once.

Any number of processes may do so with the same store. `OrderSent` is written, under the store's write lock, before the
provider is called; from then on nobody sends that order again. When the answer is lost (a crash, a time-out, an answer
that cannot be read), the order is looked for by its mark, and a person is told. Only a person may declare that nothing
was bought (`declare_nothing_bought`).
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

# A process that was held up for so long after it wrote `OrderSent` does not send the order any more.
_SENT_WITHIN = timedelta(seconds=10)
# The process that sent an order may still wait for the answer for so long: a provider's time-out is shorter.
_MAY_BE_ANSWERED = timedelta(seconds=50)
# So long before its time begins, nothing is ordered any more.
_TOO_SHORT = timedelta(minutes=5)


class PurchaseWriting(Reading, Protocol):
    """A transaction of the store, as far as purchases need it."""

    def purchase(self, id: str) -> Purchase | None: ...

    def append_purchase(self, id: str, event: PurchaseEvent, at: datetime) -> Purchase: ...

    def record(self, decision: Decision) -> None: ...

    def post(self, entries: tuple[Entry, ...]) -> None: ...

    def add_holding(self, holding: Holding, *, by: str, at: datetime) -> int: ...


class PurchaseStore(Protocol):
    """The store, as far as purchases need it."""

    def writing(self) -> AbstractContextManager[PurchaseWriting]: ...

    def purchase(self, id: str) -> Purchase: ...


class CapacityBuyer:
    """``seller``: the provider of a name. ``policy``: the policies in force, as a look at the store has them. ``tell``:
    sends a notice, each key once.

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
        """Take every step that is possible now; the purchase as it is then. Raises `StoreProblem`, and what the
        provider raises where a person has to act or a later call may work; the purchase is unharmed then."""
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
            return sent  # the policies object, or another process was quicker
        return self._send(sent, seller)

    def _judged_again(self, purchase: Purchase, quote: CapacityQuote) -> Purchase:
        """Judge by the rules in force now, and write down that the order is sent: in one transaction, so that no rule
        and no other purchase comes in between."""
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
            return purchase  # others may have looked for it already
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
        """Find the order by its mark. That it is not found proves nothing: the provider may list it late."""
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
        """A person made sure at the provider that an order without an answer was not taken. The order is looked for
        once more. Raises what the provider raises when it cannot be."""
        found = self._seller(purchase.quote.provider).find_orders(purchase.quote, purchase.id)
        if found:
            return self._write(purchase, OrderTaken(order=_first(found), found=True))
        return self._fail(purchase, NotBought.FOUND_NOTHING, evidence, by=by)

    def end_unbought(self, purchase: Purchase, reason: NotBought, by: str, evidence: str) -> Purchase:
        """A person ends a purchase that was not ordered yet."""
        return self._fail(purchase, reason, evidence, by=by)

    # --- writing -----------------------------------------------------------------------------------------------------

    def _write(self, purchase: Purchase, event: PurchaseEvent) -> Purchase:
        """Append the event if nobody else has changed the purchase meanwhile."""
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
    """The order that counts. More than one with the same mark is nothing that this program does."""
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
