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
    from broker.app.billing.budgets import budget_list
    from broker.app.results.budgets import BudgetList
    from broker.cli.billing import budget_view

    terminal = Terminal.of(context)
    if terminal.through_server:
        listing = terminal.api.fetch(BudgetList, "/budgets")
    else:
        terminal.adopt()
        listing = budget_list(terminal.broker())
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
    from urllib.parse import quote

    from broker.app.billing.budgets import budget_details
    from broker.app.results.budgets import BudgetDetails, BudgetDetailsList, BudgetList
    from broker.cli.billing import budget_view

    terminal = Terminal.of(context)
    if terminal.through_server:
        all_budgets = () if budget is not None else terminal.api.fetch(BudgetList, "/budgets").budgets
        names = [budget_row.id for budget_row in all_budgets] if budget is None else [budget]
        paths = [f"/budgets/{quote(name, safe='')}" for name in names]
        details = [terminal.api.fetch(BudgetDetails, path, by_day=drawing.chart) for path in paths]
    else:
        terminal.adopt()
        details = budget_details(terminal.broker(), budget, by_day=drawing.chart)
    draw(terminal, lambda: [budget_view.budget_chart(budget_row) for budget_row in details], drawing)
    document = BudgetDetailsList(budgets=details) if budget is None else details[0]
    terminal.result(
        document, lambda: budget_view.budget_lines(terminal.out, details, _NO_BUDGET_TEXTS[terminal.through_server])
    )
