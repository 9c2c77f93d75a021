"""`gpubroker report showback` and `chargeback`: what each team's use cost, and what it is charged."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from broker.cli.gathered import gathered
from broker.cli.options import MONTH_HELP, AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

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
_RULES = "separate, proportional, even or fixed."

Month = Annotated[str, typer.Option("--month", metavar="MONTH", help=MONTH_HELP)]


@dataclass(frozen=True)
class Sharing:
    """Options: how idle and shared cost are divided."""

    idle: Annotated[str, typer.Option("--idle", metavar="RULE", help=f"How idle capacity is divided: {_RULES}")] = (
        "separate"
    )
    shared: Annotated[
        str, typer.Option("--shared", metavar="RULE", help=f"How the cost of shared teams is divided: {_RULES}")
    ] = "separate"
    shared_team: Annotated[
        list[str] | None,
        typer.Option("--shared-team", metavar="TEAM", help="A team whose cost is for everybody. Repeatable."),
    ] = None
    fixed: Annotated[
        str | None, typer.Option("--fixed", metavar="TEAM=N,…", help="Weights of a fixed rule, whole numbers.")
    ] = None

    @property
    def given(self) -> dict[str, str | list[str]]:
        """The options that have a value, by name."""
        return {name: value for name, value in asdict(self).items() if value}


@gathered
def showback(context: typer.Context, sharing: Sharing, month: Month = "month", as_json: AsJson = False) -> None:
    """Show the cost of each team's use in a month: cash, amortised cost of prepaid capacity, and its share of idle and
    shared cost.

    With `proportional`, idle capacity is divided by the use of owned and reserved capacity, and shared cost by each
    team's spending. An amount that no team bears, and spending without a team, have rows of their own. The rows add up
    to the total, to the micro-dollar.
    """
    from broker.app.billing.showback import sharing_rules, shown
    from broker.app.results.reports import ShowbackReport
    from broker.cli.billing import report_view

    terminal = Terminal.of(context)
    if terminal.through_server:
        found = terminal.api.fetch(ShowbackReport, "/reports/showback", month=month, **sharing.given)
    else:
        found = shown(terminal.broker(), month, sharing_rules(**asdict(sharing)))
    terminal.result(found, lambda: report_view.showback(terminal.out, found))


@gathered
def chargeback(
    context: typer.Context,
    sharing: Sharing,
    month: Annotated[
        str | None, typer.Option("--month", metavar="MONTH", help=f"{MONTH_HELP} Without: list statements.")
    ] = None,
    freeze: Annotated[bool, typer.Option("--freeze", help="Make the statement of a closed month, for good.")] = False,
    as_json: AsJson = False,
) -> None:
    """Freeze or show the statement of a closed month: what each team is charged.

    A month closes three days after its end. Its statement never changes; later entries for the month are charged to the
    team as a correction with the statement that is frozen next. So all statements together equal the ledger. The rules
    are those of `report showback`, and are given when the statement is frozen. Through a server, freezing needs a token
    with the scope `statements` of an administrator.
    """
    from broker.app.billing import showback as use_case
    from broker.app.results.reports import ChargebackList, ChargebackStatement
    from broker.cli.billing import report_view

    terminal, at = Terminal.of(context), "/reports/chargeback"
    if not freeze and sharing != Sharing():
        raise InvalidInput("rules are given when a statement is made", where="--idle", hint="add --freeze")
    if month is None:
        if freeze:
            raise InvalidInput("the month is missing", where="--month", hint="--month 2026-10")
        if terminal.through_server:
            listed = terminal.api.fetch(ChargebackList, at)
        else:
            listed = use_case.statements(terminal.broker())
        terminal.result(listed, lambda: report_view.statements(listed))
        return
    if terminal.through_server and freeze:
        found = terminal.api.request(ChargebackStatement, f"{at}/{month}", sharing.given)
    elif terminal.through_server:
        found = terminal.api.fetch(ChargebackStatement, f"{at}/{month}")
    elif freeze:
        rules = use_case.sharing_rules(**asdict(sharing))
        found = use_case.freeze(terminal.broker(), month, rules, by=terminal.actor)
    else:
        found = use_case.charged(terminal.broker(), month)
    terminal.result(found, lambda: report_view.statement(terminal.out, found))
