"""`gpubroker budget`: limit, spent, held, left and forecast of each budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.render.figures import Drawing, draw
from broker.cli.terminal import Terminal
from broker.core.errors import UnknownName

if TYPE_CHECKING:
    from broker.app.billing.budgets import BudgetLine
    from broker.app.wiring import Broker

app = typer.Typer(no_args_is_help=True, help="Show budgets: limit, spent, held, left and forecast.")

_NONE = "no budget is active: nothing that costs real money is launched; see `gpubroker policy apply --help`"


def _budgets(terminal: Terminal) -> tuple[Broker, list[BudgetLine]]:
    from broker.app.billing.budgets import budgets

    broker = terminal.broker()
    terminal.adopt()
    return broker, budgets(broker)


@app.command("list", epilog=examples("gpubroker budget list", "gpubroker budget list --json"))
def list_budgets(context: typer.Context, as_json: AsJson = False) -> None:
    """List all budgets with their current period."""
    from broker.app.results.budgets import BudgetList, BudgetResult
    from broker.cli.billing import budget_view

    terminal = Terminal.of(context)
    _, found = _budgets(terminal)
    terminal.result(
        lambda: BudgetList(budgets=[BudgetResult.of(line) for line in found]),
        lambda: budget_view.table(terminal.out, found) if found else [_NONE],
    )


@app.command(
    epilog=examples(
        "gpubroker budget show",
        "gpubroker budget show nlp-monthly --chart",
        "gpubroker budget show nlp-monthly --picture budget.html",
        "gpubroker budget show nlp-monthly --json",
    )
)
@gathered
def show(
    context: typer.Context,
    drawing: Drawing,
    budget: Annotated[str | None, typer.Argument(metavar="NAME", help="Budget name. Default: all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show one budget: period, limit, spent, held (by job and period), left, forecast, scope and alerts."""
    from broker.app.billing.budgets import days, notices_about, spent_on_own
    from broker.cli.billing import budget_view
    from broker.cli.jobs import held_view

    terminal = Terminal.of(context)
    broker, found = _budgets(terminal)
    chosen = [line for line in found if budget in (None, line.spec.id)]
    if budget is not None and not chosen:
        raise UnknownName("budget", budget, [line.spec.id for line in found])
    told = {line.spec.id: notices_about(broker, line.spec.id) for line in chosen}
    own = {line.spec.id: spent_on_own(broker, line) for line in chosen}
    charts = lambda: [budget_view.chart(line, days(broker, line)) for line in chosen]  # noqa: E731  # drawn on demand
    draw(terminal, charts, drawing)
    if as_json:
        from broker.app.results.budgets import BudgetDetails, BudgetDetailsList

        results = [BudgetDetails.told(line, told[line.spec.id], own[line.spec.id]) for line in chosen]
        terminal.answer(BudgetDetailsList(budgets=results) if budget is None else results[0])
        return
    terminal.show(*(budget_view.table(terminal.out, chosen) if chosen else [_NONE]))
    for line in chosen:
        name = line.spec.id
        terminal.show(*budget_view.story(line, told[name], own[name]), *held_view.by_job(terminal.out, line))
