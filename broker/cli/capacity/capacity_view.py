"""Capacity, quotes, proposals and purchases as tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results.capacity import CapacityList, PurchaseChecklistResult, RecordedCapacity
from broker.app.results.proposal import ProposalLineResult, ProposalResult
from broker.app.results.purchases import (
    PurchaseHistory,
    PurchaseList,
    PurchasePreviewResult,
    PurchaseResult,
    QuoteList,
    QuoteResult,
    UndoTermsResult,
)
from broker.cli.render import formats
from broker.cli.render.tables import Column, ValueColumn, fitted, listed
from broker.core.policy.policy import Answer
from broker.core.purchases.purchase_events import NotBought
from broker.core.purchases.purchases import PurchaseState
from broker.core.purchases.quotes import PurchaseProduct, Undo
from broker.procurement.reviewing import PurchaseReview

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.capacity.check import CapacityCheck


_COLUMNS = (
    Column("#", align="right"),
    Column("type"),
    Column("GPUs"),
    Column("provider", 1),
    Column("site", 2),
    Column("starts", 5),
    Column("ends", 1),
    Column("$/GPU-h", 1, "right"),
    Column("in use", 3, "right"),
    Column("source", 4),
    Column("note", 6, folds=True),
)


def table(console: Console, found: CapacityList) -> Iterator[RenderableType]:
    """Recorded capacity, capacity reported by providers, and owned machines; then the providers that failed."""
    if rows := list(_rows(found)):
        yield from fitted(console, _COLUMNS, rows)
    else:
        yield "No capacity: none recorded, none reported by providers, no owned machines with GPUs."
        yield Text("gpubroker capacity add --help", style="dim")
    if found.asked:
        yield Text(f"queried: {', '.join(found.asked)}", style="dim")
    yield from (unanswered(one.provider, one.message) for one in found.problems)


def _rows(found: CapacityList) -> Iterator[list[str | Text]]:
    for held in found.recorded:
        over = held.ends <= found.as_of
        yield [
            str(held.number),
            held.kind.value,
            f"{held.accelerator} × {held.gpus}",
            held.provider,
            held.site,
            _day(held.starts),
            Text(f"{_day(held.ends)} (ended)", style="yellow") if over else _day(held.ends),
            f"{float(held.usd_per_gpu_hour):,.3f}",
            "",
            f"recorded by {held.added_by}",
            " ".join(filter(None, (held.order_id, held.note, "(proof kept)" if held.proof else ""))),
        ]
    for one in found.reported:
        yield [
            "",
            one.kind.replace("_", " "),
            f"{one.machines} × {one.instance_type}",
            one.provider,
            one.zone or one.region,
            _day(one.starts),
            _day(one.ends),
            "",
            "" if one.free is None else f"{one.machines - one.free} of {one.machines}",
            "provider",
            "" if one.holds_capacity else "discount only",
        ]
    for own in found.machines:
        price, place = formats.rate(own.usd_per_gpu_hour).lstrip("$"), own.zone or own.region
        gpus = f"{own.accelerator} × {own.gpus}"
        yield ["", "owned", gpus, own.provider, place, "", "", price, "", own.source, "owned machine"]


def sentence(held: RecordedCapacity) -> Text:
    """One record in one line."""
    place = f" at {held.site}" if held.site else ""
    return Text(
        f"#{held.number}: {held.kind.value}, {held.accelerator} × {held.gpus} from {held.provider}{place},"
        f" {_day(held.starts)} to {_day(held.ends)}, ${float(held.usd_per_gpu_hour):,.3f} per GPU-hour whether used"
        " or not"
    )


def checklist(found: PurchaseChecklistResult) -> Iterator[RenderableType]:
    """The steps in order, each with its command."""
    if found.sells:
        kinds = ", ".join(kind.replace("_", "-") for kind in found.sells)
        yield f"gpubroker buys at {found.provider} itself ({kinds}): gpubroker capacity quote --help"
        yield ""
    for number, step in enumerate(found.steps, 1):
        yield f"[ ] {number}. {step.what}"
        if step.command:
            yield Text(f"       {step.command}", style="dim")


def check(found: CapacityCheck) -> Iterator[Text]:
    """Each difference, the providers that failed, and a line of numbers."""
    for one in found.differences:
        named = f"{one.provider}/{one.region}  {one.order}  {one.kind.replace('_', ' ')}"
        yield Text(named, style="yellow").append(f"\n  {one.told}", style="")
    yield from (unanswered(*problem) for problem in found.problems.items())
    if found.asked:
        differ = formats.plural(len(found.differences), "difference")
        holds = formats.plural(found.listed, "reservation or commitment", "reservations and commitments")
        yield Text(f"{differ}; {', '.join(found.asked)} list{'s' if len(found.asked) == 1 else ''} {holds}")
    else:
        told = "No provider answered: this machine has no login to a provider that lists an account's capacity."
        yield Text(f"{told} `gpubroker doctor` explains how to log in.", style="yellow")


def unanswered(provider: str, problem: str) -> Text:
    """A provider that failed."""
    return Text(f"{provider} could not be queried: {problem}", style="yellow")


def _day(at: datetime | None) -> str:
    return formats.NOTHING if at is None else f"{at.astimezone(UTC):%Y-%m-%d}"


_UNDO = {
    Undo.NONE: "cannot be undone",
    Undo.QUOTE: "can be cancelled at a price that the provider quotes",
    Undo.ANY_TIME: "can be cancelled at any time",
}
_PRODUCTS = {
    PurchaseProduct.CAPACITY_BLOCK: "capacity block",
    PurchaseProduct.CAPACITY_RESERVATION: "reservation",
    PurchaseProduct.FUTURE_RESERVATION: "future reservation",
    PurchaseProduct.RESERVED_INSTANCES: "reserved instances",
    PurchaseProduct.SAVINGS_PLAN: "savings plan",
    PurchaseProduct.COMMITMENT: "commitment",
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
_ANSWERS = {Answer.ALLOW: "allowed", Answer.ASK: "needs approval", Answer.DENY: "denied"}


def quotes(console: Console, found: QuoteList) -> Iterator[RenderableType]:
    """The quotes as a table, cheapest first, then the providers that failed."""
    columns: tuple[ValueColumn[QuoteResult], ...] = (
        ValueColumn("#", lambda one: str(one.number), align="right"),
        ValueColumn("kind", _product, 5),
        ValueColumn("machines", _machines),
        ValueColumn("GPUs", _gpus, 2),
        ValueColumn("provider", lambda one: one.provider, 4),
        ValueColumn("place", _place),
        ValueColumn("starts", lambda one: "at once" if one.at_once else formats.moment(one.starts)),
        ValueColumn("length", _length),
        ValueColumn("$/machine-h", lambda one: one.machine_hour_usd.rounded(2), 3, "right"),
        ValueColumn("total", lambda one: one.total_usd.rounded(2), align="right"),
        ValueColumn("upfront", lambda one: one.upfront_usd.rounded(2), 6, "right"),
        ValueColumn("undo", _undo, 1),
    )
    if found.quotes:
        yield from listed(console, columns, found.quotes)
        yield Text("to see the verdict of the policies: gpubroker capacity buy # --dry-run", style="dim")
    else:
        yield "No matching capacity is on sale."
    if found.asked:
        yield Text(f"queried: {', '.join(found.asked)}", style="dim")
    yield from (unanswered(*problem) for problem in found.problems.items())


def proposal(console: Console, found: ProposalResult) -> Iterator[RenderableType]:
    """The lines of a proposal, then what they are compared with."""
    columns: tuple[ValueColumn[ProposalLineResult], ...] = (
        ValueColumn("line", lambda one: str(one.line), align="right"),
        ValueColumn("kind", lambda one: _product(one.quote)),
        ValueColumn("machines", lambda one: _machines(one.quote), 3),
        ValueColumn("place", lambda one: _place(one.quote), 4),
        ValueColumn("length", lambda one: _length(one.quote)),
        ValueColumn("total", lambda one: one.quote.total_usd.rounded(2), align="right"),
        ValueColumn("$/GPU-h", lambda one: f"{one.usd_per_gpu_hour:,.2f}", align="right"),
        ValueColumn("break-even", lambda one: f"{one.break_even:.0%}", align="right"),
        ValueColumn("used", lambda one: f"{one.use:.0%}", align="right"),
        ValueColumn("saves", lambda one: one.saves_usd.rounded(2), align="right"),
        ValueColumn("can lose", lambda one: one.regret_usd.rounded(2), 2, "right"),
        ValueColumn("undo", lambda one: _undo(one.quote), 1),
    )
    if found.lines:
        yield from listed(console, columns, found.lines)
    else:
        yield "Nothing is proposed for that time:" if found.problems else "Nothing is on sale for that time."
    spot = "spot has no price" if found.spot_usd is None else f"spot ${found.spot_usd:,.2f}"
    yield (
        f"against on demand at ${found.on_demand_usd:,.2f} per GPU-hour ({spot}); {found.held_gpus} GPUs are held"
        f" already; demand from {found.demand_from}"
    )
    yield "break-even: share of hours in use above which it is cheaper than on demand; used: by past demand"
    yield from (Text(f"{name}: {problem}", style="yellow") for name, problem in found.problems.items())
    if found.best is not None:
        then = "to buy: add --json > FILE, then gpubroker capacity buy --from-plan FILE"
        yield Text(f"line {found.best} saves most; {then}", style="dim")
    elif found.lines:
        yield "No line saves money at past use: stay on spot and on demand."


def preview(seen: PurchasePreviewResult) -> Iterator[RenderableType]:
    """The capacity, the money to be held, and the verdicts of the rules."""
    needed = formats.plural(seen.approvals, "approval")
    yield _what(seen.quote)
    yield f"would hold {seen.held_usd.rounded(2)} now, until it is paid or has failed; {_undo(seen.quote)}"
    yield f"{_ANSWERS[seen.answer]}; {needed} needed; hash of the request: {seen.binding}"
    for verdict in seen.verdicts:
        if verdict.answer is not Answer.ALLOW:
            yield Text(f"  {verdict.answer.value}: {verdict.message} ({verdict.source})")


def purchases(console: Console, found: PurchaseList, *, every: bool) -> list[RenderableType]:
    """Purchases as a table, oldest first. ``every``: whether ended purchases were requested too."""
    if not found.purchases:
        return [
            "No purchases." if every else "No open purchases; --all shows those that ended.",
            Text("gpubroker capacity quote --help", style="dim"),
        ]
    columns: tuple[ValueColumn[PurchaseResult], ...] = (
        ValueColumn("purchase", lambda one: one.id),
        ValueColumn("state", _state, folds=True),
        ValueColumn("machines", lambda one: _machines(one.quote)),
        ValueColumn("place", lambda one: _place(one.quote), 5),
        ValueColumn("starts", lambda one: formats.moment(one.quote.starts), 3),
        ValueColumn("ends", lambda one: formats.moment(one.quote.ends), 4),
        ValueColumn("held", lambda one: one.held_usd.rounded(2), align="right"),
        ValueColumn("paid", lambda one: one.charged_usd.rounded(2), 1, align="right"),
        ValueColumn("buyer", lambda one: one.user, 2),
        ValueColumn("team", lambda one: one.team or "", 6),
    )
    return listed(console, columns, found.purchases)


def purchase(one: PurchaseResult, *, here: bool) -> Iterator[RenderableType]:
    """One purchase: state, capacity, money, and the next step. ``here``: it is in a store of this machine."""
    yield Text(f"{one.id}: {_state(one)}", style="bold")
    yield _what(one.quote)
    yield (
        f"held {one.held_usd.rounded(2)}, paid {one.charged_usd.rounded(2)}, at most {one.ceiling_usd.rounded(2)}; "
        f"{_undo(one.quote)}; hash {one.binding}"
    )
    if one.approved_by:
        yield f"approved by {', '.join(one.approved_by)}"
    if one.order:
        yield f"order {one.order.id} at {one.quote.provider}: {one.order.state}"
    if one.undone_by:
        yield f"{'undone' if one.state is PurchaseState.UNDONE else 'to be undone'} by {one.undone_by}"
    if one.evidence:
        yield Text(one.evidence, style="yellow")
    if then := _next(one, here=here):
        yield Text(then, style="dim")


def history(found: PurchaseHistory, *, here: bool) -> Iterator[RenderableType]:
    """One purchase and its events."""
    yield from purchase(found.purchase, here=here)
    yield ""
    for step in found.events:
        by = f" by {step.fields['by']}" if step.fields.get("by") else ""
        yield Text(f"  {formats.moment(step.at)}  {step.kind.replace('_', ' ')}{by}")


def review(found: PurchaseReview) -> Iterator[RenderableType]:
    """The use of a purchase by team, and the cost of the same use elsewhere."""
    used, bought, owner = found.used_gpu_hours, found.bought_gpu_hours, found.owner
    share = used / bought if bought else 0.0
    yield Text(f"{found.purchase}, reviewed up to {formats.moment(found.until)}", style="bold")
    yield f"used {used:,.1f} of {bought:,.1f} GPU-hours ({share:.0%}); they cost {found.cost_usd.rounded(2)}"
    yield f"idle for {found.idle_usd.rounded(2)}, which {owner} bears"
    yield from (f"  {team or '(no team)'}: {hours:,.1f} GPU-hours" for team, hours in found.by_team.items())
    for name, cost, saved in (
        ("on demand", found.on_demand_usd, found.saved_usd),
        ("spot", found.spot_usd, found.saved_spot_usd),
    ):
        if cost is None or saved is None:
            yield f"{name}: no price is known; give it with --{name.replace(' ', '-')}-price"
            continue
        told = f"saved {saved.rounded(2)}" if saved.micros >= 0 else f"cost {(-saved).rounded(2)} more"
        yield f"against {name}, where the same use would have cost {cost.rounded(2)}: {told}"


def terms(found: UndoTermsResult) -> Iterator[RenderableType]:
    """The terms of undoing a purchase, then the command that does it."""
    until = "" if found.until is None else f"; these terms end {formats.moment(found.until)}"
    back, charge = f"gives back {found.refund_usd.rounded(2)}, " if found.refund_usd else "", found.charge_usd
    way = found.way.replace("_", " ")
    yield f"{found.purchase}: {way}; the provider {back}charges {charge.rounded(2)} for it{until}"
    accept = f" --at-most {charge}" if charge else ""
    yield Text(f"to do it: gpubroker capacity undo {found.purchase}{accept}", style="dim")


def _product(quote: QuoteResult) -> str:
    return f"{_PRODUCTS[quote.product]} {quote.terms}".strip()


def _machines(quote: QuoteResult) -> str:
    return f"{quote.machines} × {quote.instance_type}"


def _gpus(quote: QuoteResult) -> str:
    return f"{quote.accelerator} × {quote.machines * quote.count}"


def _place(quote: QuoteResult) -> str:
    return quote.zone or quote.region


def _length(quote: QuoteResult) -> str:
    return formats.length(quote.ends - quote.starts)


def _undo(quote: QuoteResult) -> str:
    if quote.undo is Undo.UNTIL and quote.undo_until is not None:
        return f"can be returned until {formats.moment(quote.undo_until)}"
    return _UNDO[quote.undo]


def _state(one: PurchaseResult) -> str:
    return _STATES[one.state] + (f": {_REASONS[one.reason]}" if one.reason is not None else "")


def _what(quote: QuoteResult) -> str:
    kind = f"{_PRODUCTS[quote.product]}{f' ({quote.terms})' if quote.terms else ''}"
    over_time = f", {quote.upfront_usd.rounded(2)} of it when bought" if quote.recurring_usd else ""
    return (
        f"{kind}: {_machines(quote)} ({_gpus(quote)}) at {quote.provider} in {_place(quote)}, "
        f"{formats.moment(quote.starts)} to {formats.moment(quote.ends)}, {quote.total_usd.rounded(2)}{over_time}"
    )


def _next(one: PurchaseResult, *, here: bool) -> str:
    by = f"by gpubroker serve{f', or by: gpubroker capacity order {one.id}' if here else ''}"
    match one.state:
        case PurchaseState.ASKING:
            missing = formats.plural(max(one.approvals_missing, 1), "approval")
            return f"{missing} missing, of {' or '.join(one.approvers)}: capacity grant {one.id}"
        case PurchaseState.APPROVED:
            return f"ordered {by}"
        case PurchaseState.UNKNOWN:
            return (
                f"the order is not sent again. Check the console of {one.quote.provider}; if nothing was bought: "
                f"gpubroker capacity undo {one.id} --nothing-bought"
            )
        case PurchaseState.UNDOING:
            return f"confirmed {by}"
        case _:
            return ""
