"""`gpubroker report billed` and `gpubroker report charges`: quoted, metered and billed cost.

`gpubroker report showback`: what each team's use cost, and what it is charged.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import filters
from broker.cli.options import MONTH_HELP, AsJson, Timezone, examples, expand_options
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.core.values.figures import join_names

if TYPE_CHECKING:
    from broker.app.billing.charge_documents import ChargesResult
    from broker.app.billing.showback import Sharing


BILLED_EXAMPLES = examples(
    "gpubroker report billed",
    "gpubroker report billed --by job --period last-month",
    "gpubroker report billed --from 2026-11-01 --to 2026-12-01 --json",
    "gpubroker report billed --focus aws-2026-11.csv --by attempt",
)
_MAX_NAMED = 5


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
    difference as an adjustment. Amounts are for whole attempts. `gpubroker report charges --help` describes where
    charges come from.
    """
    from broker.app.billing.charge_documents import BilledReport
    from broker.app.billing.charges import compare_export
    from broker.app.use_cases.money import billed as use_case
    from broker.cli.billing import report_view

    terminal = Terminal.of(context)
    terminal.only_here({"--focus": focus})
    report_period = period.report_period(terminal.now())
    if focus is not None and report_period != type(report_period)():
        raise InvalidInput("the file sets the period", where="--focus", hint="remove --period, --since and --until")
    if focus is not None:
        report = BilledReport.of(compare_export(terminal.broker(), focus), by, None, None, "UTC")
    else:
        report = terminal.ask(use_case, report_period, by)
    terminal.result(report, lambda: report_view.billed_lines(terminal.out, report))


CHARGES_EXAMPLES = examples(
    "gpubroker report charges",
    "gpubroker report charges --provider aws --json",
    "gpubroker report charges vast-2026-11.csv --provider vast",
    "gpubroker report charges scaleway-2026-11.csv --provider scaleway --rate EUR=1.0821@2026-11-30",
)


def charges(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Import this CSV file: key,starts,ends,amount (or day for the times); or this FOCUS export.",
        ),
    ] = None,
    provider: Annotated[
        str, typer.Option("--provider", "-p", help="Only this provider; of a FILE without a column that names it.")
    ] = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="A corrected bill: replace the charges imported before for that time.")
    ] = False,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate", metavar="EUR=USD@DAY", help="The rate of an invoice in another currency: EUR=1.0821@2026-11-30."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch charges from the providers that report them (aws, azure), or import FILE, and adjust the ledger.

    AWS bills $0.01 per request. `gpubroker serve` fetches once a day. Machines are identified by their tag gpubroker;
    on AWS, activate it once as a cost allocation tag (Billing console).

    Importing the same file again changes nothing. With --replace, the file replaces the charges of its provider (and
    account) from its first to its last charge. Two parts of one bill are imported with another account each.

    Columns: key (of the attempt, as in its machine's name: train-k3v9qz-1; empty for charges that are not
    gpubroker's), starts and ends (ISO 8601, UTC) or day, amount; optional: currency (default: USD), provider, account,
    line (distinguishes charges for the same time), estimated (yes for charges that may still change). Or an export as
    FOCUS: CSV (also .csv.gz), Parquet, or a folder of them; with --provider only its rows.
    """
    from broker.app.billing import charges as use_case
    from broker.app.billing.charges_file import ExchangeRate

    terminal = Terminal.of(context)
    if file is not None:
        exchange = ExchangeRate.parse(rate) if rate is not None else None
        _show_charges(terminal, use_case.import_file(terminal.broker(), file, provider, exchange, replace=replace))
        return
    if replace or rate is not None:
        option = "--replace" if replace else "--rate"
        raise InvalidInput(f"{option} belongs to a FILE", hint=f"gpubroker report charges FILE {option}")
    _show_charges(terminal, use_case.fetch(terminal.broker(), provider))


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
    "gpubroker report showback --month 2026-11 --shared even --shared-team platform",
    "gpubroker report showback --month 2026-11 --idle fixed --fixed nlp=60,web=40 --json",
    "gpubroker report showback --month 2026-10 --freeze --idle proportional",
    "gpubroker report showback --month 2026-10 --frozen",
    "gpubroker report showback --frozen",
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

    def to_sharing(self) -> Sharing:
        """As the use cases take them."""
        from broker.app.billing.showback import Sharing

        return Sharing(**asdict(self))


@expand_options
def showback(
    context: typer.Context,
    sharing: SharingOptions,
    month: Annotated[
        str | None, typer.Option("--month", metavar="MONTH", help=f"{MONTH_HELP} Default: this month.")
    ] = None,
    freeze: Annotated[
        bool,
        typer.Option("--freeze", help="Charge the teams for a closed month: freeze its statement permanently."),
    ] = False,
    frozen: Annotated[
        bool,
        typer.Option("--frozen", help="Show the frozen statement of the month; without --month, list all of them."),
    ] = False,
    timezone: Timezone = None,
    as_json: AsJson = False,
) -> None:
    """Show the cost of each team's use in a month: cash, amortized cost of prepaid capacity, and its share of idle and
    shared cost.

    With `proportional`, idle capacity is divided by the use of owned and reserved capacity, and shared cost by each
    team's spending. An amount that no team bears, and spending without a team, have rows of their own. The rows add up
    to the total, to the micro-dollar.

    A month closes three days after its end; --freeze then charges its teams by these rules. That statement never
    changes; later entries for the month are charged as a correction with the statement that is frozen next. So all
    statements together equal the ledger. All are in one time zone, that of the policy when the first one was made.
    Through a server, freezing needs a token with the scope `statements` of an administrator.
    """
    from broker.app.use_cases import money
    from broker.cli.billing import report_view

    terminal = Terminal.of(context)
    if freeze and frozen:
        raise InvalidInput("--freeze makes a statement, --frozen shows one: remove one of them")
    if freeze and month is None:
        raise InvalidInput("the month is missing", where="--month", hint="--month 2026-10")
    if (freeze or frozen) and timezone is not None:
        raise InvalidInput("statements have the time zone of the first one", where="--timezone", hint="leave it out")
    if frozen and sharing != SharingOptions():
        raise InvalidInput("rules are given when a statement is made", where="--idle", hint="--freeze makes it")
    if frozen and month is None:
        statement_list = terminal.ask(money.statements)
        terminal.result(statement_list, lambda: report_view.statement_list_lines(statement_list))
    elif month is not None and (freeze or frozen):
        ask = (money.freeze_statement, month, sharing.to_sharing()) if freeze else (money.statement, month)
        statement = terminal.ask(*ask)
        terminal.result(statement, lambda: report_view.statement_lines(terminal.out, statement))
    else:
        report = terminal.ask(money.showback, sharing.to_sharing(), month or "month", timezone)
        terminal.result(report, lambda: report_view.showback_lines(terminal.out, report))
