"""The events of a purchase: immutable facts in one ordered stream per purchase. Times are UTC, money is USD.

The order of writes prevents a second purchase: `OrderSent` is written before the call to the provider. A process that
finds it without an answer searches for the order and never sends it again.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from broker.core.job.reasons import RuleObjection
from broker.core.policy.approvals import Question
from broker.core.purchases.quotes import CapacityQuote, Order, UndoTerms
from broker.core.records import RecordOfKind
from broker.core.values.money import Money


class NotBought(StrEnum):
    """Why a purchase ended without capacity."""

    POLICY = "policy"  # the policies in force at the time of the order forbid it
    GONE = "gone"  # the provider does not offer it any more
    DEARER = "dearer"  # the price exceeds the ceiling
    PROVIDER_REFUSED = "provider_refused"
    NOT_PAID = "not_paid"  # the provider could not charge for it
    TOO_LATE = "too_late"  # its period has begun, or the approval came too late
    REJECTED = "rejected"  # an approver rejected it
    WITHDRAWN = "withdrawn"  # the buyer withdrew it before the order
    FOUND_NOTHING = "found_nothing"  # a person verified that an unanswered order bought nothing


class Intended(RecordOfKind):
    """A request to buy. ``ceiling``: the maximum price, which is held (USD); ``questions``: of rules that require an
    approval; ``approvals``: the number of people who must approve. ``binding``: see `CapacityQuote.binding`. ``basis``:
    what it is compared with, in sentences for the approvers."""

    kind: Literal["intended"] = "intended"
    quote: CapacityQuote
    ceiling: Money
    binding: str
    user: str
    team: str | None = None
    project: str | None = None
    environment: str | None = None
    questions: tuple[Question, ...] = ()
    approvals: int = 0
    basis: tuple[str, ...] = ()


class AskedAgain(RecordOfKind):
    """The policies in force ask other people than before, or for more: all questions, instead of the earlier ones.
    ``quote``: what they judged."""

    kind: Literal["asked_again"] = "asked_again"
    quote: CapacityQuote
    questions: tuple[Question, ...]


class Approved(RecordOfKind):
    """One person approved the purchase identified by ``binding``."""

    kind: Literal["approved"] = "approved"
    by: str
    binding: str


class OrderSent(RecordOfKind):
    """The order is about to be sent, once. ``quote``: the provider's newest quote, within the ceiling."""

    kind: Literal["order_sent"] = "order_sent"
    quote: CapacityQuote


class OrderNotTaken(RecordOfKind):
    """The provider did not process the order (rate limit): it may be sent again."""

    kind: Literal["order_not_taken"] = "order_not_taken"
    evidence: str


class OrderUnanswered(RecordOfKind):
    """It is unknown whether the provider accepted the order: the call was interrupted, and no order is found."""

    kind: Literal["order_unanswered"] = "order_unanswered"
    evidence: str


class OrderRepeated(RecordOfKind):
    """The order is about to be sent again under the same key, by which the provider knows it: it buys nothing twice."""

    kind: Literal["order_repeated"] = "order_repeated"


class OrderTaken(RecordOfKind):
    """The provider has the order. ``found``: it was found by its tag; the call had no answer."""

    kind: Literal["order_taken"] = "order_taken"
    order: Order
    found: bool = False


class OrderPaid(RecordOfKind):
    """The provider charged ``charged``, the part of the price that is paid at once, and has confirmed the order.
    ``holding``: its number among the recorded holdings."""

    kind: Literal["order_paid"] = "order_paid"
    order: Order
    charged: Money
    holding: int


class Accrued(RecordOfKind):
    """Of the recurring price, ``amount`` (USD) fell due up to ``until`` (UTC). ``order``: its state then."""

    kind: Literal["accrued"] = "accrued"
    order: Order
    until: datetime
    amount: Money


class UndoAsked(RecordOfKind):
    """``by`` asks the provider to undo it on these terms; written before the call."""

    kind: Literal["undo_asked"] = "undo_asked"
    by: str
    terms: UndoTerms


class UndoRefused(RecordOfKind):
    """The provider refused to undo it; it stays as it was."""

    kind: Literal["undo_refused"] = "undo_refused"
    evidence: str


class Undone(RecordOfKind):
    """The provider has undone it. ``charge``: what it charged for that, ``refund``: what it gave back (USD)."""

    kind: Literal["undone"] = "undone"
    order: Order
    charge: Money
    refund: Money


class PurchaseEnded(RecordOfKind):
    """Its period has ended; or ended earlier, for the reason ``evidence``."""

    kind: Literal["purchase_ended"] = "purchase_ended"
    evidence: str = ""


class PurchaseFailed(RecordOfKind):
    """It ended without capacity. ``by``: the person who decided, if one did; ``evidence``: the statement of the
    provider or that person."""

    kind: Literal["purchase_failed"] = "purchase_failed"
    reason: NotBought
    by: str = ""
    evidence: str = ""
    objections: tuple[RuleObjection, ...] = ()


PurchaseEvent = Annotated[
    Intended
    | AskedAgain
    | Approved
    | OrderSent
    | OrderNotTaken
    | OrderUnanswered
    | OrderRepeated
    | OrderTaken
    | OrderPaid
    | Accrued
    | UndoAsked
    | UndoRefused
    | Undone
    | PurchaseEnded
    | PurchaseFailed,
    Field(discriminator="kind"),
]
