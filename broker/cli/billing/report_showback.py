"""`gpubroker report showback` and `chargeback`: what each team's use cost, and what it is charged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.options import MONTH_HELP, AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.app.results.showback import CorrectionResult, TeamCostResult

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

IdleRule = Annotated[str, typer.Option("--idle", metavar="RULE", help=f"How idle capacity is divided: {_RULES}")]
SharedRule = Annotated[
    str, typer.Option("--shared", metavar="RULE", help=f"How the cost of shared teams is divided: {_RULES}")
]
SharedTeams = Annotated[
    list[str] | None,
    typer.Option("--shared-team", metavar="TEAM", help="A team whose cost is for everybody. Repeatable."),
]
Fixed = Annotated[
    str | None, typer.Option("--fixed", metavar="TEAM=N,…", help="Weights of a fixed rule, whole numbers.")
]


def showback(
    context: typer.Context,
    month: Annotated[str, typer.Option("--month", metavar="MONTH", help=MONTH_HELP)],
    idle: IdleRule = "separate",
    shared: SharedRule = "separate",
    shared_team: SharedTeams = None,
    fixed: Fixed = None,
    as_json: AsJson = False,
) -> None:
    """Show the cost of each team's use in a month: cash, amortised cost of prepaid capacity, and its share of idle and
    shared cost.

    With `proportional`, idle capacity is divided by the use of owned and reserved capacity, and shared cost by each
    team's spending. An amount that no team bears, and spending without a team, have rows of their own. The rows add up
    to the total, to the micro-dollar.
    """
    from broker.app.billing.showback import sharing_rules, shown
    from broker.app.results.showback import ShowbackReport
    from broker.cli.render import formats

    terminal = Terminal.of(context)
    found = ShowbackReport.of(shown(terminal.broker(), month, sharing_rules(idle, shared, shared_team or (), fixed)))
    if as_json:
        terminal.answer(found)
        return
    terminal.show(*_table(terminal, found.rows, found.total))
    for team, amount in found.held.items():
        terminal.show(f"{team} holds {formats.money(amount)} more for jobs")
    if found.bought:
        terminal.show(f"bought in advance, charged to nobody: {formats.money(found.bought)}")
    if not found.over:
        terminal.show(f"{found.month} is not over: this is what is known so far")


def chargeback(
    context: typer.Context,
    month: Annotated[
        str | None, typer.Option("--month", metavar="MONTH", help=f"{MONTH_HELP} Without: list statements.")
    ] = None,
    freeze: Annotated[bool, typer.Option("--freeze", help="Make the statement of a closed month, for good.")] = False,
    idle: IdleRule = "separate",
    shared: SharedRule = "separate",
    shared_team: SharedTeams = None,
    fixed: Fixed = None,
    as_json: AsJson = False,
) -> None:
    """Freeze or show the statement of a closed month: what each team is charged.

    A month closes three days after its end. Its statement never changes; later entries for the month are charged to the
    team as a correction with the statement that is frozen next. So all statements together equal the ledger. The rules
    are those of `report showback`, and are given when the statement is frozen.
    """
    from broker.app.billing.showback import charged, sharing_rules, statements
    from broker.app.billing.showback import freeze as frozen
    from broker.app.results.showback import ChargebackList, ChargebackStatement
    from broker.cli.render import formats

    terminal = Terminal.of(context)
    broker, rules = terminal.broker(), sharing_rules(idle, shared, shared_team or (), fixed)
    if not freeze and (idle, shared, shared_team, fixed) != ("separate", "separate", None, None):
        raise InvalidInput("rules are given when a statement is made", where="--idle", hint="add --freeze")
    if month is None:
        if freeze:
            raise InvalidInput("the month is missing", where="--month", hint="--month 2026-10")
        listed = ChargebackList.of(statements(broker))
        if as_json:
            terminal.answer(listed)
            return
        lines = [
            f"{one.month}: {formats.money(one.charged)}, frozen {formats.moment(one.frozen_at)} by {one.frozen_by}"
            for one in listed.statements
        ]
        terminal.show(*(lines or ["no month is frozen yet: gpubroker report chargeback --month YYYY-MM --freeze"]))
        return
    done = frozen(broker, month, rules, by=terminal.actor) if freeze else charged(broker, month)
    found = ChargebackStatement.of(done)
    if as_json:
        terminal.answer(found)
        return
    terminal.show(*_table(terminal, found.rows, found.total))
    terminal.show(*(_correction(one, f"for {one.month}") for one in found.corrections))
    terminal.show(
        f"charged for {found.month}: {formats.money(found.charged)}, frozen {formats.moment(found.frozen_at)} by"
        f" {found.frozen_by}"
    )
    terminal.show(
        *(_correction(one, f"charged with {one.billed_in or 'the next statement'}") for one in found.corrected_since)
    )


def _correction(one: CorrectionResult, about: str) -> str:
    from broker.cli.render import formats

    return f"correction {about}: {one.team} {formats.money(one.amount)}"


def _table(terminal: Terminal, rows: Sequence[TeamCostResult], total: TeamCostResult) -> list[Any]:
    from broker.cli.render import formats
    from broker.cli.render.tables import Column, fitted

    if not rows:
        return ["nothing was spent in this month"]
    columns = (
        Column("team"),
        *(Column(name, align="right") for name in ("cash", "amortised")),
        *(Column(name, rank, align="right") for name, rank in (("on own", 2), ("rented", 1))),
        *(Column(name, align="right") for name in ("idle", "shared", "total")),
    )

    def cells(row: TeamCostResult) -> list[Any]:
        amounts = (row.cash, row.amortised, row.on_own, row.rented, row.idle, row.shared, row.total)
        return [row.team, *(formats.money(amount) for amount in amounts)]

    return fitted(terminal.out, columns, [cells(row) for row in rows], f"total {formats.money(total.total)}")
