"""Capacity, quotes, proposals and purchases as tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from broker.cli.render import formats
from broker.cli.render.tables import Column, ValueColumn, cell_table_parts, table_parts
from broker.core.policy.policy import Answer
from broker.core.purchases.purchase_events import NotBought
from broker.core.purchases.purchases import PurchaseState
from broker.core.purchases.quotes import PurchaseProduct, Undo

if TYPE_CHECKING:
    from broker.app.capacity.capacity import CapacityCheck
    from broker.app.capacity.documents import CapacityList, PurchaseChecklistResult, RecordedCapacity
    from broker.app.capacity.proposal import ProposalLineResult, ProposalResult
    from broker.app.capacity.purchase_documents import (
        PurchaseHistory,
        PurchaseList,
        PurchasePreviewResult,
        PurchaseResult,
        QuoteList,
        QuoteResult,
        UndoTermsResult,
    )
    from broker.procurement.review import PurchaseReview


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


def capacity_lines(console: Console, inventory: CapacityList) -> Iterator[RenderableType]:
    """Recorded capacity, capacity reported by providers, and owned machines; then the providers that failed."""
    if rows := list(_table_rows(inventory)):
        yield from cell_table_parts(console, _COLUMNS, rows)
    else:
        yield "No capacity: none recorded, none reported by providers, no owned machines with GPUs."
        yield Text("gpubroker capacity add --help", style="dim")
    if inventory.asked:
        yield Text(f"queried: {', '.join(inventory.asked)}", style="dim")
    yield from (failed_provider_text(problem.provider, problem.message) for problem in inventory.problems)


def _table_rows(inventory: CapacityList) -> Iterator[list[str | Text]]:
    for holding in inventory.recorded:
        has_ended = holding.ends <= inventory.as_of
        yield [
            str(holding.number),
            holding.kind.value,
            f"{holding.accelerator} × {holding.gpus}",
            holding.provider,
            holding.site,
            _day_text(holding.starts),
            Text(f"{_day_text(holding.ends)} (ended)", style="yellow") if has_ended else _day_text(holding.ends),
            f"{float(holding.usd_per_gpu_hour):,.3f}",
            "",
            f"recorded by {holding.added_by}",
            " ".join(filter(None, (holding.order_id, holding.note, "(proof kept)" if holding.proof else ""))),
        ]
    for reservation in inventory.reported:
        yield [
            "",
            reservation.kind.replace("_", " "),
            f"{reservation.machines} × {reservation.instance_type}",
            reservation.provider,
            reservation.zone or reservation.region,
            _day_text(reservation.starts),
            _day_text(reservation.ends),
            "",
            "" if reservation.free is None else f"{reservation.machines - reservation.free} of {reservation.machines}",
            "provider",
            "" if reservation.holds_capacity else "discount only",
        ]
    for owned_machines in inventory.machines:
        price, location = (
            formats.rate(owned_machines.usd_per_gpu_hour).lstrip("$"),
            owned_machines.zone or owned_machines.region,
        )
        gpus = f"{owned_machines.accelerator} × {owned_machines.gpus}"
        yield [
            "",
            "owned",
            gpus,
            owned_machines.provider,
            location,
            "",
            "",
            price,
            "",
            owned_machines.source,
            "owned machine",
        ]


def record_text(holding: RecordedCapacity) -> Text:
    """One record in one line."""
    location = f" at {holding.site}" if holding.site else ""
    return Text(
        f"#{holding.number}: {holding.kind.value}, {holding.accelerator} × {holding.gpus} from "
        f"{holding.provider}{location},"
        f" {_day_text(holding.starts)} to {_day_text(holding.ends)}, ${float(holding.usd_per_gpu_hour):,.3f} per "
        "GPU-hour whether used"
        " or not"
    )


def checklist_lines(purchase_checklist: PurchaseChecklistResult) -> Iterator[RenderableType]:
    """The steps in order, each with its command."""
    if purchase_checklist.sells:
        kinds = ", ".join(kind.replace("_", "-") for kind in purchase_checklist.sells)
        yield f"gpubroker buys at {purchase_checklist.provider} itself ({kinds}): gpubroker capacity quote --help"
        yield ""
    for number, step in enumerate(purchase_checklist.steps, 1):
        yield f"[ ] {number}. {step.what}"
        if step.command:
            yield Text(f"       {step.command}", style="dim")


def check_lines(report: CapacityCheck) -> Iterator[Text]:
    """Each difference, the providers that failed, and a line of numbers."""
    for difference in report.differences:
        heading = f"{difference.provider}/{difference.region}  {difference.order}  {difference.kind.replace('_', ' ')}"
        yield Text(heading, style="yellow").append(f"\n  {difference.told}", style="")
    yield from (failed_provider_text(*problem) for problem in report.problems.items())
    if report.asked:
        count_text = formats.plural(len(report.differences), "difference")
        listed_text = formats.plural(report.listed, "reservation or commitment", "reservations and commitments")
        yield Text(f"{count_text}; {', '.join(report.asked)} list{'s' if len(report.asked) == 1 else ''} {listed_text}")
    else:
        no_answer_text = (
            "No provider answered: this machine has no login to a provider that lists an account's capacity."
        )
        yield Text(f"{no_answer_text} `gpubroker doctor` explains how to log in.", style="yellow")


def failed_provider_text(provider: str, problem: str) -> Text:
    """A provider that failed."""
    return Text(f"{provider} could not be queried: {problem}", style="yellow")


def _day_text(at: datetime | None) -> str:
    return formats.NO_VALUE if at is None else f"{at.astimezone(UTC):%Y-%m-%d}"


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


def quote_lines(console: Console, quote_list: QuoteList) -> Iterator[RenderableType]:
    """The quotes as a table, cheapest first, then the providers that failed."""
    columns: tuple[ValueColumn[QuoteResult], ...] = (
        ValueColumn("#", lambda row: str(row.number), align="right"),
        ValueColumn("kind", _product, 5),
        ValueColumn("machines", _machines),
        ValueColumn("GPUs", _gpus, 2),
        ValueColumn("provider", lambda row: row.provider, 4),
        ValueColumn("place", _place),
        ValueColumn("starts", lambda row: "at once" if row.at_once else formats.moment(row.starts)),
        ValueColumn("length", _length),
        ValueColumn("$/machine-h", lambda row: row.machine_hour_usd.rounded(2), 3, "right"),
        ValueColumn("total", lambda row: row.total_usd.rounded(2), align="right"),
        ValueColumn("upfront", lambda row: row.upfront_usd.rounded(2), 6, "right"),
        ValueColumn("undo", _undo_text, 1),
    )
    if quote_list.quotes:
        yield from table_parts(console, columns, quote_list.quotes)
        yield Text("to see what the policies decide: gpubroker capacity buy # --dry-run", style="dim")
    else:
        yield "No matching capacity is on sale."
    if quote_list.asked:
        yield Text(f"queried: {', '.join(quote_list.asked)}", style="dim")
    yield from (failed_provider_text(*problem) for problem in quote_list.problems.items())


def proposal_lines(console: Console, result: ProposalResult) -> Iterator[RenderableType]:
    """The lines of a proposal, then what they are compared with."""
    columns: tuple[ValueColumn[ProposalLineResult], ...] = (
        ValueColumn("line", lambda proposed_line: str(proposed_line.line), align="right"),
        ValueColumn("kind", lambda proposed_line: _product(proposed_line.quote)),
        ValueColumn("machines", lambda proposed_line: _machines(proposed_line.quote), 3),
        ValueColumn("place", lambda proposed_line: _place(proposed_line.quote), 4),
        ValueColumn("length", lambda proposed_line: _length(proposed_line.quote)),
        ValueColumn("total", lambda proposed_line: proposed_line.quote.total_usd.rounded(2), align="right"),
        ValueColumn("$/GPU-h", lambda proposed_line: f"{proposed_line.usd_per_gpu_hour:,.2f}", align="right"),
        ValueColumn("break-even", lambda proposed_line: f"{proposed_line.break_even:.0%}", align="right"),
        ValueColumn("used", lambda proposed_line: f"{proposed_line.use:.0%}", align="right"),
        ValueColumn("saves", lambda proposed_line: proposed_line.saves_usd.rounded(2), align="right"),
        ValueColumn("can lose", lambda proposed_line: proposed_line.regret_usd.rounded(2), 2, "right"),
        ValueColumn("undo", lambda proposed_line: _undo_text(proposed_line.quote), 1),
    )
    if result.lines:
        yield from table_parts(console, columns, result.lines)
    else:
        yield "Nothing is proposed for that time:" if result.problems else "Nothing is on sale for that time."
    spot = "spot has no price" if result.spot_usd is None else f"spot ${result.spot_usd:,.2f}"
    yield (
        f"against on demand at ${result.on_demand_usd:,.2f} per GPU-hour ({spot}); {result.held_gpus} GPUs are held"
        f" already; demand from {result.demand_from}"
    )
    yield from (Text(note, style="dim") for note in result.notes)
    yield "break-even: share of hours in use above which it is cheaper than on demand; used: by past demand"
    yield from (Text(f"{name}: {problem}", style="yellow") for name, problem in result.problems.items())
    if result.best is not None:
        command_text = "to buy: add --json > FILE, then gpubroker capacity buy --from-plan FILE"
        yield Text(f"line {result.best} saves most; {command_text}", style="dim")
    elif result.lines:
        yield "No line saves money at past use: stay on spot and on demand."


def preview_lines(purchase_preview: PurchasePreviewResult) -> Iterator[RenderableType]:
    """The capacity, the money to be held, and the verdicts of the rules."""
    approvals_text = formats.plural(purchase_preview.approvals, "approval")
    yield _quote_text(purchase_preview.quote)
    yield (
        f"would hold {purchase_preview.held_usd.rounded(2)} now, until it is paid or has failed; "
        f"{_undo_text(purchase_preview.quote)}"
    )
    yield (
        f"{_ANSWERS[purchase_preview.answer]}; {approvals_text} needed; hash of the request: {purchase_preview.binding}"
    )
    yield from purchase_preview.basis
    for verdict in purchase_preview.verdicts:
        if verdict.answer is not Answer.ALLOW:
            yield Text(f"  {verdict.answer.value}: {verdict.message} ({verdict.source})")


def purchase_list_lines(console: Console, purchase_list: PurchaseList, *, shows_all: bool) -> list[RenderableType]:
    """Purchases as a table, oldest first. ``shows_all``: whether ended purchases were requested too."""
    if not purchase_list.purchases:
        return [
            "No purchases." if shows_all else "No open purchases; --all shows those that ended.",
            Text("gpubroker capacity quote --help", style="dim"),
        ]
    columns: tuple[ValueColumn[PurchaseResult], ...] = (
        ValueColumn("purchase", lambda row: row.id),
        ValueColumn("state", _state_text, folds=True),
        ValueColumn("machines", lambda row: _machines(row.quote)),
        ValueColumn("place", lambda row: _place(row.quote), 5),
        ValueColumn("starts", lambda row: formats.moment(row.quote.starts), 3),
        ValueColumn("ends", lambda row: formats.moment(row.quote.ends), 4),
        ValueColumn("held", lambda row: row.held_usd.rounded(2), align="right"),
        ValueColumn("paid", lambda row: row.charged_usd.rounded(2), 1, align="right"),
        ValueColumn("buyer", lambda row: row.user, 2),
        ValueColumn("team", lambda row: row.team or "", 6),
    )
    return table_parts(console, columns, purchase_list.purchases)


def purchase_lines(row: PurchaseResult, *, is_local: bool) -> Iterator[RenderableType]:
    """One purchase: state, capacity, money, and the next step. ``is_local``: it is in a store of this machine."""
    yield Text(f"{row.id}: {_state_text(row)}", style="bold")
    yield _quote_text(row.quote)
    yield (
        f"held {row.held_usd.rounded(2)}, paid {row.charged_usd.rounded(2)}, at most {row.ceiling_usd.rounded(2)}; "
        f"{_undo_text(row.quote)}; hash {row.binding}"
    )
    yield from row.basis
    if row.approved_by:
        yield f"approved by {', '.join(row.approved_by)}"
    if row.order:
        yield f"order {row.order.id} at {row.quote.provider}: {row.order.state}"
    if row.undone_by:
        yield f"{'undone' if row.state is PurchaseState.UNDONE else 'to be undone'} by {row.undone_by}"
    if row.evidence:
        yield Text(row.evidence, style="yellow")
    if next_step := _next_step_text(row, is_local=is_local):
        yield Text(next_step, style="dim")


def history_lines(purchase_history: PurchaseHistory, *, is_local: bool) -> Iterator[RenderableType]:
    """One purchase and its events."""
    yield from purchase_lines(purchase_history.purchase, is_local=is_local)
    yield ""
    for step in purchase_history.events:
        by = f" by {step.fields['by']}" if step.fields.get("by") else ""
        yield Text(f"  {formats.moment(step.at)}  {step.kind.replace('_', ' ')}{by}")


def review_lines(report: PurchaseReview) -> Iterator[RenderableType]:
    """The use of a purchase by team, and the cost of the same use elsewhere."""
    used_hours, bought_hours, owner = report.used_gpu_hours, report.bought_gpu_hours, report.owner
    share = used_hours / bought_hours if bought_hours else 0.0
    yield Text(f"{report.purchase}, reviewed up to {formats.moment(report.until)}", style="bold")
    yield (
        f"used {used_hours:,.1f} of {bought_hours:,.1f} GPU-hours ({share:.0%}); they cost {report.cost_usd.rounded(2)}"
    )
    yield f"idle for {report.idle_usd.rounded(2)}, which {owner} bears"
    yield from (f"  {team or '(no team)'}: {hours:,.1f} GPU-hours" for team, hours in report.by_team.items())
    for name, cost, savings in (
        ("on demand", report.on_demand_usd, report.saved_usd),
        ("spot", report.spot_usd, report.saved_spot_usd),
    ):
        if cost is None or savings is None:
            yield f"{name}: no price is known; give it with --{name.replace(' ', '-')}-price"
            continue
        comparison = f"saved {savings.rounded(2)}" if savings.micros >= 0 else f"cost {(-savings).rounded(2)} more"
        yield f"against {name}, where the same use would have cost {cost.rounded(2)}: {comparison}"


def undo_terms_lines(undo_result: UndoTermsResult) -> Iterator[RenderableType]:
    """The terms of undoing a purchase, then the command that does it."""
    deadline_text = "" if undo_result.until is None else f"; these terms end {formats.moment(undo_result.until)}"
    refund_text, charge = (
        f"gives back {undo_result.refund_usd.rounded(2)}, " if undo_result.refund_usd else "",
        undo_result.charge_usd,
    )
    method = undo_result.way.replace("_", " ")
    yield (
        f"{undo_result.purchase}: {method}; the provider {refund_text}charges {charge.rounded(2)} for it{deadline_text}"
    )
    accept = f" --at-most {charge}" if charge else ""
    yield Text(f"to do it: gpubroker capacity undo {undo_result.purchase}{accept}", style="dim")


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


def _undo_text(quote: QuoteResult) -> str:
    if quote.undo is Undo.UNTIL and quote.undo_until is not None:
        return f"can be returned until {formats.moment(quote.undo_until)}"
    return _UNDO[quote.undo]


def _state_text(row: PurchaseResult) -> str:
    return _STATES[row.state] + (f": {_REASONS[row.reason]}" if row.reason is not None else "")


def _quote_text(quote: QuoteResult) -> str:
    kind = f"{_PRODUCTS[quote.product]}{f' ({quote.terms})' if quote.terms else ''}"
    over_time = f", {quote.upfront_usd.rounded(2)} of it when bought" if quote.recurring_usd else ""
    return (
        f"{kind}: {_machines(quote)} ({_gpus(quote)}) at {quote.provider} in {_place(quote)}, "
        f"{formats.moment(quote.starts)} to {formats.moment(quote.ends)}, {quote.total_usd.rounded(2)}{over_time}"
    )


def _next_step_text(row: PurchaseResult, *, is_local: bool) -> str:
    executor_text = f"by gpubroker serve{f', or by: gpubroker capacity purchases {row.id} --order' if is_local else ''}"
    match row.state:
        case PurchaseState.ASKING:
            missing = formats.plural(max(row.approvals_missing, 1), "approval")
            return f"{missing} missing, of {' or '.join(row.approvers)}: approvals grant {row.id}"
        case PurchaseState.APPROVED:
            return f"ordered {executor_text}"
        case PurchaseState.UNKNOWN:
            return (
                f"the order is not sent again. Check the console of {row.quote.provider}; if nothing was bought: "
                f"gpubroker capacity undo {row.id} --nothing-bought"
            )
        case PurchaseState.UNDOING:
            return f"confirmed {executor_text}"
        case _:
            return ""
