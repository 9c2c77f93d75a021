"""What commands share that work for a while and then draw: options for charts, drawing, progress, lists of names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from broker.cli.charts.chart import Chart
    from broker.cli.terminal import Terminal

Progress = Callable[[int, int, str], None]
"""Called with what is done, how much there is in all, and what is being worked on."""

ShowChart = Annotated[bool, typer.Option("--chart", help="Draw it in the terminal.")]
Picture = Annotated[
    Path | None, typer.Option("--picture", metavar="FILE", help="Draw it into a file: .html, .png or .svg.")
]
Force = Annotated[bool, typer.Option("--force", help="Let --picture replace a file that is not a chart.")]


def check_picture(picture: Path | None, *, force: bool) -> None:
    """Raises `InvalidInput` for a file that may not be written or replaced: for commands that take their time first."""
    if picture is not None:
        from broker.cli.charts.picture import may_write

        may_write(picture, replace=force)


def draw(
    terminal: Terminal, charts: Callable[[], Sequence[Chart]], *, chart: bool, picture: Path | None, force: bool
) -> None:
    """Draw ``charts`` where they were asked for: into ``picture``, and, with ``chart``, in the terminal that people
    look at. Raises `InvalidInput` for a file that may not be replaced."""
    if not chart and picture is None:
        return
    figures = list(charts())
    if picture is not None:
        from broker.cli.charts.picture import write_picture

        write_picture(figures, picture, replace=force)
        terminal.say(f"wrote {picture}")
    if chart:
        from rich.text import Text

        from broker.cli.charts.terminal import in_terminal

        console = terminal.err if terminal.as_json else terminal.out
        width = min(console.width, 100)
        terminal.show(*(Text.from_ansi(in_terminal(each, width=width, colour=console.is_terminal)) for each in figures))


@contextmanager
def progress(terminal: Terminal, doing: str) -> Iterator[Progress | None]:
    """A line on standard error that says how far it is, where somebody looks at it."""
    if not terminal.err.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal.err, transient=True) as shown:
        task = shown.add_task(doing, total=None)
        yield lambda done, total, what: shown.update(task, completed=done, total=total, description=what)


def names(text: str) -> tuple[str, ...]:
    """Names with commas between them, each once."""
    return tuple(dict.fromkeys(name for name in (part.strip() for part in text.split(",")) if name))
