"""The option of charts, and their drawing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from broker.cli.render.charts.chart import Chart
    from broker.cli.terminal import Terminal

_WIDEST = 200  # columns of a chart on a terminal
_PIPED = 100  # columns of a chart in a file or a pipe


@dataclass(frozen=True)
class Drawing:
    """Whether the charts are drawn."""

    chart: Annotated[bool, typer.Option("--chart", help="Draw the chart in the terminal.")] = False


def draw(terminal: Terminal, charts: Callable[[], Sequence[Chart]], drawing: Drawing) -> None:
    """Draw the charts in the terminal, if the option says so."""
    if not drawing.chart:
        return
    from rich.text import Text

    from broker.cli.render.charts.terminal import in_terminal

    figures = list(charts())
    console = terminal.err if terminal.as_json else terminal.out
    width = min(console.width, _WIDEST) if console.is_terminal else _PIPED
    colour = console.is_terminal and not console.no_color
    names = [name for each in figures for name in each.names]
    drawn = (in_terminal(each, width=width, colour=colour, names=names) for each in figures)
    terminal.show(*map(Text.from_ansi, drawn))
