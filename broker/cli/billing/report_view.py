"""Reports of spending as text, and as a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rich.text import Text

from broker.app.results.charges import BilledReport, ChargesResult, ComparedGroup
from broker.app.results.reports import (
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
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listed
from broker.cli.render.written import Block, Grid, Heading, Paragraph, html
from broker.core.values.units import zone
from broker.finops.accuracy import MeasuredSpeed, PredictionError
from broker.finops.showback import Correction
from broker.finops.units import UnitMetrics

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.core.values.money import Money

_NO_ANOMALY = "no day of the last month had more spending than the recent pattern predicts"
_SPENT_ON = ("cash", "amortised", "sandbox", "held", "bought", "rented")


def _money(title: str, rank: int = 0, field: str = "") -> ValueColumn[Any]:
    """An amount (USD): the field of that name, or of the title."""
    value: Callable[[Any], Money | None] = attrgetter(field or title)
    return ValueColumn(title, lambda row: formats.money(value(row)), rank, "right")


# --- spending -------------------------------------------------------------------------------------------------------


def spend(console: Console, found: SpendReport) -> Iterator[RenderableType]:
    """One row per group, and the sums."""
    sandbox, total = found.sandbox_only, found.total
    columns: tuple[ValueColumn[SpendGroup], ...] = (
        *(ValueColumn(name, _nth(place)) for place, name in enumerate(found.by.split(","))),
        *((_money("simulated", field="sandbox"),) if sandbox else (_money("cash"), _money("amortised", 2))),
        _money("held", 1),
        _money("bought", 7),
        _money("rented", 8),
        ValueColumn("GPU-hours", lambda row: f"{row.gpu_hours:,.2f}", 3, "right"),
        ValueColumn("machine-hours", lambda row: f"{row.machine_hours:,.2f}", 6, "right"),
        ValueColumn("attempts", lambda row: f"{row.attempts:,}", 5, "right"),
        ValueColumn("jobs", lambda row: f"{row.jobs:,}", 4, "right"),
    )
    if found.rows:
        spent = f"{formats.money(total.sandbox)} simulated" if sandbox else f"{formats.money(total.cash)} cash"
        parts = f"{formats.money(total.bought)} on owned and reserved machines, {formats.money(total.rented)} rented"
        yield from listed(console, columns, found.rows, f"total {spent}; {parts}")
    else:
        yield "nothing was spent in this period" + ("" if sandbox else "; use --sandbox for simulated money")
    if total.bought_in_advance:
        yield f"and {formats.money(total.bought_in_advance)} paid for bought capacity, whose use is amortized cost"
    yield _zone(found.timezone)


def _zone(name: str) -> Text:
    return Text(f"time zone of months: {name}", style="dim")


def _nth(place: int) -> Callable[[SpendGroup], str]:
    return lambda row: row.values[place]


def spend_page(found: SpendReport) -> str:
    """The report as a page (HTML)."""
    dimensions = found.by.split(",")
    lines = [
        [
            *row.values,
            *(formats.money(getattr(row, name)) for name in _SPENT_ON),
            f"{row.gpu_hours:,.2f}", f"{row.machine_hours:,.2f}", f"{row.attempts:,}", f"{row.jobs:,}",
        ]
        for row in found.rows
    ]  # fmt: skip
    since = formats.moment(found.since) if found.since else "the beginning"
    until = formats.moment(found.until) if found.until else "the present"
    header = [*dimensions, *_SPENT_ON, "GPU-hours", "machine-hours", "attempts", "jobs"]
    blocks: list[Block] = [
        Heading(f"Spending by {', '.join(dimensions)}", 1),
        Paragraph(
            f"From {since} to {until}. Amounts are USD; bought is the part on owned and reserved machines."
            f" Time zone of months: {found.timezone}."
        ),
        Grid(header, lines, figures=len(dimensions)),
    ]
    return html(blocks)


def focus(done: FocusExportResult) -> Iterator[RenderableType]:
    """What a FOCUS file contains."""
    corrections = f", {formats.plural(done.corrections, 'correction')} of earlier months" if done.corrections else ""
    yield (
        f"{done.file}: {formats.plural(done.rows, 'charge')} of {done.month} ({done.timezone}){corrections}; billed"
        f" {formats.money(done.billed_cost)}, effective {formats.money(done.effective_cost)}"
    )
    if not done.closed:
        yield Text(f"{done.month} is open until {formats.moment(done.closes)}", style="dim")


# --- teams ----------------------------------------------------------------------------------------------------------


def showback(console: Console, found: ShowbackReport) -> Iterator[RenderableType]:
    """One row per team, and what is charged to nobody."""
    yield from _team_costs(console, found.rows, found.total)
    yield from (f"{team} holds {formats.money(amount)} more for jobs" for team, amount in found.held.items())
    if found.bought_in_advance:
        yield f"bought in advance, charged to nobody: {formats.money(found.bought_in_advance)}"
    if not found.over:
        yield f"{found.month} is not over: this is what is known so far"
    yield _zone(found.timezone)


def statement(console: Console, found: ChargebackStatement) -> Iterator[RenderableType]:
    """A frozen statement with its corrections."""
    yield from _team_costs(console, found.rows, found.total)
    yield from (_correction(one, f"for {one.month}") for one in found.corrections)
    yield (
        f"charged for {found.month} ({found.timezone}): {formats.money(found.charged)}, frozen"
        f" {formats.moment(found.frozen_at)} by {found.frozen_by}"
    )
    for one in found.corrected_since:
        yield _correction(one, f"charged with {one.billed_in or 'the next statement'}")


def statements(found: ChargebackList) -> Iterator[RenderableType]:
    """One line per frozen month."""
    for one in found.statements:
        frozen = f"frozen {formats.moment(one.frozen_at)} by {one.frozen_by}"
        yield f"{one.month} ({one.timezone}): {formats.money(one.charged)}, {frozen}"
    if not found.statements:
        yield "no month is frozen yet: gpubroker report chargeback --month YYYY-MM --freeze"


def _correction(one: Correction, about: str) -> str:
    return f"correction {about}: {one.team} {formats.money(one.amount)}"


def _team_costs(console: Console, rows: Sequence[TeamCostResult], total: TeamCostResult) -> list[RenderableType]:
    columns: tuple[ValueColumn[TeamCostResult], ...] = (
        ValueColumn("team", lambda row: row.team),
        *(_money("cash"), _money("amortised"), _money("on own", 2, "on_own"), _money("rented", 1)),
        *(_money("idle"), _money("shared"), _money("total")),
    )
    if not rows:
        return ["nothing was spent in this month"]
    return listed(console, columns, rows, f"total {formats.money(total.total)}")


def anomalies(found: IncidentList) -> Iterator[RenderableType]:
    """Each incident with its causes, and its answer."""
    for one in found.incidents:
        days = f"{one.first}" if one.first == one.last else f"{one.first} to {one.last}"
        state = ", ongoing" if one.running else ""
        yield f"{one.team}, {days}{state}: {formats.money(one.spent)}, {formats.money(one.excess)} more than usual"
        yield f"  {formats.money(one.on_own)} of it on owned and reserved machines, {formats.money(one.rented)} rented"
        yield from (f"  {cause.job} of {cause.user}: {formats.money(cause.excess)} more" for cause in one.causes)
        if one.answer is not None:
            reason = f": {one.answer.reason}" if one.answer.reason else ""
            yield f"  answered {one.answer.answer.value} by {one.answer.by}{reason}"
    if not found.incidents:
        yield _NO_ANOMALY


# --- units and forecasts --------------------------------------------------------------------------------------------


def units(one: UnitMetrics) -> Iterator[str]:
    """One line per figure."""
    return (f"{name + ':':<28} {text}" for name, text in _unit_figures(one))


def _unit_figures(one: UnitMetrics) -> Iterator[tuple[str, str]]:
    def money(amount: Money | None) -> str:
        return "unknown" if amount is None else formats.money(amount)

    def share(value: float | None, what: str) -> str:
        return "unknown" if value is None else f"{formats.percent(value)} {what}"

    spot = one.spot_hours / one.gpu_hours if one.gpu_hours else None
    eligible = one.eligible_spot_hours / one.eligible_hours if one.eligible_hours else None
    samples = f"of {one.measured_hours:,.1f} GPU-hours with samples"
    idle = f"{one.idle_hours:,.1f} {samples}, {money(one.idle_cost)}" if one.measured_hours else "unknown"
    yield "spent", money(one.spent)
    yield "bought (owned, reserved)", money(one.bought)
    yield "rented (on-demand, spot)", money(one.rented)
    yield "successful runs", f"{one.runs:,}"
    yield "cost of a successful run", money(one.per_run)
    yield "GPU-hours", f"{one.gpu_hours:,.1f}"
    yield "cost of a GPU-hour", money(one.per_gpu_hour)
    yield "cost of a busy GPU-hour", money(one.per_busy_hour)
    yield "busy GPU-hours", f"{one.busy_hours:,.1f} {samples}" if one.measured_hours else "unknown"
    yield "idle GPU-hours (below 5 %)", idle
    yield "cost of a million tokens", money(one.per_million_tokens)
    yield "lost work", money(one.wasted)
    yield "on spot", share(spot, f"of GPU-hours, {money(one.spot_spent)}")
    yield "on spot, of what could be", share(eligible, f"of {one.eligible_hours:,.1f} rented GPU-hours")
    yield "use of held capacity", share(one.capacity_use, "of the hours held")
    yield "on held capacity", share(one.coverage, "of GPU-hours")
    yield "tagged with a team", share(one.tagged, "of spending")
    for owner in one.quality:
        runs = " and ".join(
            f"{run.job_id} ({run.value:g}, {money(run.cost)})" for run in (owner.cheapest, owner.dearest)
        )
        yield f"a difference of 1, {owner.owner}", f"{money(owner.per_point)}, from {runs}"
    if one.unread:
        yield "unreadable samples", f"{one.unread:,} attempts"
    yield "time zone of the period", one.timezone


def forecasts(console: Console, found: ForecastsReport) -> Iterator[RenderableType]:
    """Predictions against outcomes by kind, and measurements by accelerator."""

    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.0%}"

    def amount(one: PredictionError, value: float) -> str:
        units = {"cost": "${:,.2f}", "price of a GPU-hour": "${:,.2f}", "time": "{:,.1f} h"}
        return units.get(one.kind.value, "{:,.1f}").format(value)

    runs = formats.plural(found.runs, "successful run")
    unknown = f"; {found.unpredicted} of unknown work: `work` or a model's `tokens` in the job file lets plans predict"
    since, until = (at.astimezone(zone(found.timezone)) for at in (found.since, found.until))
    head = f"{runs} on GPUs from {since:%Y-%m-%d} to {until:%Y-%m-%d} ({found.timezone})"
    yield head + (unknown if found.unpredicted else "")
    errors: tuple[ValueColumn[PredictionError], ...] = (
        ValueColumn("prediction", lambda one: one.kind.value),
        ValueColumn("runs", lambda one: f"{one.runs:,}", align="right"),
        ValueColumn("predicted", lambda one: amount(one, one.predicted), align="right"),
        ValueColumn("happened", lambda one: amount(one, one.happened), align="right"),
        ValueColumn("median ratio", lambda one: "-" if one.ratio is None else f"{one.ratio:.2f}", align="right"),
        ValueColumn("mean error", lambda one: share(one.mean_error), 2, "right"),
        ValueColumn("worst", lambda one: share(one.worst), 3, "right"),
        ValueColumn("within 25%", lambda one: share(one.within), 1, "right"),
    )
    measured: tuple[ValueColumn[MeasuredSpeed], ...] = (
        ValueColumn("measured on", lambda one: one.accelerator),
        ValueColumn("runs", lambda one: f"{one.runs:,}", align="right"),
        ValueColumn("GPU-hours", lambda one: f"{one.gpu_hours:,.0f}", align="right"),
        ValueColumn("paid/GPU-hour", lambda one: f"${one.usd_per_gpu_hour:.2f}", align="right"),
        ValueColumn("MFU", lambda one: share(one.mfu), align="right"),
        ValueColumn("runs", lambda one: f"{one.mfu_runs:,}", 3, "right"),
        ValueColumn("tokens/s/GPU", lambda one: _or_dash(one.tokens_per_second, ",.3g"), align="right"),
        ValueColumn("runs", lambda one: f"{one.token_runs:,}", 4, "right"),
        ValueColumn("interruptions/1000 h", lambda one: _or_dash(one.interruptions_per_1000_hours, ".2g"), 2, "right"),
    )
    yield from listed(console, errors, found.errors) if found.errors else ()
    yield from listed(console, measured, found.measured) if found.measured else ()


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


# --- charges of providers -------------------------------------------------------------------------------------------


def billed(console: Console, found: BilledReport) -> Iterator[RenderableType]:
    """One row per group: quoted, metered and billed cost."""
    others = [
        f"{name} charged {formats.money(amount)} for resources outside gpubroker"
        for name, amount in sorted(found.for_others.items())
    ]
    others += [
        f"{formats.plural(one.rows, 'row')} left out: {one.reason} ({', '.join(one.samples)}{more})"
        for one in found.skipped
        for more in [", …" if one.rows > len(one.samples) else ""]
    ]
    others += [f"{name}: left out, of an earlier run" for name in found.superseded]
    others.append(_zone(found.timezone).plain)
    if not found.rows:
        yield from ("no attempt paid in cash ran in this period", *others)
        return
    columns: tuple[ValueColumn[ComparedGroup], ...] = (
        ValueColumn(found.by, lambda one: one.group),
        *(_money("quoted", 2), _money("metered"), _money("on own", 4, "on_own"), _money("rented", 5)),
        ValueColumn("billed", lambda one: formats.money(one.billed) + (" est." if one.estimated else ""), 0, "right"),
        ValueColumn("difference", _difference, 0, "right"),
        _money("adjusted", 3),
        ValueColumn[ComparedGroup]("compared", lambda one: f"{one.compared} of {one.attempts}", 1, "right"),
    )
    yield from listed(console, columns, found.rows)
    yield from (Text(line, style="dim") for line in others)
    if any(one.billed is None for one in found.attempts):
        yield Text("–: no charges known yet; fetch them with gpubroker report charges fetch", style="dim")


def _difference(one: ComparedGroup) -> str:
    difference, metered = one.difference, one.compared_metered
    if difference is None:
        return formats.NOTHING
    sign = "+" if difference.micros > 0 else ""
    share = f" ({sign}{difference.micros / metered.micros * 100:.1f} %)" if metered else ""
    return f"{sign}{formats.money(difference)}{share}"


def charges(done: ChargesResult) -> Iterator[RenderableType]:
    """What was fetched or imported, and what followed from it."""
    for name, count in sorted(done.changed.items()):
        earlier = f"; {formats.plural(done.replaced[name], 'earlier charge')} replaced" if done.replaced[name] else ""
        yield f"{name}: {formats.plural(count, 'charge')} new, changed or gone{earlier}"
    if not done.changed and not done.trouble:
        yield "no charges are outstanding at providers that report them"
    for one in done.adjusted:
        if one.difference is None:
            yield f"{one.key}: no complete charge any more, metered {one.metered}; earlier adjustment reversed"
        else:
            yield f"{one.key}: billed {one.billed}, metered {one.metered}; difference posted to the ledger"
    yield from (Text(f"! {title}", style="yellow") for title in done.alerts)
    if done.without_login:
        yield Text(f"not queried, no login: {', '.join(done.without_login)}", style="dim")
