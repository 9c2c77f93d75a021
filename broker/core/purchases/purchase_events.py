"""The events of a purchase: immutable facts in one ordered stream per purchase. Times are UTC, money is USD.

What is written before a call to the provider, and what after it, is what makes a second purchase impossible:
`OrderSent` stands before the call. Whoever finds it without an answer looks for the order and never sends it again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from broker.core.job.reasons import RuleObjection
from broker.core.policy.approvals import Question
from broker.core.purchases.quotes import CapacityQuote, Order, PurchaseValue
from broker.core.values.money import Money


class NotBought(StrEnum):
    """Why a purchase ended without capacity."""

    POLICY = "policy"  # the policies in force when it was to be ordered forbid it
    GONE = "gone"  # the provider does not offer it any more
    DEARER = "dearer"  # it would cost more than the ceiling
    PROVIDER_REFUSED = "provider_refused"
    NOT_PAID = "not_paid"  # the provider could not charge for it
    TOO_LATE = "too_late"  # its time has begun, or the approval came too late
    REJECTED = "rejected"  # an approver said no
    WITHDRAWN = "withdrawn"  # the buyer took it back before it was ordered
    FOUND_NOTHING = "found_nothing"  # a person made sure that an order without an answer bought nothing


class Intended(PurchaseValue):
    """Somebody wants to buy. ``ceiling``: the most it may cost, and what is held; ``questions``: rules whose approvers
    have to agree; ``approvals``: how many people have to approve. ``binding``: see `CapacityQuote.binding`."""

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


class AskedAgain(PurchaseValue):
    """When it was to be ordered, rules that nobody had answered required an approval."""

    kind: Literal["asked_again"] = "asked_again"
    questions: tuple[Question, ...]


class Approved(PurchaseValue):
    """One person approved what ``binding`` stands for."""

    kind: Literal["approved"] = "approved"
    by: str
    binding: str


class OrderSent(PurchaseValue):
    """The order is about to be sent, once. ``quote``: the provider's newest, within the ceiling."""

    kind: Literal["order_sent"] = "order_sent"
    quote: CapacityQuote


class OrderNotTaken(PurchaseValue):
    """The provider did not look at the order (its rate limit): it may be sent again."""

    kind: Literal["order_not_taken"] = "order_not_taken"
    evidence: str


class OrderUnanswered(PurchaseValue):
    """Nobody knows whether the order was taken: the call broke off, and no order is found."""

    kind: Literal["order_unanswered"] = "order_unanswered"
    evidence: str


class OrderTaken(PurchaseValue):
    """The provider has the order. ``found``: it was found by its tag, not answered to."""

    kind: Literal["order_taken"] = "order_taken"
    order: Order
    found: bool = False


class OrderPaid(PurchaseValue):
    """The provider charged ``charged`` and the capacity is ours. ``holding``: its number in the capacity on record."""

    kind: Literal["order_paid"] = "order_paid"
    order: Order
    charged: Money
    holding: int


class PurchaseEnded(PurchaseValue):
    """Its time has passed."""

    kind: Literal["purchase_ended"] = "purchase_ended"


class PurchaseFailed(PurchaseValue):
    """It ended without capacity. ``by``: the person, where one decided; ``evidence``: what the provider or that person
    said."""

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
    | OrderTaken
    | OrderPaid
    | PurchaseEnded
    | PurchaseFailed,
    Field(discriminator="kind"),
]
