"""Quotes and purchases of capacity as results. Money in USD."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from broker.app.documents import Moment, Result, VerdictResult
from broker.core.policy.policy import Answer
from broker.core.purchases.purchase_events import NotBought, PurchaseEvent
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.purchases.quotes import (
    CapacityQuote,
    PurchaseProduct,
    Undo,
)
from broker.core.values.money import Money


class QuoteResult(Result):
    """A provider's quote. ``number``: with which it can be bought within an hour; null where it is not known.
    ``undo``: how a purchase of it can be undone, with ``until``: by ``undo_until``. ``total_usd``: all machines, the
    whole time; ``upfront_usd`` of it is paid when it is bought, ``recurring_usd`` over its period. ``at_once``: the
    period begins with the order. ``terms``: its kind and payment option."""

    number: int | None
    product: PurchaseProduct
    provider: str
    offering: str
    region: str
    zone: str | None
    instance_type: str
    accelerator: str
    count: int
    machines: int
    starts: Moment
    ends: Moment
    total_usd: Money
    machine_hour_usd: Money
    upfront_usd: Money
    recurring_usd: Money
    undo: Undo
    undo_until: Moment | None
    at_once: bool
    terms: str
    quoted_at: Moment

    @classmethod
    def of(cls, quote: CapacityQuote, number: int | None = None) -> Self:
        return cls.from_parts(
            quote, number=number, machine_hour_usd=quote.per_machine_hour, upfront_usd=quote.paid_upfront
        )


class QuoteList(Result):
    """`capacity quote`: cheapest first. ``problems``: the errors of providers that failed, by name."""

    quotes: list[QuoteResult]
    asked: list[str]
    problems: dict[str, str]

    @classmethod
    def of(cls, quote_result: CollectedQuotes) -> Self:
        return cls(
            quotes=[QuoteResult.of(quote, number) for number, quote in quote_result.quotes],
            asked=list(quote_result.asked),
            problems=join_by_name(quote_result.problems),
        )


class PurchasePreviewResult(Result):
    """`capacity buy --dry-run`: the hold, the verdicts of the rules, the number of people who must
    approve. ``binding``: the terms that an approval would be bound to; ``basis``: what it is compared with."""

    answer: Answer
    quote: QuoteResult
    held_usd: Money
    approvals: int
    binding: str
    basis: list[str]
    verdicts: list[VerdictResult]


class OrderResult(Result):
    """The order at its provider. ``state``: the provider's word."""

    id: str
    state: str


class PurchaseResult(Result):
    """One purchase. ``basis``: what it was compared with when it was requested; ``held_usd``: what is set aside for it;
    ``charged_usd``: what was paid; ``approvers``: who may still approve; ``holding``: its number in `capacity list`;
    ``reason``: why nothing was bought; ``undone_by``: who cancelled or returned it, or asked the provider to."""

    id: str
    state: PurchaseState
    user: str
    team: str | None
    project: str | None
    environment: str | None
    quote: QuoteResult
    ceiling_usd: Money
    held_usd: Money
    charged_usd: Money
    binding: str
    basis: list[str]
    approved_by: list[str]
    approvals_missing: int
    approvers: list[str]
    order: OrderResult | None
    holding: int | None
    reason: NotBought | None
    undone_by: str
    evidence: str
    intended_at: Moment
    changed_at: Moment

    @classmethod
    def of(cls, purchase: Purchase) -> Self:
        questions = purchase.questions if purchase.state is PurchaseState.ASKING else ()
        return cls.from_parts(
            purchase,
            approvers=sorted(
                {approver for question in questions for approver in question.approvers}
                - {purchase.user, *purchase.approved_by}
            ),
            order=OrderResult(id=purchase.order.id, state=purchase.order.word) if purchase.order else None,
        )


class UndoTermsResult(Result):
    """`capacity undo --dry-run`: ``way``: the provider's word for it; ``charge_usd``: what it charges for that,
    ``refund_usd``: what it gives back of what was paid upfront; ``until``: when these terms end; null if unknown."""

    purchase: str
    way: str
    charge_usd: Money
    refund_usd: Money
    until: Moment | None


class PurchaseList(Result):
    """`capacity purchases`, oldest first."""

    purchases: list[PurchaseResult]


class PurchaseStep(Result):
    """One event of a purchase. ``fields``: as stored."""

    at: Moment
    kind: str
    fields: dict[str, Any]


class PurchaseHistory(Result):
    """`capacity purchases PURCHASE`: a purchase and all that happened to it."""

    purchase: PurchaseResult
    events: list[PurchaseStep]

    @classmethod
    def of(cls, purchase: Purchase, events: Sequence[tuple[datetime, PurchaseEvent]]) -> Self:
        documents = [(at, event.model_dump(mode="json")) for at, event in events]
        steps = [PurchaseStep(at=at, kind=fields.pop("kind"), fields=fields) for at, fields in documents]
        return cls(purchase=PurchaseResult.of(purchase), events=steps)


def join_by_name(problems: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The problems by the name that each is about; several about one name are joined by semicolons."""
    sentences_by_name: dict[str, list[str]] = {}
    for name, sentence in problems:
        sentences_by_name.setdefault(name, []).append(sentence)
    return {name: "; ".join(sentences) for name, sentences in sentences_by_name.items()}


@dataclass(frozen=True, slots=True)
class CollectedQuotes:
    """Quotes with their numbers, cheapest first. ``problems``: the errors of the providers that failed, by name."""

    quotes: tuple[tuple[int, CapacityQuote], ...]
    asked: tuple[str, ...]
    problems: tuple[tuple[str, str], ...]
