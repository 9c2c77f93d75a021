"""The state of a purchase, folded from its events. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from broker.core.policy.approvals import Question
from broker.core.purchases import purchase_events as ev
from broker.core.purchases.quotes import CapacityQuote, Order, UndoTerms
from broker.core.records import Record, RecordOfKind
from broker.core.values.money import Money

PREFIX = "purchase-"


def is_purchase(id: str) -> bool:
    """Whether the id of a ledger entry names a purchase, not a job."""
    return id.startswith(PREFIX)


class PurchaseState(StrEnum):
    """The state of a purchase."""

    ASKING = "asking"  # waits for approvals
    APPROVED = "approved"  # to be ordered
    ORDERING = "ordering"  # the order was sent; no answer yet
    UNKNOWN = "unknown"  # the order was sent; it is unknown whether the provider accepted it
    ORDERED = "ordered"  # the provider has the order but has not charged for it yet
    HELD = "held"  # paid or promised; the capacity or the lower price is available for its period
    UNDOING = "undoing"  # the provider was asked to cancel it or take it back
    ENDED = "ended"  # its period has ended
    UNDONE = "undone"  # cancelled or returned
    NOT_BOUGHT = "not_bought"

    @property
    def closed(self) -> bool:
        return self in (PurchaseState.ENDED, PurchaseState.UNDONE, PurchaseState.NOT_BOUGHT)

    @property
    def before_order(self) -> bool:
        """Whether the order was not sent yet, so that the purchase can be withdrawn."""
        return self in (PurchaseState.ASKING, PurchaseState.APPROVED)


class Purchase(Record):
    """A purchase, folded from its events. Times are UTC, amounts USD. ``quote``: the newest; ``questions``: of the
    policies that judged it last; ``approved_by``: approvers in order, of whom only those whom the questions name
    count; ``changed_at``: the time of its last event; ``charged``: the amount
    spent; ``holding``: its number among the recorded holdings.

    ``sent_at``: the last time the order was sent, ``first_sent_at``: the first; ``repeats``: the number of repetitions.
    ``paid_at``: when it was paid or confirmed. ``accrued``: the recurring price that fell due up to ``accrued_to``.
    ``undo``: the terms on which ``undone_by`` undoes it, requested at ``undo_at``."""

    id: str
    seq: int
    state: PurchaseState
    user: str
    team: str | None
    project: str | None
    environment: str | None
    quote: CapacityQuote
    ceiling: Money
    binding: str
    questions: tuple[Question, ...]
    approvals: int
    basis: tuple[str, ...] = ()
    approved_by: tuple[str, ...] = ()
    intended_at: datetime
    changed_at: datetime
    sent_at: datetime | None = None
    order: Order | None = None
    charged: Money = Money.ZERO
    holding: int | None = None
    evidence: str = ""
    reason: ev.NotBought | None = None
    ended_by: str = ""
    first_sent_at: datetime | None = None
    repeats: int = 0
    paid_at: datetime | None = None
    accrued: Money = Money.ZERO
    accrued_to: datetime | None = None
    undo: UndoTerms | None = None
    undo_at: datetime | None = None
    undone_by: str = ""

    @property
    def held(self) -> Money:
        """The amount held for it (USD): the ceiling until it is paid or has failed, then the payments still to fall
        due."""
        if self.state.closed:
            return Money.ZERO
        return self.ceiling if self.paid_at is None else max(self.quote.recurring - self.accrued, Money.ZERO)

    @property
    def open_questions(self) -> tuple[Question, ...]:
        """The questions that no permitted approver has answered."""
        return tuple(
            question
            for question in self.questions
            if not any(question.may_answer(approver, self.user) for approver in self.approved_by)
        )

    @property
    def approvals_missing(self) -> int:
        """The number of further approvals required, from any approvers."""
        return max(self.approvals - sum(self._is_approver(approver) for approver in self.approved_by), 0)

    @property
    def agreed(self) -> bool:
        return not self.open_questions and not self.approvals_missing

    def may_approve(self, person: str) -> bool:
        """Whether this person's approval would count: not the buyer's, not a second one of the same person, and only of
        an approver named by a rule."""
        if person == self.user or person in self.approved_by or self.state is not PurchaseState.ASKING:
            return False
        return self._is_approver(person)

    def _is_approver(self, person: str) -> bool:
        return any(question.may_answer(person, self.user) for question in self.questions)

    def asking(self, questions: tuple[Question, ...]) -> Purchase:
        return self.model_copy(update={"questions": questions})

    def has_other_questions(self, questions: tuple[Question, ...]) -> bool:
        """Whether these questions are for other rules or other people than the present ones."""
        return _question_keys(self.questions) != _question_keys(questions)


def _question_keys(questions: tuple[Question, ...]) -> set[tuple[str, tuple[str, ...], bool]]:
    return {(question.rule, question.approvers, question.own_requests) for question in questions}


class ImpossiblePurchase(ValueError):
    """An event that cannot follow the purchase's earlier events."""


_ALLOWED_STATES: dict[type[RecordOfKind], frozenset[PurchaseState]] = {
    ev.AskedAgain: frozenset({PurchaseState.ASKING, PurchaseState.APPROVED}),
    ev.Approved: frozenset({PurchaseState.ASKING}),
    ev.OrderSent: frozenset({PurchaseState.APPROVED}),
    ev.OrderNotTaken: frozenset({PurchaseState.ORDERING}),
    ev.OrderUnanswered: frozenset({PurchaseState.ORDERING}),
    ev.OrderRepeated: frozenset({PurchaseState.UNKNOWN}),
    ev.OrderTaken: frozenset({PurchaseState.ORDERING, PurchaseState.UNKNOWN, PurchaseState.ORDERED}),
    ev.OrderPaid: frozenset({PurchaseState.ORDERED}),
    ev.Accrued: frozenset({PurchaseState.HELD, PurchaseState.UNDOING}),
    ev.UndoAsked: frozenset({PurchaseState.ORDERED, PurchaseState.HELD}),
    ev.UndoRefused: frozenset({PurchaseState.UNDOING}),
    ev.Undone: frozenset({PurchaseState.UNDOING}),
    ev.PurchaseEnded: frozenset({PurchaseState.HELD}),
    ev.PurchaseFailed: frozenset(
        {
            PurchaseState.ASKING,
            PurchaseState.APPROVED,
            PurchaseState.ORDERING,
            PurchaseState.UNKNOWN,
            PurchaseState.ORDERED,
        }
    ),
}

OrderEvent = (
    ev.OrderSent | ev.OrderRepeated | ev.OrderNotTaken | ev.OrderUnanswered | ev.OrderTaken | ev.OrderPaid | ev.Accrued
)


def start_purchase(id: str, event: ev.Intended, at: datetime) -> Purchase:
    """A purchase after its first event."""
    purchase = Purchase(
        id=id,
        seq=1,
        state=PurchaseState.ASKING,
        user=event.user,
        team=event.team,
        project=event.project,
        environment=event.environment,
        quote=event.quote,
        ceiling=event.ceiling,
        binding=event.binding,
        questions=event.questions,
        approvals=event.approvals,
        basis=event.basis,
        intended_at=at,
        changed_at=at,
    )
    return purchase.model_copy(update={"state": PurchaseState.APPROVED}) if purchase.agreed else purchase


def apply_event(purchase: Purchase, event: ev.PurchaseEvent, at: datetime) -> Purchase:
    """The purchase after one more event. Raises `ImpossiblePurchase`."""
    allowed = _ALLOWED_STATES.get(type(event), frozenset())
    if purchase.state not in allowed:
        raise ImpossiblePurchase(f"{event.kind} cannot follow in state {purchase.state} of {purchase.id}")
    changed = purchase.model_copy(update={**_change(purchase, event, at), "seq": purchase.seq + 1, "changed_at": at})
    if changed.state is PurchaseState.ASKING and changed.agreed:
        return changed.model_copy(update={"state": PurchaseState.APPROVED})
    return changed


def fold_purchase(id: str, events: Iterable[tuple[datetime, ev.PurchaseEvent]]) -> Purchase:
    """A purchase from all its events with their times. Raises `ImpossiblePurchase`."""
    stream = iter(events)
    at, first = next(stream)
    if not isinstance(first, ev.Intended):
        raise ImpossiblePurchase(f"{id} begins with {first.kind}")
    purchase = start_purchase(id, first, at)
    for at, event in stream:
        purchase = apply_event(purchase, event, at)
    return purchase


def _change(purchase: Purchase, event: ev.PurchaseEvent, at: datetime) -> dict[str, object]:
    match event:
        case ev.AskedAgain():
            return {"state": PurchaseState.ASKING, "questions": event.questions, "quote": event.quote}
        case ev.Approved():
            if event.binding != purchase.binding:
                raise ImpossiblePurchase(f"the approval by {event.by} is for {event.binding}, not {purchase.binding}")
            if not purchase.may_approve(event.by):
                raise ImpossiblePurchase(f"{event.by} may not approve {purchase.id}")
            return {"approved_by": (*purchase.approved_by, event.by)}
        case ev.PurchaseEnded():
            return {"state": PurchaseState.ENDED, "evidence": event.evidence}
        case ev.PurchaseFailed():
            outcome = {"reason": event.reason, "ended_by": event.by, "evidence": event.evidence}
            return {"state": PurchaseState.NOT_BOUGHT, **outcome}
        case ev.Intended():
            raise ImpossiblePurchase(f"{purchase.id} was intended already")
        case ev.UndoAsked() | ev.UndoRefused() | ev.Undone():
            return _undo_change(purchase, event, at)
        case _:
            return _order_change(purchase, event, at)


def _order_change(purchase: Purchase, event: OrderEvent, at: datetime) -> dict[str, object]:
    match event:
        case ev.OrderSent():
            times = {"sent_at": at, "first_sent_at": at, "repeats": 0}
            return {"state": PurchaseState.ORDERING, "quote": event.quote, **times}
        case ev.OrderRepeated():
            return {"state": PurchaseState.ORDERING, "sent_at": at, "repeats": purchase.repeats + 1}
        case ev.OrderNotTaken():
            return {"state": PurchaseState.APPROVED, "sent_at": None, "evidence": event.evidence}
        case ev.OrderUnanswered():
            return {"state": PurchaseState.UNKNOWN, "evidence": event.evidence}
        case ev.OrderTaken():
            return {"state": PurchaseState.ORDERED, "order": event.order, "evidence": ""}
        case ev.OrderPaid():
            figures = {"charged": event.charged, "holding": event.holding}
            return {"state": PurchaseState.HELD, "order": event.order, "paid_at": at, **figures}
        case ev.Accrued():
            sums = {"charged": purchase.charged + event.amount, "accrued": purchase.accrued + event.amount}
            return {"order": event.order, "accrued_to": event.until, **sums}


def _undo_change(
    purchase: Purchase, event: ev.UndoAsked | ev.UndoRefused | ev.Undone, at: datetime
) -> dict[str, object]:
    match event:
        case ev.UndoAsked():
            changes = {"undo": event.terms, "undo_at": at, "undone_by": event.by, "evidence": ""}
            return {"state": PurchaseState.UNDOING, **changes}
        case ev.UndoRefused():
            previous = PurchaseState.ORDERED if purchase.paid_at is None else PurchaseState.HELD
            return {"state": previous, "undo": None, "undo_at": None, "undone_by": "", "evidence": event.evidence}
        case ev.Undone():
            charged = purchase.charged + event.charge - event.refund
            return {"state": PurchaseState.UNDONE, "order": event.order, "charged": charged}
