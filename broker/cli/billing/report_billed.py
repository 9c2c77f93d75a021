"""`gpubroker report billed` and `gpubroker report charges`: quoted, metered and billed cost.

`gpubroker report showback` and `chargeback`: what each team's use cost, and what it is charged.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import filters
from broker.cli.option_groups import expand_options
from broker.cli.options import MONTH_HELP, AsJson, Timezone, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.core.values.figures import join_names

if TYPE_CHECKING:
    from broker.app.billing.showback import Sharing
    from broker.app.results.charges import ChargesResult


BILLED_EXAMPLES = examples(
    "gpubroker report billed",
    "gpubroker report billed --by job --period last-month",
    "gpubroker report billed --from 2026-11-01 --to 2026-12-01 --json",
    "gpubroker report billed --focus aws-2026-11.csv --by attempt",
)
_MAX_NAMED = 5

charges = typer.Typer(no_args_is_help=True, help="Fetch or import provider charges.")


@expand_options
def billed(
    context: typer.Context,
    period: filters.PeriodOptions,
    by: Annotated[
        str, typer.Option("--by", metavar="DIM", help="provider, capacity_type, job or attempt.")
    ] = "provider",
    focus: Annotated[
        Path | None,
        typer.Option(
            "--focus",
            metavar="PATH",
            help="Compare with this FOCUS export of a provider: .csv, .csv.gz, .parquet or a folder of parts. Not "
            "through a server.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare quoted cost (at placement), metered cost, and billed cost (charged by the provider).

    With --focus, billed cost is the BilledCost of that file, matched by the tag gpubroker of machines or by the name or
    ID of the resource. Nothing is recorded. An attempt that the file does not contain has no billed cost. Of a folder
    with several runs of an export, the newest counts, by their manifests; otherwise charges in two files are refused.

    An attempt is compared once its job is closed and its charges cover all of its time; the ledger then contains the
    difference as an adjustment. Amounts are for whole attempts. `gpubroker report charges fetch --help` describes where
    charges come from.
    """
    from broker.app.billing.charges import compare_export
    from broker.app.results.charges import BilledReport
    from broker.app.use_cases.money import billed as use_case
    from broker.cli.billing import report_view

    terminal = Terminal.of(context)
    terminal.only_here({"--focus": focus})
    report_period = period.wanted(terminal.now())
    if focus is not None and report_period != type(report_period)():
        raise InvalidInput("the file sets the period", where="--focus", hint="remove --period, --since and --until")
    if focus is not None:
        report = BilledReport.of(compare_export(terminal.broker(), focus), by, None, None, "UTC")
    else:
        report = terminal.ask(use_case, report_period, by)
    terminal.result(report, lambda: report_view.billed_lines(terminal.out, report))


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
    _show_charges(terminal, use_case.fetch(terminal.broker(), provider))


@charges.command("import", epilog=examples("gpubroker report charges import vast-2026-11.csv --provider vast"))
def import_(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="CSV with a header: key,starts,ends,amount (or day for the times).")
    ],
    provider: Annotated[
        str, typer.Option("--provider", "-p", help="Provider of the charges, if no column names it.")
    ] = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="A corrected bill: replace the charges imported before for that time.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Import provider charges from a CSV file, and adjust the ledger. Importing the same file again changes nothing.

    With --replace, the file replaces the charges of its provider (and account) from its first to its last charge. Two
    parts of one bill are imported with another account each.

    Columns: key (of the attempt, as in its machine's name: train-k3v9qz-1; empty for charges that are not
    gpubroker's), starts and ends (ISO 8601, UTC) or day, amount (USD); optional: provider, account, line (distinguishes
    charges for the same time), estimated (yes for charges that may still change).
    """
    from broker.app.billing import charges as use_case

    terminal = Terminal.of(context)
    _show_charges(terminal, use_case.import_file(terminal.broker(), file, provider, replace=replace))


def _show_charges(terminal: Terminal, result: ChargesResult) -> None:
    from broker.cli.billing import report_view

    terminal.result(result, lambda: report_view.charges_lines(result))
    if result.unknown:
        keys_text = join_names(result.unknown, _MAX_NAMED)
        terminal.say(f"warning: no attempt in this store had the key {keys_text} then; their cost is not assigned")
    for name, reason in result.trouble.items():
        terminal.say(f"{name} could not be queried: {reason}")
    if result.trouble:
        raise typer.Exit(5)


SHOWBACK_EXAMPLES = examples(
    "gpubroker report showback --month 2026-11",
    "gpubroker report showback --month 2026-11 --idle proportional",
    "gpubroker report showback --month 2026-11 --shared even --shared-team platform",
    "gpubroker report showback --month 2026-11 --idle fixed --fixed nlp=60,web=40 --json",
)
CHARGEBACK_EXAMPLES = examples(
    "gpubroker report chargeback",
    "gpubroker report chargeback --month 2026-10 --freeze --idle proportional",
    "gpubroker report chargeback --month 2026-10",
    "gpubroker report chargeback --month 2026-10 --json",
)
_RULE_NAMES = "separate, proportional, even or fixed."

Month = Annotated[str, typer.Option("--month", metavar="MONTH", help=MONTH_HELP)]


@dataclass(frozen=True)
class SharingOptions:
    """Options: how idle and shared cost are divided."""

    idle: Annotated[
        str, typer.Option("--idle", metavar="RULE", help=f"How idle capacity is divided: {_RULE_NAMES}")
    ] = "separate"
    shared: Annotated[
        str, typer.Option("--shared", metavar="RULE", help=f"How the cost of shared teams is divided: {_RULE_NAMES}")
    ] = "separate"
    shared_team: Annotated[
        list[str] | None,
        typer.Option("--shared-team", metavar="TEAM", help="A team whose cost is for everybody. Repeatable."),
    ] = None
    fixed: Annotated[
        str | None, typer.Option("--fixed", metavar="TEAM=N,…", help="Weights of a fixed rule, whole numbers.")
    ] = None

    def stated(self) -> Sharing:
        """As the use cases take them."""
        from broker.app.billing.showback import Sharing

        return Sharing(**asdict(self))


@expand_options
def showback(
    context: typer.Context,
    sharing: SharingOptions,
    month: Month = "month",
    timezone: Timezone = None,
    as_json: AsJson = False,
) -> None:
    """Show the cost of each team's use in a month: cash, amortized cost of prepaid capacity, and its share of idle and
    shared cost.

    With `proportional`, idle capacity is divided by the use of owned and reserved capacity, and shared cost by each
    team's spending. An amount that no team bears, and spending without a team, have rows of their own. The rows add up
    to the total, to the micro-dollar.
    """
    from broker.app.use_cases.money import showback as use_case
    from broker.cli.billing import report_view

    terminal = Terminal.of(context)
    report = terminal.ask(use_case, sharing.stated(), month, timezone)
    terminal.result(report, lambda: report_view.showback_lines(terminal.out, report))


@expand_options
def chargeback(
    context: typer.Context,
    sharing: SharingOptions,
    month: Annotated[
        str | None, typer.Option("--month", metavar="MONTH", help=f"{MONTH_HELP} Without: list statements.")
    ] = None,
    freeze: Annotated[
        bool, typer.Option("--freeze", help="Freeze the statement of a closed month permanently.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Freeze or show the statement of a closed month: what each team is charged.

    A month closes three days after its end. Its statement never changes; later entries for the month are charged to the
    team as a correction with the statement that is frozen next. So all statements together equal the ledger. All are in
    one time zone, that of the policy when the first one was made. The rules
    are those of `report showback`, and are given when the statement is frozen. Through a server, freezing needs a token
    with the scope `statements` of an administrator.
    """
    from broker.app.use_cases import money
    from broker.cli.billing import report_view

    terminal = Terminal.of(context)
    if not freeze and sharing != SharingOptions():
        raise InvalidInput("rules are given when a statement is made", where="--idle", hint="add --freeze")
    if month is None:
        if freeze:
            raise InvalidInput("the month is missing", where="--month", hint="--month 2026-10")
        statement_list = terminal.ask(money.statements)
        terminal.result(statement_list, lambda: report_view.statement_list_lines(statement_list))
        return
    if freeze:
        statement = terminal.ask(money.freeze_statement, month, sharing.stated())
    else:
        statement = terminal.ask(money.statement, month)
    terminal.result(statement, lambda: report_view.statement_lines(terminal.out, statement))
