"""`gpubroker advise rules`: quoted rules of thumb compared with the arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.advise import inputs
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from broker.app.results.cost_advice import RulesAdvice

EXAMPLES = examples("gpubroker advise rules", "gpubroker advise rules --failing", "gpubroker advise rules --json")


def rules(
    context: typer.Context,
    failing: Annotated[bool, typer.Option("--failing", help="Only rules that do not hold.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare quoted rules of thumb with the arithmetic and current prices: where they hold, and where they fail.

    Each rule is shown with the command that computes it for your own figures.
    """
    from broker.app.advise.quoted import market_figures
    from broker.app.results.cost_advice import RulesAdvice
    from broker.economics.quoted import quoted_rules

    terminal = Terminal.of(context)
    thumb = inputs.thumb(context)
    figures = market_figures(inputs.market(terminal))
    notes = [
        f"prices of {len(figures.on_demand)} accelerators; list prices count where no live one is known",
        "a rule holds for the figures shown, not for every case",
    ]
    every = quoted_rules(figures, thumb)
    found = RulesAdvice(rules_of_thumb=[one for one in every if not failing or one.holds is False], assumptions=notes)
    terminal.result(found, lambda: _screen(found))


def _screen(found: RulesAdvice) -> Iterator[RenderableType]:
    from rich.text import Text

    from broker.cli.advise import view
    from broker.cli.render.tables import hanging
    from broker.economics.quoted import failing

    rules = found.rules_of_thumb
    yield view.heading(f"{failing(rules)} of {len(rules)} quoted rules do not hold")
    topic = ""
    for one in rules:
        if one.topic != topic:
            topic = one.topic
            yield Text(topic.capitalize(), "bold cyan")
        holds = {True: ("holds", "green"), False: ("does not hold", "bold red"), None: ("not known", "yellow")}
        yield hanging(Text.assemble(f"· {one.rule}: ", holds[one.holds]), 2)
        yield hanging(Text(one.says), 4)
        if one.holds is False and one.fails:
            yield hanging(Text(f"why: {one.fails}"), 4)
        yield hanging(Text(one.command, "dim"), 4)
    yield from view.assumptions(found.assumptions)
