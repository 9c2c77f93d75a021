"""Advances purchases from approval to paid capacity; each is ordered at most once.

Several processes may do so with the same store. `OrderSent` is written under the store's write lock before the call to
the provider; from then on no process sends that order again. If the answer is lost (a crash, a time-out, an unreadable
answer), the order is searched for by its tag, and a person is notified. It is sent again only where the provider knows
it by its key (`SellsProduct.repeats_for`). Only a person may declare that nothing was bought
(`declare_nothing_bought`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from broker.core.errors import AskAPerson, BrokerError, GiveUp, OutcomeUnknown, RetryLater, TryAnotherOffer
from broker.core.market.offers import SkippedRow
from broker.core.notices import Notice
from broker.core.policy.policy import Answer
from broker.core.ports import PolicySet
from broker.core.purchases import purchase_events as ev
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.purchases.quotes import ENDS_AT_TERM, CapacityQuote, Order, OrderState, SellsProduct, UndoTerms
from broker.core.values.clock import Clock
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.ledger.entries import Entry
from broker.procurement.judgment import PurchaseJudgement, decision_of, judge_again, objections
from broker.procurement.money import (
    accrual,
    billed_until,
    early_end,
    end_entries,
    next_due,
    overdue,
    payment_entries,
    release_entries,
    undo_entries,
)
from broker.procurement.notices import ending_notice, notice_of, unended_notice

if TYPE_CHECKING:
    from broker.store.jobs.journal import StoreWriter
    from broker.store.store import Store

# A process that is delayed longer than this after it wrote `OrderSent` does not send the order.
_SENT_WITHIN = timedelta(seconds=10)
# The process that sent an order may wait this long for the answer; the time-outs of providers are shorter.
_ANSWER_TIME = timedelta(seconds=50)
# The shortest time between an order and the start of its period.
_MIN_PERIOD = timedelta(minutes=5)
# How long a purchase that begins with its order waits for approvals.
_APPROVAL_TIME = timedelta(days=7)
# An order without an answer is sent again this often at most, and not before the answer may have been listed.
_MAX_REPEATS = 3
_REPEAT_DELAY = timedelta(seconds=15)
_Arguments = ParamSpec("_Arguments")
_FINAL_STATES = (OrderState.OVER, OrderState.FAILED, OrderState.REFUSED)


def _unless_changed(
    change: Callable[Concatenate[CapacityBuyer, StoreWriter, Purchase, _Arguments], Purchase],
) -> Callable[Concatenate[CapacityBuyer, Purchase, _Arguments], Purchase]:
    """The change of a purchase as a method with a transaction of its own; if the purchase has changed meanwhile, that
    only returns what it is now."""

    def method(
        self: CapacityBuyer, purchase: Purchase, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> Purchase:
        with self._store.writing() as tx:
            current = tx.purchase(purchase.id) or purchase
            return change(self, tx, current, *args, **kwargs) if current.seq == purchase.seq else current

    return method


class CapacityBuyer:
    """Advances purchases; several processes may do so at once. ``seller``: returns the seller of a quote's product.
    ``policy``: returns the policies in force from a snapshot of the store. ``tell``: sends a notice, each key once."""

    def __init__(
        self,
        store: Store,
        seller: Callable[[CapacityQuote], SellsProduct],
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
            latest = self._store.purchase(id)
            if (notice := notice_of(latest)) is not None:
                self._tell(notice)
            ending = ending_notice(latest, self._clock.now())
            if ending is not None:
                self._tell(ending)

    def _step(self, purchase: Purchase) -> Purchase:
        now = self._clock.now()
        match purchase.state:
            case PurchaseState.ASKING if now >= _order_deadline(purchase):
                return self._fail(purchase, ev.NotBought.TOO_LATE)
            case PurchaseState.ASKING:
                return self._ask_again(purchase)
            case PurchaseState.APPROVED:
                return self._order(purchase)
            case PurchaseState.ORDERING if purchase.sent_at is None or now >= purchase.sent_at + _ANSWER_TIME:
                return self._look_for(purchase, "the process that sent the order did not report an answer")
            case PurchaseState.UNKNOWN:
                return self._look_again(purchase)
            case PurchaseState.ORDERED:
                return self._confirm(purchase)
            case PurchaseState.HELD:
                return self._hold(purchase, now)
            case PurchaseState.UNDOING:
                return self._undo(purchase)
            case _:
                return purchase

    @_unless_changed
    def _ask_again(self, tx: StoreWriter, purchase: Purchase) -> Purchase:
        """Ask the approvers whom the policies in force name, if they differ from those asked. A denial waits for the
        order."""
        judgment = judge_again(purchase, purchase.quote, self._policy(tx), tx, self._clock.now())
        if judgment.answer is Answer.DENY or not purchase.has_other_questions(judgment.questions):
            return purchase
        return tx.append_purchase(purchase.id, _asked_again_event(purchase.quote, judgment), self._clock.now())

    # --- the order ---------------------------------------------------------------------------------------------------

    def _order(self, purchase: Purchase) -> Purchase:
        now = self._clock.now()
        if now >= _order_deadline(purchase):
            return self._fail(purchase, ev.NotBought.TOO_LATE)
        seller = self._seller(purchase.quote)
        matching = [quote for quote in _quotes(seller, purchase.quote) if quote.same_capacity(purchase.quote)]
        if not matching:
            return self._fail(purchase, ev.NotBought.GONE)
        quote = min(
            matching,
            key=lambda candidate: (candidate.total, candidate.offering != purchase.quote.offering, candidate.offering),
        )
        if quote.total > purchase.ceiling:
            explanation = f"it costs {quote.total.rounded(2)} now; at most {purchase.ceiling.rounded(2)} was approved"
            return self._fail(purchase, ev.NotBought.DEARER, explanation)
        try:
            seller.try_order(quote, purchase.id)
        except (GiveUp, TryAnotherOffer) as error:
            return self._fail(purchase, ev.NotBought.PROVIDER_REFUSED, str(error))
        updated = self._judge_and_record(purchase, quote, marked=seller.marked)
        if updated.state is not PurchaseState.ORDERING or updated.seq != purchase.seq + 1:
            return updated  # the policies object, or another process was faster
        return self._send(updated, seller)

    @_unless_changed
    def _judge_and_record(self, tx: StoreWriter, purchase: Purchase, quote: CapacityQuote, *, marked: bool) -> Purchase:
        """Judge by the rules in force and record that the order is sent, in one transaction: no change of rules and no
        other purchase can come between. Orders without a mark are sent one after the other: two of the same, both
        without an answer, could not be told apart."""
        now = self._clock.now()
        if not marked and any(_same_queue(other, quote) for other in tx.purchases()):
            return purchase
        judgment = judge_again(purchase, quote, self._policy(tx), tx, now)
        tx.record(decision_of(purchase.id, judgment, now))
        if judgment.answer is Answer.DENY:
            denial_objections = tuple(verdict.objection for verdict in judgment.denials)
            failure = ev.PurchaseFailed(
                reason=ev.NotBought.POLICY, evidence=objections(judgment.denials), objections=denial_objections
            )
            tx.post(release_entries(purchase, now))
            return tx.append_purchase(purchase.id, failure, now)
        is_agreed = purchase.asking(judgment.questions).agreed
        event = ev.OrderSent(quote=quote) if is_agreed else _asked_again_event(quote, judgment)
        return tx.append_purchase(purchase.id, event, now)

    def _send(self, purchase: Purchase, seller: SellsProduct) -> Purchase:
        if purchase.sent_at is None or self._clock.now() > purchase.sent_at + _SENT_WITHIN:
            return purchase  # another process may already be searching for it
        try:
            order = seller.order(purchase.quote, purchase.id)
        except OutcomeUnknown as error:
            return self._look_for(purchase, str(error))
        except (RetryLater, AskAPerson, GiveUp, TryAnotherOffer) as error:
            if not purchase.repeats:
                return self._record_refusal(purchase, error)
            return self._look_for(purchase, str(error))  # the first call may have succeeded
        return self._write(self._store.purchase(purchase.id), ev.OrderTaken(order=order))

    def _record_refusal(self, purchase: Purchase, error: BrokerError) -> Purchase:
        """Record that the provider refused the first call of an order: nothing was bought."""
        if isinstance(error, GiveUp | TryAnotherOffer):
            return self._fail(purchase, ev.NotBought.PROVIDER_REFUSED, str(error))
        self._write(purchase, ev.OrderNotTaken(evidence=str(error)))
        raise error

    # --- after the order ---------------------------------------------------------------------------------------------

    def _look_for(self, purchase: Purchase, evidence: str) -> Purchase:
        """Search for the order by its tag. A search without result proves nothing: the provider may list it late."""
        seller = self._seller(purchase.quote)
        try:
            candidates = self._orders(seller, purchase)
        except BrokerError as error:
            candidates, evidence = [], f"{evidence}; and the orders cannot be listed: {error}"
        if not seller.marked and len(candidates) > 1:
            order_ids = ", ".join(sorted(order.id for order in candidates))
            candidates, evidence = [], f"{evidence}; several orders could be it: {order_ids}"
        if candidates:
            return self._write(purchase, ev.OrderTaken(order=_preferred_order(candidates), found=True))
        if purchase.state is PurchaseState.UNKNOWN:
            return purchase
        return self._write(purchase, ev.OrderUnanswered(evidence=evidence))

    def _look_again(self, purchase: Purchase) -> Purchase:
        """Search again; where the provider knows the order by its key, send it again."""
        current = self._look_for(purchase, purchase.evidence)
        seller, now = self._seller(purchase.quote), self._clock.now()
        first_sent, last_sent = purchase.first_sent_at, purchase.sent_at
        if current.seq != purchase.seq or first_sent is None or last_sent is None:
            return current
        too_late = now >= min(first_sent + seller.repeats_for, purchase.quote.ends - _MIN_PERIOD)
        if purchase.repeats >= _MAX_REPEATS or too_late or now < last_sent + _REPEAT_DELAY:
            return current
        repeated = self._record_repetition(purchase)
        if repeated.state is not PurchaseState.ORDERING or repeated.seq != purchase.seq + 1:
            return repeated  # another process was faster
        return self._send(repeated, seller)

    @_unless_changed
    def _record_repetition(self, tx: StoreWriter, purchase: Purchase) -> Purchase:
        """Record that the order is sent again, if the policies in force still agree; otherwise it stays unanswered."""
        judgment = judge_again(purchase, purchase.quote, self._policy(tx), tx, self._clock.now())
        if judgment.answer is Answer.DENY or not purchase.asking(judgment.questions).agreed:
            return purchase
        return tx.append_purchase(purchase.id, ev.OrderRepeated(), self._clock.now())

    def _orders(self, seller: SellsProduct, purchase: Purchase) -> Sequence[Order]:
        """The orders that may be this purchase's."""
        orders = seller.find_orders(purchase.quote, purchase.id)
        if seller.marked:
            return orders
        other_orders = {
            other.order.id for other in self._store.purchases(closed=True) if other.order and other.id != purchase.id
        }
        return [order for order in orders if order.id not in other_orders]

    def _newest(self, purchase: Purchase) -> Order:
        """The order as the provider lists it now, or as last seen if it is not listed. ``billed_from`` is kept: a
        provider that has deleted the resource no longer reports it."""
        recorded = purchase.order
        assert recorded is not None
        listed = self._seller(purchase.quote).find_orders(purchase.quote, purchase.id)
        newest = next((listed_order for listed_order in listed if listed_order.id == recorded.id), recorded)
        if newest.billed_from is None:
            return newest.model_copy(update={"billed_from": recorded.billed_from})
        return newest

    def _confirm(self, purchase: Purchase) -> Purchase:
        order = purchase.order
        assert order is not None
        if order.state in (OrderState.PENDING, OrderState.UNDOING):
            order = self._newest(purchase)
        match order.state:
            case OrderState.PENDING | OrderState.UNDOING:
                return purchase
            case OrderState.FAILED:
                return self._fail(purchase, ev.NotBought.NOT_PAID, order.word)
            case OrderState.REFUSED:
                return self._fail(purchase, ev.NotBought.PROVIDER_REFUSED, order.word)
            case OrderState.OVER if order.billed_from is None and not purchase.quote.paid_upfront:
                return self._fail(purchase, ev.NotBought.PROVIDER_REFUSED, order.word)
            case _:
                return self._record_payment(purchase, order)

    @_unless_changed
    def _record_payment(self, tx: StoreWriter, purchase: Purchase, order: Order) -> Purchase:
        now, charged = self._clock.now(), purchase.quote.paid_upfront
        number = tx.add_holding(_holding(purchase, order, charged), by=purchase.user, at=now)
        tx.post(payment_entries(purchase, charged, now))
        return tx.append_purchase(purchase.id, ev.OrderPaid(order=order, charged=charged, holding=number), now)

    def _hold(self, purchase: Purchase, now: datetime) -> Purchase:
        """Book the due payments of a purchase that is paid over its period; end the purchase after its period."""
        due = next_due(purchase)
        if due is None:
            end_reason = early_end(purchase)
            if not end_reason and now < purchase.quote.ends:
                return purchase
            if not end_reason and not self._seller(purchase.quote).ends_itself:
                return self._write(purchase, ev.UndoAsked(by=purchase.user, terms=UndoTerms(way=ENDS_AT_TERM)))
            return self._write(purchase, ev.PurchaseEnded(evidence=end_reason))
        if now < due:
            return purchase
        event, entries = accrual(purchase, self._newest(purchase), due, now)
        return self._write(purchase, event, entries)

    def _undo(self, purchase: Purchase) -> Purchase:
        """Ask the provider to undo the purchase. May be repeated: the order's id makes it idempotent."""
        seller, terms = self._seller(purchase.quote), purchase.undo
        assert terms is not None
        order = self._newest(purchase)
        if order.state in (OrderState.HELD, OrderState.PENDING):
            if terms.way == ENDS_AT_TERM:
                purchase = self._book_overrun(purchase, order)
                if purchase.state is not PurchaseState.UNDOING:
                    return purchase  # another process was faster
            refused: BrokerError | None = None
            try:
                seller.undo(purchase.quote, order, terms)
            except OutcomeUnknown:
                pass  # the provider's list shows it, now or later
            except (GiveUp, TryAnotherOffer) as error:
                refused = error
            order = self._newest(purchase)
            if refused and order.state in (OrderState.HELD, OrderState.PENDING):
                if terms.way == ENDS_AT_TERM:
                    self._tell(unended_notice(purchase, str(refused)))
                    raise refused  # repeated later, until the order is gone
                return self._write(purchase, ev.UndoRefused(evidence=str(refused)))
        return self._undone(purchase, order, terms) if order.state in _FINAL_STATES else purchase

    def _book_overrun(self, purchase: Purchase, order: Order) -> Purchase:
        """Book what the provider bills after the end of the period, until it ends the order."""
        if (due := overdue(purchase, self._clock.now())) is None:
            return purchase
        event, entries = accrual(purchase, order, due, self._clock.now())
        return self._write(purchase, event, entries)

    @_unless_changed
    def _undone(self, tx: StoreWriter, purchase: Purchase, order: Order, terms: UndoTerms) -> Purchase:
        now = self._clock.now()
        if purchase.paid_at is not None and purchase.quote.recurring:
            event, entries = accrual(purchase, order, billed_until(purchase, order, now), now)
            tx.post(entries)
            purchase = tx.append_purchase(purchase.id, event, now)
        charge, refund = (Money.ZERO, Money.ZERO) if purchase.paid_at is None else (terms.charge, terms.refund)
        tx.post(undo_entries(purchase, charge, refund, now))
        if purchase.holding is not None:
            tx.remove_holding(purchase.holding, by=purchase.undone_by, at=now)
        return tx.append_purchase(purchase.id, ev.Undone(order=order, charge=charge, refund=refund), now)

    # --- people ------------------------------------------------------------------------------------------------------

    def declare_nothing_bought(self, purchase: Purchase, by: str, evidence: str) -> Purchase:
        """Record that a person verified at the provider that an unanswered order bought nothing. First searches for the
        order once more; raises the provider's error if that fails."""
        orders = self._orders(self._seller(purchase.quote), purchase)
        if orders:
            return self._write(purchase, ev.OrderTaken(order=_preferred_order(orders), found=True))
        return self._fail(purchase, ev.NotBought.FOUND_NOTHING, evidence, by=by)

    def end_unbought(self, purchase: Purchase, reason: ev.NotBought, by: str, evidence: str) -> Purchase:
        """Record that a person ended a purchase before its order."""
        return self._fail(purchase, reason, evidence, by=by)

    def ask_undo(self, purchase: Purchase, terms: UndoTerms, by: str) -> Purchase:
        """Record that a person undoes the purchase on these terms, and ask the provider."""
        updated = self._write(purchase, ev.UndoAsked(by=by, terms=terms))
        return self.advance(purchase.id) if updated.state is PurchaseState.UNDOING else updated

    # --- writing -----------------------------------------------------------------------------------------------------

    @_unless_changed
    def _write(
        self, tx: StoreWriter, purchase: Purchase, event: ev.PurchaseEvent, entries: tuple[Entry, ...] = ()
    ) -> Purchase:
        """Append the event and post the entries, unless the purchase has changed. Returns the current purchase."""
        now = self._clock.now()
        tx.post(entries)
        if isinstance(event, ev.PurchaseFailed):
            tx.post(release_entries(purchase, now))
        if isinstance(event, ev.PurchaseEnded):
            tx.post(end_entries(purchase, now))
        return tx.append_purchase(purchase.id, event, now)

    def _fail(self, purchase: Purchase, reason: ev.NotBought, evidence: str = "", by: str = "") -> Purchase:
        return self._write(purchase, ev.PurchaseFailed(reason=reason, by=by, evidence=evidence))


def _asked_again_event(quote: CapacityQuote, judgment: PurchaseJudgement) -> ev.AskedAgain:
    return ev.AskedAgain(quote=quote, questions=judgment.questions)


def _order_deadline(purchase: Purchase) -> datetime:
    """The time (UTC) until which the purchase may be ordered."""
    quote = purchase.quote
    return purchase.intended_at + _APPROVAL_TIME if quote.at_once else quote.starts - _MIN_PERIOD


def _same_queue(other: Purchase, quote: CapacityQuote) -> bool:
    """Whether the other purchase has sent an order that could be taken for one of this quote."""
    other_quote = other.quote
    is_same_product = (
        other_quote.provider == quote.provider
        and other_quote.region == quote.region
        and other_quote.product == quote.product
    )
    return is_same_product and other.state in (PurchaseState.ORDERING, PurchaseState.UNKNOWN)


def _quotes(seller: SellsProduct, quote: CapacityQuote) -> Iterator[CapacityQuote]:
    return (row for row in seller.quotes(quote.request) if not isinstance(row, SkippedRow))


def _preferred_order(orders: Sequence[Order]) -> Order:
    """The order to use of several with one tag, which this program never creates."""
    alive = [order for order in orders if order.state not in (OrderState.FAILED, OrderState.REFUSED)]
    return min(alive or orders, key=lambda order: order.id)


def _holding(purchase: Purchase, order: Order, charged: Money) -> Holding:
    quote = purchase.quote
    return Holding(
        kind=HoldingKind.RESERVATION if quote.product.holds_machines else HoldingKind.COMMITMENT,
        accelerator=quote.accelerator,
        gpus=quote.count * quote.machines,
        provider=quote.provider,
        site=quote.zone or quote.region,
        starts=quote.starts,
        ends=quote.ends,
        upfront=charged,
        hourly=quote.hourly,
        watts=0.0,
        note=purchase.id,
        order_id=order.id,
    )
