"""`gpubroker report` through a team server."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from broker.cli import filters
from broker.cli.billing.report_focus import EXAMPLES as FOCUS_EXAMPLES
from broker.cli.billing.report_showback import Fixed, IdleRule, SharedRule, SharedTeams
from broker.cli.options import MONTH_HELP, AsJson, MaybePeriod, NamedPeriod, OnlyTeam, examples
from broker.cli.remote import api_of, group_of, through
from broker.cli.remote.tables import DocumentColumn, facts, listed, money, number, share, table, text, time, usd
from broker.core.errors import InvalidInput, StoreProblem

app = typer.Typer(
    cls=group_of("broker.cli.billing.report:app"),
    no_args_is_help=True,
    help="Reports of the server: spending of your teams; for finops and administrators of all.",
)
Month = Annotated[str | None, typer.Option("--month", metavar="YYYY-MM", help="The month, in UTC. Default: this one.")]
Start = Annotated[str | None, typer.Option("--since", "--from", metavar="WHEN", help="Start: 2026-11-01, or 7d (ago).")]
End = Annotated[str | None, typer.Option("--until", "--to", metavar="WHEN", help="End, exclusive.")]


@app.callback()
def report() -> None:
    """Reports of the server: spending of your teams; for finops and administrators of all."""


def _bounds(since: str | None, until: str | None) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {
        "since": filters.moment("--since", since, now).isoformat() if since else None,
        "until": filters.moment("--until", until, now).isoformat() if until else None,
    }


@app.command(
    epilog=examples("gpubroker report spend", "gpubroker report spend --by team,user,month --period quarter --json")
)
def spend(
    context: typer.Context,
    by: Annotated[
        str, typer.Option("--by", metavar="DIM", help="team, user, provider, job, month, …; or several: team,month.")
    ] = "team",
    since: Start = None,
    until: End = None,
    period: MaybePeriod = None,
    sandbox: Annotated[bool, typer.Option("--sandbox", help="Only simulated money.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show spending of your teams from the ledger, most expensive first."""
    api = api_of(context)
    bounds = _bounds(since, until)
    found = api.get("/reports/spend", by=by, period=period, sandbox=True if sandbox else None, **bounds)

    def value(place: int) -> Any:
        return lambda row: str(row["values"][place])

    names = found["by"].split(",")
    kinds = (money("sandbox", "simulated"),) if sandbox else (money("cash"), money("amortised", rank=2))
    columns = (
        *(DocumentColumn(name, value(place)) for place, name in enumerate(names)),
        *kinds,
        money("held", rank=1),
        money("bought", rank=6),
        money("rented", rank=7),
        number("gpu_hours", "GPU-hours", 3, ",.2f"),
        number("jobs", rank=4),
    )
    none = "nothing was spent in this period" + ("" if sandbox else "; use --sandbox for simulated money")
    total = f"total {usd(found['total']['sandbox' if sandbox else 'cash'])} {'simulated' if sandbox else 'cash'}"
    listed(context, found, "rows", columns, none, total)


@app.command(epilog=examples("gpubroker report showback --month 2026-11", "gpubroker report showback --json"))
def showback(
    context: typer.Context,
    month: Month = None,
    idle: IdleRule = "separate",
    shared: SharedRule = "separate",
    shared_team: SharedTeams = None,
    fixed: Fixed = None,
    as_json: AsJson = False,
) -> None:
    """Show the cost of each team's use in a month: cash, amortised cost of prepaid capacity, and its share of idle and
    shared cost."""
    terminal, api = through(context)
    found = api.get("/reports/showback", month=month, idle=idle, shared=shared, shared_team=shared_team, fixed=fixed)
    if as_json:
        terminal.answer(found)
        return
    terminal.show(*_team_costs(terminal, found))
    if not found["over"]:
        terminal.show(f"{found['month']} is not over: this is what is known so far")


@app.command(epilog=examples("gpubroker report chargeback", "gpubroker report chargeback --month 2026-10 --json"))
def chargeback(
    context: typer.Context,
    month: Annotated[
        str | None, typer.Option("--month", metavar="YYYY-MM", help="The month, in UTC. Without: list statements.")
    ] = None,
    freeze: Annotated[bool, typer.Option("--freeze", help="Make the statement of a closed month, for good.")] = False,
    idle: IdleRule = "separate",
    shared: SharedRule = "separate",
    shared_team: SharedTeams = None,
    fixed: Fixed = None,
    as_json: AsJson = False,
) -> None:
    """Freeze or show the statement of a closed month: what each team is charged. Freezing needs a token with the scope
    `statements` of an administrator."""
    terminal, api = through(context)
    if freeze and month is None:
        raise InvalidInput("the month is missing", where="--month", hint="--month 2026-10")
    if not freeze and (idle, shared, shared_team, fixed) != ("separate", "separate", None, None):
        raise InvalidInput("rules are given when a statement is made", where="--idle", hint="add --freeze")
    if freeze:
        rules = {"idle": idle, "shared": shared, "shared_team": shared_team or [], "fixed": fixed}
        found = api.change(f"/reports/chargeback/{month}", rules)
    else:
        found = api.get("/reports/chargeback" + (f"/{month}" if month else ""))
    if as_json:
        terminal.answer(found)
    elif month:
        terminal.show(*_team_costs(terminal, found))
    else:
        columns = (text("month"), money("charged"), time("frozen_at", "frozen"), text("frozen_by", "by"))
        terminal.show(*table(terminal.out, columns, found["statements"], "no month is frozen yet"))


@app.command(epilog=FOCUS_EXAMPLES)
def focus(
    context: typer.Context,
    month: Annotated[str, typer.Option("--month", metavar="MONTH", help=MONTH_HELP)],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="A .csv or .parquet file.")],
    version: Annotated[str, typer.Option("--version", help="1.2 or 1.4.")] = "1.2",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch a month's charges as FOCUS (the FinOps Open Cost and Usage Specification) from the server."""
    terminal, api = through(context)
    form = out.suffix.removeprefix(".")
    if form not in ("csv", "parquet"):
        raise InvalidInput("expected a file that ends in .csv or .parquet", where=str(out))
    if out.exists() and not force:
        raise InvalidInput("the file exists already", where=str(out), hint="write to another one, or add --force")
    asked = {"version": version, "form": form}
    found = api.get(f"/reports/focus/{month}", **asked) | {"file": str(out)}
    part = out.with_name(f".{out.name}.part")
    try:
        with part.open("wb") as file:
            for piece in api.content(f"/reports/focus/{month}/file", **asked):
                file.write(piece)
        part.replace(out)
    except OSError as error:
        raise StoreProblem(f"the file cannot be written: {error.strerror or error}", where=str(out)) from error
    finally:
        part.unlink(missing_ok=True)
    if as_json:
        terminal.answer(found)
    else:
        terminal.show(f"{out}: {found['rows']} charges of {found['month']}, {found['corrections']} of them corrections")


def _team_costs(terminal: Any, found: Any) -> Any:
    columns = (text("team"), *(money(name) for name in ("cash", "amortised", "idle", "shared", "total")))
    total = f"total {usd(found['total']['total'])}"
    return table(terminal.out, columns, found["rows"], "nothing was spent in this month", total)


@app.command(epilog=examples("gpubroker report units", "gpubroker report units --period last-month --team nlp --json"))
def units(
    context: typer.Context,
    period: NamedPeriod = "month",
    team: OnlyTeam = None,
    metric: Annotated[str | None, typer.Option("--metric", metavar="NAME", help="Also runs by this metric.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a run, a busy GPU-hour and a million tokens cost."""
    terminal, api = through(context)
    found = api.get("/reports/units", period=period, team=team, metric=metric)
    columns = (
        money("spent"), number("gpu_hours", "GPU-hours", 0, ",.2f"), money("per_gpu_hour", "per GPU-hour"),
        number("runs", "successful runs"), money("per_run", "per run"), money("per_busy_hour", "per busy GPU-hour"),
        money("per_million_tokens", "per million tokens"), money("wasted", "lost work"),
        money("idle_cost", "idle GPUs"), share("tagged", "with team and project"),
        share("capacity_use", "use of held capacity"), share("coverage"),
    )  # fmt: skip
    terminal.result(found, lambda: facts(columns, found))


@app.command(epilog=examples("gpubroker report review --month 2026-11", "gpubroker report review --json"))
def review(context: typer.Context, month: Month = None, as_json: AsJson = False) -> None:
    """Review a month: what changed since the month before and why, what to do, and what last month's advice brought."""
    from rich.markdown import Markdown

    from broker.app.results.review import ReviewReport
    from broker.cli.billing.report_review_view import blocks
    from broker.cli.render.written import markdown

    terminal, api = through(context)
    found = api.get("/reports/review", month=month)
    if as_json:
        terminal.answer(found)
    else:
        text = markdown(blocks(ReviewReport.model_validate(found)))
        terminal.show(Markdown(text) if terminal.out.is_terminal else text.rstrip("\n"))


@app.command(epilog=examples("gpubroker report billed", "gpubroker report billed --by job --from 30d --json"))
def billed(
    context: typer.Context,
    by: Annotated[str, typer.Option("--by", metavar="DIM", help="provider, job or attempt.")] = "provider",
    since: Start = None,
    until: End = None,
    as_json: AsJson = False,
) -> None:
    """Compare quoted, metered and billed cost."""
    api = api_of(context)
    found = api.get("/reports/billed", by=by, **_bounds(since, until))
    columns = (
        text("group", by), number("attempts"), number("compared", rank=2), money("quoted"), money("metered"),
        money("billed"), money("difference"), money("adjusted", rank=1),
    )  # fmt: skip
    listed(context, found, "rows", columns, "no attempt ran in this period")


@app.command(epilog=examples("gpubroker report anomalies", "gpubroker report anomalies --team nlp --json"))
def anomalies(context: typer.Context, team: OnlyTeam = None, as_json: AsJson = False) -> None:
    """Show days of the last month on which a team spent more than the weeks before explain."""
    api = api_of(context)
    found = api.get("/reports/anomalies", team=team)
    columns = (text("team"), text("first"), text("last"), money("spent"), money("excess", "unexplained"))
    none = "no day of the last month had more spending than the weeks before explain"
    listed(context, found, "incidents", columns, none)


@app.command(epilog=examples("gpubroker report forecasts", "gpubroker report forecasts --team nlp --json"))
def forecasts(
    context: typer.Context, period: NamedPeriod = "month", team: OnlyTeam = None, as_json: AsJson = False
) -> None:
    """Compare predictions of plans with outcomes."""
    terminal, api = through(context)
    found = api.get("/reports/forecasts", period=period, team=team)
    terminal.result(
        found, lambda: facts((number("runs"), number("unpredicted"), share("unpredicted_share", "their share")), found)
    )
