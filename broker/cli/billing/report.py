"""`gpubroker report`: spending, and what providers charged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import filters
from broker.cli.billing import report_billed
from broker.cli.options import MONTH_HELP, AsJson, NamedPeriod, OnlyTeam, Timezone, examples, expand_options
from broker.cli.render import formats
from broker.cli.render.documents import html, markdown
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import RenderableType

    from broker.app.billing.report_documents import FocusExportResult

app = typer.Typer(
    no_args_is_help=True,
    help="Report spending, and compare it with provider charges. A server reports only on teams that you may see.",
)
Month = Annotated[str, typer.Option("--month", metavar="MONTH", help=MONTH_HELP)]


@app.command(
    epilog=examples(
        "gpubroker report spend",
        "gpubroker report spend --by provider --since 30d",
        "gpubroker report spend --by user --since 2026-11-01 --until 2026-12-01 --json",
        "gpubroker report spend --by team,user,month --period quarter --out spend.csv",
        "gpubroker report spend --sandbox",
    )
)
@expand_options
def spend(
    context: typer.Context,
    period: filters.PeriodOptions,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="DIM",
            help="team, project, user, workload, environment, job, provider, region, capacity_type, accelerator,"
            " instance_type or month; or several of them: team,user,month.",
        ),
    ] = "team",
    sandbox: Annotated[bool, typer.Option("--sandbox", help="Only simulated money.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write all rows to a new .csv, .parquet or .html file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show spending from the ledger by team, project, provider or other dimensions, most expensive first.

    Without a period, `--by month` shows the last twelve months. Parquet needs the extra `parquet`.
    """
    from broker.app.billing.focus import FORMATS, check_output_path, open_draft
    from broker.app.billing.report import write_spend
    from broker.app.use_cases.money import spend as use_case
    from broker.cli.billing import report_view

    terminal = Terminal.of(context)
    if out is not None:
        check_output_path(out, (*FORMATS, ".html"))
    report_period = period.report_period(terminal.now())
    report = terminal.ask(use_case, report_period, by, sandbox)
    if out is not None:
        if out.suffix.lower() == ".html":
            with open_draft(out) as draft:
                draft.write_text(report_view.spend_page(report), encoding="utf-8")
        else:
            write_spend(out, report)
        terminal.say(f"{formats.plural(len(report.rows), 'row')} written to {out}")

    def lines() -> Iterator[RenderableType]:
        yield from report_view.spend_lines(terminal.out, report)
        if not sandbox and (simulated := terminal.ask(use_case, report_period, by, True).total.sandbox):
            yield f"not counted: {formats.money(simulated)} simulated; add --sandbox to see it"

    terminal.result(report, lines)


@app.command(
    epilog=examples(
        "gpubroker report focus --month 2026-11 --out november.csv",
        "gpubroker report focus --version 1.4 --month 2026-11 --out november.parquet --force --json",
    )
)
def focus(
    context: typer.Context,
    month: Month,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="A .csv or .parquet file.")],
    version: Annotated[str, typer.Option("--version", help="1.2 or 1.4.")] = "1.2",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a month's charges as FOCUS (the FinOps Open Cost and Usage Specification), dataset Cost and Usage, in UTC.

    Cash is both BilledCost and EffectiveCost. Use of owned and prepaid capacity has only an EffectiveCost, its purchase
    only a BilledCost. A month closes three days after its end; later postings are corrections in the next month, so the
    file of a closed month never changes. Parquet needs the extra `parquet`.
    """
    from broker.app.billing.focus import check_output_path, export
    from broker.cli.billing import report_view

    terminal = Terminal.of(context)
    if terminal.through_server:
        check_output_path(out, replace=force)
        export_result = _fetch_focus(terminal, month, out, version)
    else:
        export_result = export(terminal.broker(), version, month, out, replace=force)
    terminal.result(export_result, lambda: report_view.focus_lines(export_result))


def _fetch_focus(terminal: Terminal, month: str, out: Path, version: str) -> FocusExportResult:
    from broker.app.billing.focus import open_draft
    from broker.app.use_cases.money import FocusForm, focus_export

    form: FocusForm = "parquet" if out.suffix.lower() == ".parquet" else "csv"
    export_result = terminal.ask(focus_export, month, version, form)
    with open_draft(out) as draft, draft.open("wb") as file:
        for chunk in terminal.api.content(f"/reports/focus/{month}/file", version=version, form=form):
            file.write(chunk)
    return export_result.model_copy(update={"file": str(out)})


@app.command(
    epilog=examples(
        "gpubroker report anomalies",
        "gpubroker report anomalies --team nlp --json",
        "gpubroker report anomalies --team nlp --day 2026-11-20 --answer planned",
    )
)
def anomalies(
    context: typer.Context,
    team: OnlyTeam = None,
    day: Annotated[
        str | None, typer.Option("--day", metavar="DAY", help="With --answer: the first day of the incident, in UTC.")
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option("--answer", metavar="WORD", help="Was it an anomaly? yes, no or planned."),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept with the answer.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show days of the last month on which a team spent more than its recent pattern predicts, with the jobs
    responsible.

    Today is judged by its spending so far. Recipients get one notice per incident. Planned days are left out when later
    days are judged; answers change nothing else. The jobs' owners, the team's administrators and administrators may
    answer.
    """
    from broker.app.use_cases import money
    from broker.cli.billing import report_view

    terminal = Terminal.of(context)
    if answer is None and day is None:
        incident_list = terminal.ask(money.anomalies, team)
    elif answer is None or day is None or team is None:
        raise InvalidInput("an answer needs a team and a day", where="--answer", hint="see the examples of --help")
    else:
        try:
            first = date.fromisoformat(day)
        except ValueError as error:
            raise InvalidInput(f"expected a day such as 2026-11-20, found {day!r}", where="--day") from error
        incident_list = terminal.ask(money.answer_anomaly, team, first, answer, reason)
    terminal.result(incident_list, lambda: report_view.anomaly_lines(incident_list))


@dataclass(frozen=True)
class ServedOptions:
    """Options: files about served tokens."""

    tenants: Annotated[
        Path | None,
        typer.Option(
            "--tenants",
            metavar="FILE",
            help="Divide served tokens among tenants: LiteLLM_DailyTeamSpend as CSV. Not through a server.",
        ),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write the cost of served tokens to a new .csv or .parquet file."
        ),
    ] = None


@app.command(
    epilog=examples(
        "gpubroker report units",
        "gpubroker report units --metric loss",
        "gpubroker report units --by accelerator",
        "gpubroker report units --tenants litellm.csv --out tokens.csv",
        "gpubroker report units --period last-month --team nlp --json",
    )
)
@expand_options
def units(
    context: typer.Context,
    served: ServedOptions,
    period: NamedPeriod = "month",
    team: OnlyTeam = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", metavar="NAME", help="Also show the cost per difference of 1 in this figure."),
    ] = None,
    timezone: Timezone = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="DIM", help="Also show use by team, project, job, accelerator or capacity_type."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the cost of a successful run, a GPU-hour, a busy GPU-hour and a million tokens, for bought and for rented
    capacity.

    Utilization is that of the agents' samples: of each attempt's first machine the busiest GPU. Tokens and predictions
    are those that programs report with `gpubroker_checkpoint.report`; tokens also those that servers on the job's
    `serving_ports` count. Their cost is that of the ledger: idle, or by the servers' seconds for input and for output.
    Targets are `assumptions:` of policy files. A figure without its denominator is unknown.
    """
    from broker.app.billing.focus import check_output_path
    from broker.app.billing.tokens import read_tenant_tokens, write_served
    from broker.app.billing.units import unit_metrics_report
    from broker.app.use_cases.money import units as use_case
    from broker.cli.billing import report_view

    terminal = Terminal.of(context)
    terminal.only_here({"--tenants": served.tenants})
    if served.out is not None:
        check_output_path(served.out)
    if served.tenants is not None:
        counted = read_tenant_tokens(served.tenants)
        metrics = unit_metrics_report(terminal.broker(), period, team, metric, timezone, by, counted)
    else:
        metrics = terminal.ask(use_case, period, team, metric, timezone, by)
    if served.out is not None:
        write_served(served.out, metrics.served)
        terminal.say(f"the cost of {formats.plural(len(metrics.served), 'model')} is in {served.out}")
    if metric is not None and not metrics.quality:
        terminal.say(f"no project has two successful runs that reported {metric}")
    terminal.result(metrics, lambda: report_view.unit_lines(metrics))


@app.command(
    epilog=examples(
        "gpubroker report forecasts",
        "gpubroker report forecasts --period last-quarter --team nlp",
        "gpubroker report forecasts --period 2026-11 --json",
    )
)
def forecasts(
    context: typer.Context,
    period: NamedPeriod = "month",
    team: OnlyTeam = None,
    timezone: Timezone = None,
    as_json: AsJson = False,
) -> None:
    """Compare predictions of plans with outcomes, and show measurements of finished runs.

    Only successful runs on GPUs count; the prediction is that of a run's first plan. Tokens are those that programs
    report with `gpubroker_checkpoint.report`; the measured share of peak compute replaces the assumed one in advice.
    """
    from broker.app.use_cases.money import forecasts as use_case
    from broker.cli.billing import report_view

    terminal = Terminal.of(context)
    report = terminal.ask(use_case, period, team, timezone)
    terminal.result(report, lambda: report_view.forecast_lines(terminal.out, report))


@app.command(
    epilog=examples(
        "gpubroker report review --month 2026-11",
        "gpubroker report review --month 2026-11 --out november.html",
        "gpubroker report review --month 2026-11 --out november.md --force",
        "gpubroker report review --month last-quarter --json",
        "gpubroker report review --month 2026-11 --answer spot-1f0c2a=done --reason 'spot since Monday'",
    )
)
def review(
    context: typer.Context,
    month: Annotated[
        str,
        typer.Option(
            "--month", metavar="MONTH", help="2026-11, month or last-month; 2026-Q4, quarter or last-quarter."
        ),
    ] = "month",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it to an .html or .md file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    timezone: Timezone = None,
    answer: Annotated[
        str | None,
        typer.Option(
            "--answer",
            metavar="ID=WORD",
            help="Answer advice of this review: accepted, dismissed or done.",
        ),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept with the answer.")] = "",
    as_json: AsJson = False,
) -> None:
    """Review a month or quarter: what changed since the one before and why, what to do, and the effect of its advice.

    The change is split into volume, mix, price, waste, new use and ended use; these parts add up to it exactly. Without
    --out, the review is printed as Markdown. A month that is not over is compared with the same days of the month
    before. A quarter has the answers of its months, too. Advice on runs follows from what agents measured: cards larger
    than the work, GPUs that wait for data or stand idle, work that spot could do. Dismissed advice is listed last.
    """
    from broker.app.billing.focus import check_output_path, open_draft
    from broker.app.use_cases.money import answer_advice, month_review
    from broker.cli.billing.review_view import review_blocks

    terminal = Terminal.of(context)
    writers = {".html": html, ".md": markdown}
    if out is not None:
        check_output_path(out, list(writers), replace=force)
    if answer is not None:
        advice, _, verdict = answer.partition("=")
        report = terminal.ask(answer_advice, month, advice, verdict, reason, timezone)
    else:
        report = terminal.ask(month_review, month, timezone)
    if out is not None:
        with open_draft(out) as draft:
            draft.write_text(writers[out.suffix.lower()](review_blocks(report)), encoding="utf-8")
        terminal.say(f"the review of {report.month} is in {out}")
    if as_json:
        terminal.answer(report)
    elif out is None:
        from rich.markdown import Markdown

        markdown_text = markdown(review_blocks(report))
        terminal.show(Markdown(markdown_text) if terminal.out.is_terminal else markdown_text.rstrip("\n"))


app.command("billed", epilog=report_billed.BILLED_EXAMPLES)(report_billed.billed)
app.command("showback", epilog=report_billed.SHOWBACK_EXAMPLES)(report_billed.showback)
app.command("charges", epilog=report_billed.CHARGES_EXAMPLES)(report_billed.charges)
