"""The option of charts, and their drawing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from broker.cli.render.charts.chart import Chart

_MAX_WIDTH = 200  # columns of a chart on a terminal
_PIPE_WIDTH = 100  # columns of a chart in a file or a pipe


@dataclass(frozen=True)
class Drawing:
    """Whether the charts are drawn."""

    chart: Annotated[bool, typer.Option("--chart", help="Draw the chart in the terminal.")] = False


def draw(terminal: Terminal, charts: Callable[[], Sequence[Chart]], drawing: Drawing) -> None:
    """Draw the charts in the terminal, if the option says so."""
    if not drawing.chart:
        return
    from broker.cli.render.charts.terminal import render_chart

    chart_list = list(charts())
    console = terminal.err if terminal.as_json else terminal.out
    width = min(console.width, _MAX_WIDTH) if console.is_terminal else _PIPE_WIDTH
    color = console.is_terminal and not console.no_color
    names = [name for chart in chart_list for name in chart.names]
    rendered = (render_chart(chart, width=width, color=color, names=names) for chart in chart_list)
    terminal.show(*map(Text.from_ansi, rendered))
