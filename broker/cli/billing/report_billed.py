"""`gpubroker report billed` and `gpubroker report charges`: quoted, metered and billed cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import filters
from broker.cli.options import AsJson, MaybePeriod, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import RenderableType

    from broker.app.billing.charges import RecordedCharges
    from broker.app.results.charges import BilledReport, ComparedSums

BILLED_EXAMPLES = examples(
    "gpubroker report billed",
    "gpubroker report billed --by job --period last-month",
    "gpubroker report billed --from 2026-11-01 --to 2026-12-01 --json",
    "gpubroker report billed --focus aws-2026-11.csv --by attempt",
)
_DIMENSIONS = ("provider", "capacity_type", "job", "attempt")
_MOST_NAMED = 5

charges = typer.Typer(no_args_is_help=True, help="Fetch or import provider charges.")


@charges.callback()
def _charges() -> None:
    """Fetch or import provider charges."""


def billed(
    context: typer.Context,
    by: Annotated[
        str, typer.Option("--by", metavar="DIM", help="provider, capacity_type, job or attempt.")
    ] = "provider",
    since: Annotated[
        str | None,
        typer.Option(
            "--since", "--from", metavar="WHEN", help="Attempts that ran since then: 2026-11-01, or 7d (ago)."
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", "--to", metavar="WHEN", help="Attempts that ran before this time.")
    ] = None,
    period: MaybePeriod = None,
    focus: Annotated[
        Path | None,
        typer.Option("--focus", metavar="FILE", help="Compare with this FOCUS file (.csv, .parquet) of a provider."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare quoted cost (at placement), metered cost, and billed cost (charged by the provider).

    With --focus, billed cost is the BilledCost of that file, matched by the tag gpubroker of machines or by the name or
    ID of the resource. Nothing is recorded. An attempt that the file does not contain has no billed cost.

    An attempt is compared once its job is closed and its charges cover all of its time; the ledger then contains the
    difference as an adjustment. Amounts are for whole attempts. `gpubroker report charges fetch --help` describes where
    charges come from.
    """
    from broker.app.billing import charges as use_case
    from broker.app.results.charges import BilledReport

    if by not in _DIMENSIONS:
        raise InvalidInput(f"unknown dimension {by!r}", where="--by", hint=f"one of {', '.join(_DIMENSIONS)}")
    terminal = Terminal.of(context)
    broker = terminal.broker()
    now = broker.clock.now()
    start, end = filters.period(period, since, until, now)
    if focus is not None and (start or end):
        raise InvalidInput("the file sets the period", where="--focus", hint="remove --period, --since and --until")
    found = use_case.billed(broker, start, end) if focus is None else use_case.billed_by_file(broker, focus)
    report = BilledReport.of(found, by, start, end)
    terminal.result(report, lambda: _table(terminal, report))


@charges.command(
    "fetch", epilog=examples("gpubroker report charges fetch", "gpubroker report charges fetch --provider aws --json")
)
def fetch(
    context: typer.Context,
    provider: Annotated[str, typer.Option("--provider", "-p", help="Only this provider.")] = "",
    as_json: AsJson = False,
) -> None:
    """Fetch charges from the providers that report them (aws, azure), and adjust the ledger.

    AWS bills $0.01 per request. `gpubroker serve` does this once a day. Machines are identified by their tag gpubroker;
    on AWS, activate it once as a cost allocation tag (Billing console). For other providers: gpubroker report charges
    import FILE.
    """
    from broker.app.billing import charges as use_case

    terminal = Terminal.of(context)
    _tell(terminal, use_case.fetch(terminal.broker(), provider), as_json=as_json)


@charges.command("import", epilog=examples("gpubroker report charges import vast-2026-11.csv --provider vast"))
def import_(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="CSV with a header: key,starts,ends,amount (or day for the times).")
    ],
    provider: Annotated[
        str, typer.Option("--provider", "-p", help="Provider of the charges, if no column names it.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Import provider charges from a CSV file, and adjust the ledger. Importing the same file again changes nothing.

    Columns: key (of the attempt, as in its machine's name: train-k3v9qz-1; empty for charges that are not
    gpubroker's), starts and ends (ISO 8601, UTC) or day, amount (USD); optional: provider, line (distinguishes charges
    for the same time), estimated (yes for charges that may still change).
    """
    from broker.app.billing import charges as use_case

    terminal = Terminal.of(context)
    _tell(terminal, use_case.import_file(terminal.broker(), file, provider), as_json=as_json)


# --- drawing --------------------------------------------------------------------------------------------------------


def _table(terminal: Terminal, found: BilledReport) -> list[RenderableType]:
    from rich.text import Text

    from broker.cli.render import formats
    from broker.cli.render.tables import Column, fitted

    others = [
        f"{name} charged {formats.money(sum_)} for resources outside gpubroker"
        for name, sum_ in sorted(found.for_others.items())
    ]
    if not found.rows:
        return ["no attempt paid in cash ran in this period", *others]
    columns = (
        Column(found.by),
        Column("quoted", 2, align="right"),
        Column("metered", align="right"),
        Column("on own", 4, align="right"),
        Column("rented", 5, align="right"),
        Column("billed", align="right"),
        Column("difference", align="right"),
        Column("adjusted", 3, align="right"),
        Column("compared", 1, align="right"),
    )
    cells: list[list[str | Text]] = []
    for it in found.rows:
        billed = formats.money(it.billed) + (" est." if it.estimated else "")
        cells.append(
            [
                it.group,
                formats.money(it.quoted),
                formats.money(it.metered),
                formats.money(it.on_own),
                formats.money(it.rented),
                billed,
                _difference(it),
                formats.money(it.adjusted),
                f"{it.compared} of {it.attempts}",
            ]
        )
    lines = list(others)
    if any(one.billed is None for one in found.attempts):
        lines.append("–: no charges known yet; fetch them with gpubroker report charges fetch")
    return [*fitted(terminal.out, columns, cells), *(Text(line, style="dim") for line in lines)]


def _difference(sums: ComparedSums) -> str:
    from broker.cli.render import formats

    difference, metered = sums.difference, sums.compared_metered
    if difference is None:
        return formats.NOTHING
    sign = "+" if difference.micros > 0 else ""
    share = f" ({sign}{difference.micros / metered.micros * 100:.1f} %)" if metered else ""
    return f"{sign}{formats.money(difference)}{share}"


def _tell(terminal: Terminal, done: RecordedCharges, *, as_json: bool) -> None:
    from rich.text import Text

    from broker.cli.render import formats

    if as_json:
        from broker.app.results.charges import ChargesResult

        terminal.answer(ChargesResult.of(done))
    else:
        for name, count in sorted(done.changed.items()):
            terminal.show(f"{name}: {formats.plural(count, 'charge')} new or changed")
        if done.unknown:
            more = f" and {len(done.unknown) - _MOST_NAMED} more" if len(done.unknown) > _MOST_NAMED else ""
            named = ", ".join(done.unknown[:_MOST_NAMED])
            terminal.say(f"warning: no attempt in this store has the key {named}{more}; their cost is not assigned")
        if not done.changed and not done.trouble:
            terminal.show("no charges are outstanding at providers that report them")
        for one in done.adjusted:
            terminal.show(f"{one.key}: billed {one.billed}, metered {one.metered}; difference posted to the ledger")
        terminal.show(*(Text(f"! {notice.title}", style="yellow") for notice in done.alerts))
        if done.without_login:
            terminal.show(Text(f"not queried, no login: {', '.join(done.without_login)}", style="dim"))
    for name, why in done.trouble.items():
        terminal.say(f"{name} could not be queried: {why}")
    if done.trouble:
        raise typer.Exit(5)
