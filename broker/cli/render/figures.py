"""Shared by commands that draw: the options of charts, and drawing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from broker.cli.render.charts.chart import Chart
    from broker.cli.terminal import Terminal

_WIDEST = 200  # columns of a chart on a terminal
_PIPED = 100  # columns of a chart in a file or a pipe

ShowChart = Annotated[bool, typer.Option("--chart", help="Draw the chart in the terminal.")]
Picture = Annotated[
    Path | None, typer.Option("--picture", metavar="FILE", help="Write the chart to a file: .html, .png or .svg.")
]
Force = Annotated[bool, typer.Option("--force", help="Let --picture overwrite a file that is not a gpubroker chart.")]


@dataclass(frozen=True)
class Drawing:
    """Options of charts: which, and where to."""

    chart: ShowChart = False
    picture: Picture = None
    force: Force = False

    @property
    def asked(self) -> bool:
        """Whether any chart is to be drawn."""
        return self.chart or self.picture is not None


def draw(terminal: Terminal, charts: Callable[[], Sequence[Chart]], drawing: Drawing) -> None:
    """Write the charts to a file, or draw them in the terminal, as the options say. Raises `InvalidInput` for a file
    that must not be overwritten."""
    if not drawing.asked:
        return
    figures = list(charts())
    if drawing.picture is not None:
        from broker.cli.render.charts.picture import write_picture

        write_picture(figures, drawing.picture, replace=drawing.force)
        terminal.say(f"wrote {drawing.picture}")
    if drawing.chart:
        from rich.text import Text

        from broker.cli.render.charts.terminal import in_terminal

        console = terminal.err if terminal.as_json else terminal.out
        width = min(console.width, _WIDEST) if console.is_terminal else _PIPED
        colour = console.is_terminal and not console.no_color
        names = [name for each in figures for name in each.names]
        drawn = (in_terminal(each, width=width, colour=colour, names=names) for each in figures)
        terminal.show(*map(Text.from_ansi, drawn))
