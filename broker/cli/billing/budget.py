"""`gpubroker budget`: limit, spent, held, left and forecast of each budget."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.option_groups import expand_options
from broker.cli.options import AsJson, examples
from broker.cli.render.figures import Drawing, draw
from broker.cli.terminal import Terminal

app = typer.Typer(no_args_is_help=True, help="Show budgets: limit, spent, held, left and forecast.")

_NO_BUDGET_TEXTS = {
    False: "no budget is active: nothing that costs real money is launched; see `gpubroker policy apply --help`",
    True: "no budget counts only jobs of teams that you may see",
}
"""Messages for an empty list: locally, and through a server."""


@app.command("list", epilog=examples("gpubroker budget list", "gpubroker budget list --json"))
def list_budgets(context: typer.Context, as_json: AsJson = False) -> None:
    """List all budgets with their current period. Through a server: those that count only jobs of your teams."""
    from broker.app.use_cases.money import list_budgets as use_case
    from broker.cli.billing import budget_view

    terminal = Terminal.of(context)
    terminal.adopt()
    listing = terminal.ask(use_case)
    terminal.result(
        listing,
        lambda: budget_view.budget_table(terminal.out, listing.budgets, _NO_BUDGET_TEXTS[terminal.through_server]),
    )


@app.command(
    epilog=examples(
        "gpubroker budget show",
        "gpubroker budget show nlp-monthly --chart",
        "gpubroker budget show nlp-monthly --json",
    )
)
@expand_options
def show(
    context: typer.Context,
    drawing: Drawing,
    budget: Annotated[str | None, typer.Argument(metavar="NAME", help="Budget name. Default: all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show one budget: period, limit, spent, held (by job and period), left, forecast, scope and alerts."""
    from broker.app.results.budgets import BudgetDetailsList
    from broker.app.use_cases import money
    from broker.cli.billing import budget_view

    terminal = Terminal.of(context)
    terminal.adopt()
    names = [row.id for row in terminal.ask(money.list_budgets).budgets] if budget is None else [budget]
    details = [terminal.ask(money.show_budget, name, by_day=drawing.chart) for name in names]
    draw(terminal, lambda: [budget_view.budget_chart(budget_row) for budget_row in details], drawing)
    document = BudgetDetailsList(budgets=details) if budget is None else details[0]
    terminal.result(
        document, lambda: budget_view.budget_lines(terminal.out, details, _NO_BUDGET_TEXTS[terminal.through_server])
    )
