"""Quotes and purchases as tables and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.capacity.purchases import PurchasePreview, Quoted
from broker.cli.render import formats
from broker.cli.render.tables import Column, ValueColumn, fitted, listed
from broker.core.policy.policy import Answer
from broker.core.purchases.purchase_events import NotBought, PurchaseEvent
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.purchases.quotes import CapacityQuote, PurchaseProduct, ResaleTerms, Undo, UndoTerms

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_UNDO = {
    Undo.NONE: "cannot be undone",
    Undo.QUOTE: "can be cancelled at a price that the provider quotes",
    Undo.ANY_TIME: "can be cancelled at any time",
}
_PRODUCTS = {
    PurchaseProduct.CAPACITY_BLOCK: "capacity block",
    PurchaseProduct.BLOCK_EXTENSION: "block extension",
    PurchaseProduct.CAPACITY_RESERVATION: "reservation",
    PurchaseProduct.FUTURE_RESERVATION: "future reservation",
    PurchaseProduct.RESERVED_INSTANCES: "reserved instances",
    PurchaseProduct.SAVINGS_PLAN: "savings plan",
    PurchaseProduct.COMMITMENT: "commitment",
    PurchaseProduct.PREPAID: "prepaid credit",
}
_STATES = {
    PurchaseState.ASKING: "waits for approval",
    PurchaseState.APPROVED: "approved, not ordered yet",
    PurchaseState.ORDERING: "the order was sent; no answer yet",
    PurchaseState.UNKNOWN: "unknown whether the provider accepted the order",
    PurchaseState.ORDERED: "ordered, not paid yet",
    PurchaseState.HELD: "bought",
    PurchaseState.UNDOING: "the provider was asked to undo it",
    PurchaseState.ENDED: "ended",
    PurchaseState.UNDONE: "undone",
    PurchaseState.SELLING: "for sale on the provider's market",
    PurchaseState.SOLD: "sold",
    PurchaseState.NOT_BOUGHT: "not bought",
}
_REASONS = {
    NotBought.POLICY: "the policies denied it before the order",
    NotBought.GONE: "the provider no longer offers it",
    NotBought.DEARER: "it now costs more than the ceiling",
    NotBought.PROVIDER_REFUSED: "the provider refused the order",
    NotBought.NOT_PAID: "the provider could not charge for it",
    NotBought.TOO_LATE: "its start has passed",
    NotBought.REJECTED: "rejected",
    NotBought.WITHDRAWN: "withdrawn",
    NotBought.FOUND_NOTHING: "the unanswered order bought nothing",
}


def quotes(console: Console, quoted: Quoted) -> list[RenderableType]:
    """The quotes as a table, cheapest first, then the providers that failed."""
    columns = (
        Column("#", align="right"),
        Column("kind", 5),
        Column("machines"),
        Column("GPUs", 2),
        Column("provider", 4),
        Column("place"),
        Column("starts"),
        Column("length"),
        Column("$/machine-h", 3, "right"),
        Column("total", align="right"),
        Column("upfront", 6, "right"),
        Column("undo", 1),
    )
    rows: list[list[str | Text]] = [
        [
            str(number),
            product(one),
            f"{one.machines} × {one.instance_type}",
            f"{one.accelerator} × {one.machines * one.count}",
            one.provider,
            one.zone or one.region,
            "at once" if one.at_once else formats.moment(one.starts),
            formats.length(one.length),
            f"{one.per_machine_hour.rounded(2)}",
            one.total.rounded(2),
            one.paid_upfront.rounded(2),
            undo(one),
        ]
        for number, one in quoted.quotes
    ]
    shown: list[RenderableType] = []
    if rows:
        shown += fitted(console, columns, rows)
        shown.append(Text("to see the verdict of the policies: gpubroker capacity buy # --dry-run", style="dim"))
    else:
        shown.append("No matching capacity is on sale.")
    if quoted.asked:
        shown.append(Text(f"queried: {', '.join(quoted.asked)}", style="dim"))
    shown += [Text(f"{name} could not be queried: {problem}", style="yellow") for name, problem in quoted.problems]
    return shown


def preview(seen: PurchasePreview) -> list[RenderableType]:
    """The capacity, the money to be held, and the verdicts of the rules."""
    answer = {Answer.ALLOW: "allowed", Answer.ASK: "needs approval", Answer.DENY: "denied"}[seen.judgement.answer]
    lines: list[RenderableType] = [
        _what(seen.quote),
        f"would hold {seen.ceiling.rounded(2)} now, until it is paid or has failed; {undo(seen.quote)}",
        f"{answer}; {formats.plural(seen.approvals, 'approval')} needed; hash of the request: {seen.binding}",
    ]
    lines += [
        Text(f"  {verdict.answer.value}: {verdict.message} ({verdict.source})")
        for verdict in seen.judgement.verdicts
        if verdict.answer is not Answer.ALLOW
    ]
    return lines


def purchases(console: Console, found: Sequence[Purchase], *, every: bool) -> list[RenderableType]:
    """Purchases as a table, oldest first. ``every``: whether ended purchases were requested too."""
    if not found:
        return [
            "No purchases." if every else "No open purchases; --all shows those that ended.",
            Text("gpubroker capacity quote --help", style="dim"),
        ]
    columns: tuple[ValueColumn[Purchase], ...] = (
        ValueColumn("purchase", lambda one: one.id),
        ValueColumn("state", lambda one: state(one)),
        ValueColumn("machines", lambda one: f"{one.quote.machines} × {one.quote.instance_type}"),
        ValueColumn("place", lambda one: one.quote.zone or one.quote.region, 3),
        ValueColumn("starts", lambda one: formats.moment(one.quote.starts)),
        ValueColumn("ends", lambda one: formats.moment(one.quote.ends), 2),
        ValueColumn("held", lambda one: one.held.rounded(2), align="right"),
        ValueColumn("paid", lambda one: one.charged.rounded(2), align="right"),
        ValueColumn("buyer", lambda one: one.user, 1),
        ValueColumn("team", lambda one: one.team or "", 4),
    )
    return listed(console, columns, found)


def purchase(one: Purchase) -> list[RenderableType]:
    """One purchase: state, capacity, money, and the next step."""
    lines: list[RenderableType] = [
        Text(f"{one.id}: {state(one)}", style="bold"),
        _what(one.quote),
        f"held {one.held.rounded(2)}, paid {one.charged.rounded(2)}, at most {one.ceiling.rounded(2)}; "
        f"{undo(one.quote)}; hash {one.binding}",
    ]
    if one.approved_by:
        lines.append(f"approved by {', '.join(one.approved_by)}")
    if one.order:
        lines.append(f"order {one.order.id} at {one.quote.provider}: {one.order.word}")
    if one.undone_by:
        lines.append(f"{'undone' if one.state is PurchaseState.UNDONE else 'to be undone'} by {one.undone_by}")
    if one.proposed_by:
        least = one.proposed_least
        lines.append(
            f"{one.proposed_by} would sell it for {least.rounded(2)}; a second of its buyer and approvers agrees with:"
            f" gpubroker capacity sell {one.id} --least {least.dollars:f}"
        )
    if one.sale is not None:
        brought = f", brought {one.proceeds.rounded(2)}" if one.state is PurchaseState.SOLD else ""
        offer = f" ({one.sale_order.id})" if one.sale_order else ""
        lines.append(f"for sale on {one.sale.market} for {one.sale_least.rounded(2)} by {one.sold_by}{offer}{brought}")
    if one.evidence:
        lines.append(Text(one.evidence, style="yellow"))
    if (then := _next(one)) is not None:
        lines.append(Text(then, style="dim"))
    return lines


def history(one: Purchase, events: Sequence[tuple[datetime, PurchaseEvent]]) -> list[RenderableType]:
    """One purchase and its events."""
    steps = [Text(f"  {formats.moment(at)}  {event.kind.replace('_', ' ')}{_by(event)}") for at, event in events]
    return [*purchase(one), "", *steps]


def product(quote: CapacityQuote) -> str:
    """The kind of product, with its payment option."""
    return f"{_PRODUCTS[quote.product]} {quote.terms}".strip()


def undo(quote: CapacityQuote) -> str:
    """How a purchase of it can be undone."""
    if quote.undo is Undo.UNTIL and quote.undo_until is not None:
        return f"can be returned until {formats.moment(quote.undo_until)}"
    return _UNDO[quote.undo]


def terms(id: str, found: UndoTerms) -> list[RenderableType]:
    """The terms of undoing a purchase."""
    until = "" if found.until is None else f"; these terms end {formats.moment(found.until)}"
    back = f"gives back {found.refund.rounded(2)}, " if found.refund else ""
    accept = f" --at-most {found.charge}" if found.charge else ""
    return [
        f"{id}: {found.way.replace('_', ' ')}; the provider {back}charges {found.charge.rounded(2)} for it{until}",
        Text(f"to do it: gpubroker capacity cancel {id}{accept}", style="dim"),
    ]


def resale(id: str, found: ResaleTerms) -> list[RenderableType]:
    """The terms of selling a purchase."""
    bid = "nobody buys it now" if found.estimate is None else f"buyers pay about {found.estimate.rounded(2)} now"
    fee = f"; the market keeps {found.fee:.0%}" if found.fee else ""
    note = f"; {found.notes}" if found.notes else ""
    period = f"{formats.moment(found.starts)} to {formats.moment(found.ends)}"
    return [
        f"{id}: {formats.plural(found.machines, 'machine')} from {period} on {found.market}; {bid}{fee}{note}",
        Text(f"to offer it: gpubroker capacity sell {id} --least USD", style="dim"),
    ]


def state(one: Purchase) -> str:
    """The state of a purchase in words."""
    if one.reason is not None:
        return f"{_STATES[one.state]}: {_REASONS[one.reason]}"
    return _STATES[one.state]


def _what(quote: CapacityQuote) -> str:
    kind = f"{_PRODUCTS[quote.product]}{f' ({quote.terms})' if quote.terms else ''}"
    over_time = f", {quote.paid_upfront.rounded(2)} of it when bought" if quote.recurring else ""
    return (
        f"{kind}: {quote.machines} × {quote.instance_type} ({quote.accelerator} × {quote.machines * quote.count}) at "
        f"{quote.provider} in {quote.zone or quote.region}, {formats.moment(quote.starts)} to "
        f"{formats.moment(quote.ends)}, {quote.total.rounded(2)}{over_time}"
    )


def _next(one: Purchase) -> str | None:
    match one.state:
        case PurchaseState.ASKING:
            names = sorted({name for question in one.questions for name in question.approvers} - set(one.approved_by))
            missing = max(one.approvals_missing, 1)
            return f"{formats.plural(missing, 'approval')} missing, of {' or '.join(names)}: capacity approve {one.id}"
        case PurchaseState.APPROVED:
            return f"ordered by gpubroker serve, or by: gpubroker capacity order {one.id}"
        case PurchaseState.UNKNOWN:
            return (
                f"the order is not sent again. Check the console of {one.quote.provider}; if nothing was bought: "
                f"gpubroker capacity withdraw {one.id} --nothing-bought"
            )
        case PurchaseState.SELLING:
            return f"to withdraw the offer: gpubroker capacity sell {one.id} --stop"
        case PurchaseState.UNDOING:
            return f"confirmed by gpubroker serve, or by: gpubroker capacity order {one.id}"
        case _:
            return None


def _by(event: PurchaseEvent) -> str:
    who = getattr(event, "by", "")
    return f" by {who}" if who else ""
