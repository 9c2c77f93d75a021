"""Reports of spending as text, and as a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.text import Text

from broker.app.billing.charge_documents import BilledReport, ChargesResult, ComparedGroup
from broker.app.billing.report_documents import served_text, spot_text, use_figures
from broker.cli.render import formats
from broker.cli.render.documents import Block, Grid, Heading, Paragraph, html
from broker.cli.render.tables import ValueColumn, table_parts
from broker.core.values.units import zone
from broker.ledger.finops.accuracy import MeasuredSpeed, PredictionError
from broker.ledger.finops.change import NOBODY

if TYPE_CHECKING:
    from broker.app.billing.report_documents import (
        ChargebackList,
        ChargebackStatement,
        FocusExportResult,
        ForecastsReport,
        IncidentList,
        ShowbackReport,
        SpendGroup,
        SpendReport,
        TeamCostResult,
    )
    from broker.core.values.money import Money
    from broker.ledger.finops.showback import Correction
    from broker.ledger.finops.units import UnitMetrics

_NO_ANOMALY = "no day of the last month had more spending than the recent pattern predicts"


def _money_column(title: str, rank: int = 0, field: str = "") -> ValueColumn[Any]:
    """An amount (USD): the field of that name, or of the title."""
    value: Callable[[Any], Money | None] = attrgetter(field or title)
    return ValueColumn(title, lambda row: formats.money(value(row)), rank, "right")


# --- spending -------------------------------------------------------------------------------------------------------


def _spend_columns(report: SpendReport) -> list[ValueColumn[SpendGroup]]:
    """The columns of the table in the terminal and on the page."""
    cash = [_money_column("cash"), _money_column("amortized", 2, "amortised")]
    return [
        *(ValueColumn(name, _dimension_value(index)) for index, name in enumerate(report.by.split(","))),
        *([_money_column("simulated", field="sandbox")] if report.sandbox_only else cash),
        _money_column("held", 1),
        _money_column("bought", 7),
        _money_column("rented", 8),
        ValueColumn("GPU-hours", lambda row: f"{row.gpu_hours:,.2f}", 3, "right"),
        ValueColumn("machine-hours", lambda row: f"{row.machine_hours:,.2f}", 6, "right"),
        ValueColumn("attempts", lambda row: f"{row.attempts:,}", 5, "right"),
        ValueColumn("jobs", lambda row: f"{row.jobs:,}", 4, "right"),
    ]


def spend_lines(console: Console, report: SpendReport) -> Iterator[RenderableType]:
    """One row per group, and the sums."""
    sandbox, total = report.sandbox_only, report.total
    if report.rows:
        spent_text = f"{formats.money(total.sandbox)} simulated" if sandbox else f"{formats.money(total.cash)} cash"
        split_text = (
            f"{formats.money(total.bought)} on owned and reserved machines, {formats.money(total.rented)} rented"
        )
        yield from table_parts(console, _spend_columns(report), report.rows, f"total {spent_text}; {split_text}")
    else:
        yield "nothing was spent in this period"
    if total.bought_in_advance:
        yield f"and {formats.money(total.bought_in_advance)} paid for bought capacity, whose use is amortized cost"
    yield _timezone_note(report.timezone)


def _timezone_note(name: str) -> Text:
    return Text(f"time zone of months: {name}", style="dim")


def _dimension_value(index: int) -> Callable[[SpendGroup], str]:
    return lambda row: row.values[index]


def spend_page(report: SpendReport) -> str:
    """The report as a page (HTML)."""
    columns, dimensions = _spend_columns(report), report.by.split(",")
    rows = [[str(column.value(row)) for column in columns] for row in report.rows]
    start_text = formats.moment(report.since) if report.since else "the beginning"
    end_text = formats.moment(report.until) if report.until else "the present"
    blocks: list[Block] = [
        Heading(f"Spending by {', '.join(dimensions)}", 1),
        Paragraph(
            f"From {start_text} to {end_text}. Amounts are USD; bought is the part on owned and reserved machines."
            f" Time zone of months: {report.timezone}."
        ),
        Grid([column.title for column in columns], rows, figures=len(dimensions)),
    ]
    return html(blocks)


def focus_lines(export_result: FocusExportResult) -> Iterator[RenderableType]:
    """What a FOCUS file contains."""
    corrections = (
        f", {formats.plural(export_result.corrections, 'correction')} of earlier months"
        if export_result.corrections
        else ""
    )
    yield (
        f"{export_result.file}: {formats.plural(export_result.rows, 'charge')} of {export_result.month} "
        f"({export_result.timezone}){corrections}; billed"
        f" {formats.money(export_result.billed_cost)}, effective {formats.money(export_result.effective_cost)}"
    )
    if not export_result.rows:
        yield "No job cost money: simulated jobs and machines at $0 an hour are no charges. It has only a header."
    if not export_result.closed:
        yield Text(f"{export_result.month} is open until {formats.moment(export_result.closes)}", style="dim")


# --- teams ----------------------------------------------------------------------------------------------------------


def showback_lines(console: Console, report: ShowbackReport) -> Iterator[RenderableType]:
    """One row per team, and what is charged to nobody."""
    yield from _team_costs(console, report.rows, report.total)
    yield from (f"{team} holds {formats.money(amount)} more for jobs" for team, amount in report.held.items())
    if report.bought_in_advance:
        yield f"bought in advance, charged to nobody: {formats.money(report.bought_in_advance)}"
    if not report.over:
        yield f"{report.month} is not over: this is what is known so far"
    yield _timezone_note(report.timezone)


def statement_lines(console: Console, chargeback: ChargebackStatement) -> Iterator[RenderableType]:
    """A frozen statement with its corrections."""
    yield from _team_costs(console, chargeback.rows, chargeback.total)
    yield from (_correction(correction, f"for {correction.month}") for correction in chargeback.corrections)
    yield (
        f"charged for {chargeback.month} ({chargeback.timezone}): {formats.money(chargeback.charged)}, frozen"
        f" {formats.moment(chargeback.frozen_at)} by {chargeback.frozen_by}"
    )
    for correction in chargeback.corrected_since:
        yield _correction(correction, f"charged with {correction.billed_in or 'the next statement'}")


def statement_list_lines(statement_list: ChargebackList) -> Iterator[RenderableType]:
    """One line per frozen month."""
    for frozen_month in statement_list.statements:
        frozen_text = f"frozen {formats.moment(frozen_month.frozen_at)} by {frozen_month.frozen_by}"
        yield f"{frozen_month.month} ({frozen_month.timezone}): {formats.money(frozen_month.charged)}, {frozen_text}"
    if not statement_list.statements:
        yield "no month is frozen yet: gpubroker report showback --month YYYY-MM --freeze"


def _correction(correction: Correction, about: str) -> str:
    return f"correction {about}: {correction.team} {formats.money(correction.amount)}"


def _team_costs(console: Console, rows: Sequence[TeamCostResult], total: TeamCostResult) -> list[RenderableType]:
    columns: tuple[ValueColumn[TeamCostResult], ...] = (
        ValueColumn("team", lambda row: row.team),
        *(
            _money_column("cash"),
            _money_column("amortized", field="amortised"),
            _money_column("depreciation", 3),
            _money_column("on own", 2, "on_own"),
            _money_column("rented", 1),
        ),
        *(_money_column("idle"), _money_column("shared"), _money_column("total")),
    )
    if not rows:
        return ["nothing was spent in this month"]
    return table_parts(console, columns, rows, f"total {formats.money(total.total)}")


def anomaly_lines(incident_list: IncidentList) -> Iterator[RenderableType]:
    """Each incident with its causes, and its answer."""
    for incident in incident_list.incidents:
        days = f"{incident.first}" if incident.first == incident.last else f"{incident.first} to {incident.last}"
        state = ", ongoing" if incident.running else ""
        yield (
            f"{incident.team}, {days}{state}: {formats.money(incident.spent)}, {formats.money(incident.excess)} more "
            "than usual"
        )
        yield (
            f"  {formats.money(incident.on_own)} of it on owned and reserved machines, "
            f"{formats.money(incident.rented)} rented"
        )
        yield from (f"  {cause.job} of {cause.user}: {formats.money(cause.excess)} more" for cause in incident.causes)
        if incident.answer is not None:
            reason = f": {incident.answer.reason}" if incident.answer.reason else ""
            yield f"  answered {incident.answer.answer.value} by {incident.answer.by}{reason}"
    if not incident_list.incidents:
        yield _NO_ANOMALY


# --- units and forecasts --------------------------------------------------------------------------------------------


def unit_lines(metrics: UnitMetrics) -> Iterator[str]:
    """One line per figure."""
    return (f"{name + ':':<28} {value_text}" for name, value_text in _unit_figures(metrics))


def _unit_figures(metrics: UnitMetrics) -> Iterator[tuple[str, str]]:
    def money(amount: Money | None) -> str:
        return "unknown" if amount is None else formats.money(amount)

    def share(value: float | None, unit_text: str) -> str:
        return "unknown" if value is None else f"{formats.percent(value)} {unit_text}"

    spot = metrics.spot_hours / metrics.gpu_hours if metrics.gpu_hours else None
    samples = f"of {metrics.measured_hours:,.1f} GPU-hours with samples"
    idle = f"{metrics.idle_hours:,.1f} {samples}, {money(metrics.idle_cost)}" if metrics.measured_hours else "unknown"
    yield "spent", money(metrics.spent)
    yield "bought (owned, reserved)", money(metrics.bought)
    yield "rented (on-demand, spot)", money(metrics.rented)
    yield "successful runs", f"{metrics.runs:,}"
    yield "cost of a successful run", money(metrics.per_run)
    yield "GPU-hours", f"{metrics.gpu_hours:,.1f}"
    yield "cost of a GPU-hour", money(metrics.per_gpu_hour)
    yield "cost of a busy GPU-hour", money(metrics.per_busy_hour)
    yield "busy GPU-hours", f"{metrics.busy_hours:,.1f} {samples}" if metrics.measured_hours else "unknown"
    yield "idle GPU-hours (below 5 %)", idle
    yield from use_figures(metrics.use, metrics.targets)
    yield "cost of a million tokens", money(metrics.per_million_tokens)
    yield "cost of 1,000 predictions", money(metrics.per_thousand_predictions)
    yield "lost work", money(metrics.wasted)
    yield "on spot", share(spot, f"of GPU-hours, {money(metrics.spot_spent)}")
    yield "on spot, of training", spot_text(metrics)
    yield "use of held capacity", share(metrics.capacity_use, "of the hours held")
    yield "on held capacity", share(metrics.coverage, "of GPU-hours")
    yield "tagged with a team", share(metrics.tagged, "of spending")
    for owner in metrics.quality:
        runs = " and ".join(
            f"{run.job_id} ({run.value:g}, {money(run.cost)})" for run in (owner.cheapest, owner.dearest)
        )
        yield f"a difference of 1, {owner.owner}", f"{money(owner.per_point)}, from {runs}"
    for month in metrics.trend:
        costs = {
            "a run": month.per_run,
            "a million tokens": month.per_million_tokens,
            "1,000 predictions": month.per_thousand_predictions,
        }
        texts = [f"{formats.money(cost)} {unit}" for unit, cost in costs.items() if cost is not None]
        texts += [f"{money(owner.per_point)} a difference of 1, {owner.owner}" for owner in month.quality]
        yield month.month, ", ".join([f"{formats.money(month.spent)} spent", *texts])
    for row in metrics.groups:
        measured = [(name, text) for name, text in use_figures(row.use, None) if text != "unknown"]
        shares = [f"{name.removeprefix('GPU ')} {text}" for name, text in measured] or ["no samples"]
        yield row.group, ", ".join([f"{row.gpu_hours:,.1f} GPU-hours", *shares])
    for model in metrics.served:
        yield model.model or "a model without a name", served_text(model)
        for tenant in model.tenants if any(tenant.tenant != NOBODY for tenant in model.tenants) else ():
            cost = formats.money(tenant.input_cost + tenant.output_cost)
            yield f"  {tenant.tenant}", f"{tenant.input:,} tokens in, {tenant.output:,} out, {cost}"
    yield "time zone of the period", metrics.timezone


def forecast_lines(console: Console, report: ForecastsReport) -> Iterator[RenderableType]:
    """Predictions against outcomes by kind, and measurements by accelerator."""

    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.0%}"

    def amount(prediction: PredictionError, value: float) -> str:
        units = {"cost": "${:,.2f}", "price of a GPU-hour": "${:,.2f}", "time": "{:,.1f} h"}
        return units.get(prediction.kind.value, "{:,.1f}").format(value)

    runs = formats.plural(report.runs, "successful run")
    unknown_note = (
        f"; {report.unpredicted} of unknown work: `work` or a model's `tokens` in the job file lets plans predict"
    )
    start, end = (at.astimezone(zone(report.timezone)) for at in (report.since, report.until))
    head = f"{runs} on GPUs from {start:%Y-%m-%d} to {end:%Y-%m-%d} ({report.timezone})"
    yield head + (unknown_note if report.unpredicted else "")
    error_columns: tuple[ValueColumn[PredictionError], ...] = (
        ValueColumn("prediction", lambda row: row.kind.value),
        ValueColumn("runs", lambda row: f"{row.runs:,}", align="right"),
        ValueColumn("predicted", lambda row: amount(row, row.predicted), align="right"),
        ValueColumn("happened", lambda row: amount(row, row.happened), align="right"),
        ValueColumn("median ratio", lambda row: "-" if row.ratio is None else f"{row.ratio:.2f}", align="right"),
        ValueColumn("mean error", lambda row: share(row.mean_error), 2, "right"),
        ValueColumn("worst", lambda row: share(row.worst), 3, "right"),
        ValueColumn("within 25%", lambda row: share(row.within), 1, "right"),
    )
    speed_columns: tuple[ValueColumn[MeasuredSpeed], ...] = (
        ValueColumn("measured on", lambda row: row.accelerator),
        ValueColumn("runs", lambda row: f"{row.runs:,}", align="right"),
        ValueColumn("GPU-hours", lambda row: f"{row.gpu_hours:,.0f}", align="right"),
        ValueColumn("paid/GPU-hour", lambda row: f"${row.usd_per_gpu_hour:.2f}", align="right"),
        ValueColumn("MFU", lambda row: share(row.mfu), align="right"),
        ValueColumn("runs", lambda row: f"{row.mfu_runs:,}", 3, "right"),
        ValueColumn("tokens/s/GPU", lambda row: _number_or_dash(row.tokens_per_second, ",.3g"), align="right"),
        ValueColumn("runs", lambda row: f"{row.token_runs:,}", 4, "right"),
        ValueColumn(
            "interruptions/1000 h", lambda row: _number_or_dash(row.interruptions_per_1000_hours, ".2g"), 2, "right"
        ),
    )
    yield from table_parts(console, error_columns, report.errors) if report.errors else ()
    yield from table_parts(console, speed_columns, report.measured) if report.measured else ()


def _number_or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


# --- charges of providers -------------------------------------------------------------------------------------------


def billed_lines(console: Console, report: BilledReport) -> Iterator[RenderableType]:
    """One row per group: quoted, metered and billed cost."""
    notes = [
        f"{name} charged {formats.money(amount)} for resources outside gpubroker"
        for name, amount in sorted(report.for_others.items())
    ]
    notes += [
        f"{formats.plural(item.rows, 'row')} left out: {item.reason} ({', '.join(item.samples)}{ellipsis})"
        for item in report.skipped
        for ellipsis in [", …" if item.rows > len(item.samples) else ""]
    ]
    notes += [f"{name}: left out, of an earlier run" for name in report.superseded]
    notes += [f"charges read from {', '.join(report.sources)}"] if report.sources else []
    notes.append(_timezone_note(report.timezone).plain)
    if not report.rows:
        yield from ("no attempt paid in cash ran in this period", *notes)
        return
    columns: tuple[ValueColumn[ComparedGroup], ...] = (
        ValueColumn(report.by, lambda row: row.group),
        *(
            _money_column("quoted", 2),
            _money_column("metered"),
            _money_column("on own", 4, "on_own"),
            _money_column("rented", 5),
        ),
        ValueColumn("billed", lambda row: formats.money(row.billed) + (" est." if row.estimated else ""), 0, "right"),
        ValueColumn("difference", _difference, 0, "right"),
        _money_column("adjusted", 3),
        ValueColumn[ComparedGroup]("compared", lambda item: f"{item.compared} of {item.attempts}", 1, "right"),
    )
    yield from table_parts(console, columns, report.rows)
    yield from (Text(note, style="dim") for note in notes)
    if any(item.billed is None for item in report.attempts):
        yield Text("–: no charges known yet; fetch them with gpubroker report charges", style="dim")


def _difference(group: ComparedGroup) -> str:
    difference, metered_total = group.difference, group.compared_metered
    if difference is None:
        return formats.NO_VALUE
    sign = "+" if difference.micros > 0 else ""
    share = f" ({sign}{difference.micros / metered_total.micros * 100:.1f} %)" if metered_total else ""
    return f"{sign}{formats.money(difference)}{share}"


def charges_lines(result: ChargesResult) -> Iterator[RenderableType]:
    """What was fetched or imported, and what followed from it."""
    if result.rate is not None:
        yield f"converted: {result.rate}"
    for name, count in sorted(result.changed.items()):
        replaced_note = (
            f"; {formats.plural(result.replaced[name], 'earlier charge')} replaced" if result.replaced[name] else ""
        )
        yield f"{name}: {formats.plural(count, 'charge')} new, changed or gone{replaced_note}"
    if not result.changed and not result.trouble:
        yield "no charges are outstanding at providers that report them"
    for attempt in result.adjusted:
        if attempt.difference is None:
            yield f"{attempt.key}: no complete charge any more, metered {attempt.metered}; earlier adjustment reversed"
        else:
            yield f"{attempt.key}: billed {attempt.billed}, metered {attempt.metered}; difference posted to the ledger"
    yield from (Text(f"! {title}", style="yellow") for title in result.alerts)
    yield from (
        Text(f"{formats.plural(item.rows, 'row')} skipped, {item.reason}", style="dim") for item in result.skipped
    )
    if result.without_login:
        yield Text(f"not queried, no login: {', '.join(result.without_login)}", style="dim")
