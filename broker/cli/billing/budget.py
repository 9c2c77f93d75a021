"""`gpubroker budget`: limit, spent, held, left and forecast of each budget."""

from typing import Annotated

import typer

from broker.cli.drawing import Drawing, draw
from broker.cli.options import AsJson, examples, expand_options
from broker.cli.terminal import Terminal

EXAMPLES = examples(
    "gpubroker budget",
    "gpubroker budget nlp-monthly",
    "gpubroker budget nlp-monthly --chart",
    "gpubroker budget nlp-monthly --json",
)

_NO_BUDGET_TEXTS = {
    False: "no budget is active: nothing that costs real money is launched; see `gpubroker policy apply --help`",
    True: "no budget counts only jobs of teams that you may see",
}
"""Messages for an empty list: locally, and through a server."""


@expand_options
def budget(
    context: typer.Context,
    drawing: Drawing,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show details of this budget.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the budgets: period, limit, spent, held, left and forecast.

    With NAME, also its scope and alerts, and the money held by each job in each period. A server shows the budgets
    that count only jobs of teams that you may see.
    """
    from broker.app.use_cases import money
    from broker.cli.billing import budget_view

    terminal = Terminal.of(context)
    terminal.adopt()
    listing = terminal.ask(money.list_budgets) if name is None else None
    names = [name] if name is not None else [row.id for row in listing.budgets] if listing and drawing.chart else []
    details = [terminal.ask(money.show_budget, budget_name, by_day=drawing.chart) for budget_name in names]
    draw(terminal, lambda: [budget_view.budget_chart(row) for row in details], drawing)
    if listing is None:
        terminal.result(details[0], lambda: budget_view.budget_lines(terminal.out, details[0]))
        return
    empty_text = _NO_BUDGET_TEXTS[terminal.through_server]
    terminal.result(listing, lambda: budget_view.budget_table(terminal.out, listing.budgets, empty_text))
