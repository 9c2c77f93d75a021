"""`gpubroker budget`: what each budget grants, has spent, holds and has left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import UnknownName

if TYPE_CHECKING:
    from broker.app.policies import BudgetLine

app = typer.Typer(no_args_is_help=True, help="What each budget grants, has spent, holds and has left.")

_NONE = "no budget is in force: nothing that costs real money is launched; see `gpubroker policy apply --help`"


def _budgets(terminal: Terminal) -> list[BudgetLine]:
    from broker.app import policies

    broker = terminal.broker()
    terminal.adopt()
    return policies.budgets(broker)


@app.command("list", epilog=examples("gpubroker budget list", "gpubroker budget list --json"))
def list_budgets(context: typer.Context, as_json: AsJson = False) -> None:
    """Every budget in its current period."""
    from broker.cli import policy_view as view

    terminal = Terminal.of(context)
    found = _budgets(terminal)
    if as_json:
        terminal.answer({"budgets": [view.budget_json(line) for line in found]})
    else:
        terminal.show(*(view.budget_table(terminal.out, found) if found else [_NONE]))


@app.command(epilog=examples("gpubroker budget show", "gpubroker budget show nlp-monthly --json"))
def show(
    context: typer.Context,
    budget: Annotated[str | None, typer.Argument(metavar="NAME", help="A budget's name; all when left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """One budget: its period, limit, what is spent, held and left, whom it is for and where it is written."""
    from broker.cli import policy_view as view
    from broker.cli import words

    terminal = Terminal.of(context)
    found = _budgets(terminal)
    chosen = [line for line in found if budget in (None, line.spec.id)]
    if budget is not None and not chosen:
        raise UnknownName("budget", budget, [line.spec.id for line in found])
    if as_json:
        documents = [view.budget_json(line) for line in chosen]
        terminal.answer({"budgets": documents} if budget is None else documents[0])
        return
    terminal.show(*(view.budget_table(terminal.out, chosen) if chosen else [_NONE]))
    for line in chosen:
        terminal.show(
            f"{line.spec.id}: for {view.scope_words(line.spec)}; {words.moment(line.use.period_start)} to "
            f"{words.moment(line.use.period_end)}; written in {line.source}"
        )
