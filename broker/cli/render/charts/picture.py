"""Charts as a file: HTML, PNG or SVG, by its suffix."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from tempfile import mkstemp
from textwrap import fill, wrap
from typing import TYPE_CHECKING, Any

from broker.cli.render.charts import ticks
from broker.cli.render.charts.chart import Chart, Line, known, number, runs
from broker.core.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

SUFFIXES = (".html", ".png", ".svg")
# In the first bytes of every file written here; only such files are overwritten without --force.
MARK = "gpubroker chart"
_MARK_WITHIN = 4096  # bytes
_WIDTH, _HEIGHT = 9.0, 4.2  # inches
_DOTS_PER_INCH = 144
# Contrast of 3 or more to white and to near-black; dashes distinguish lines whose hues look alike.
_COLOURS = ("#3b82c4", "#d5711a", "#2a9d6f", "#c0567f", "#8a6fc9", "#8c8c1f", "#3f95a8", "#b5533c")
_DASHES: tuple[str | tuple[float, tuple[float, ...]], ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))


def write_picture(charts: Sequence[Chart], path: Path, *, replace: bool = False) -> None:
    """Write the charts to ``path``: ``.html`` (one page that needs no network, with the figures as tables), ``.png``
    or ``.svg``. Times are in UTC.

    Written atomically, with mode 0600. An existing gpubroker chart is overwritten; any other file only with
    ``replace``. Raises `InvalidInput` for another suffix, for a file that may not be replaced or cannot be written, and
    `MissingExtra` without matplotlib.
    """
    may_write(path, replace=replace)
    suffix = path.suffix.lower()
    with _matplotlib():
        if suffix == ".html":
            from broker.cli.render.charts.page import page

            content = page(charts, MARK).encode()
        else:
            content = drawing(charts, suffix[1:])
    _write(path, content)


@contextmanager
def _matplotlib() -> Iterator[None]:
    """Fixed matplotlib settings: the same picture on every machine, and no formulas between dollar signs."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise MissingExtra("charts", "a picture") from error
    settings: Any = {  # matplotlib's types accept only literal names
        "text.parse_math": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "gpubroker",
        "timezone": "UTC",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "font.size": 10,
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        yield


def drawing(charts: Sequence[Chart], form: str, *, ink: str = "black", paper: str | None = "white") -> bytes:
    """The charts below each other as ``png`` or ``svg``. ``paper``: background colour; None: transparent."""
    from matplotlib.figure import Figure

    heights = [_height(chart) for chart in charts] or [_HEIGHT]
    figure = Figure(figsize=(_WIDTH, sum(heights)), facecolor=paper or "none")
    figure.set_layout_engine("constrained", h_pad=0.12, w_pad=0.12)
    parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, chart in zip(parts, charts, strict=False):  # without charts there is one empty part
        part.set_facecolor("none")
        _draw(part, chart, ink)
    metadata = {"Software": MARK} if form == "png" else {"Creator": MARK, "Date": None}
    buffer = BytesIO()
    figure.savefig(buffer, format=form, dpi=_DOTS_PER_INCH, metadata=metadata)
    return buffer.getvalue()


def _height(chart: Chart) -> float:
    """Height in inches, with room for every bar and every line of the legend."""
    bars = 0.3 * sum(len(bars.values) for bars in chart.bars)
    return max(_HEIGHT, bars + 1.5) + 0.1 * len(chart.names)


def _draw(part: SubFigure, chart: Chart, ink: str) -> None:
    axes = part.add_subplot()
    axes.set_facecolor("none")
    for i, line in enumerate(chart.lines):
        _draw_line(axes, line, i, chart)
    if chart.bars:
        _draw_bars(axes, chart)
    if _any_value(chart):
        _mark(axes, chart)
    else:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", va="center", color=ink)
    axes.set_title(fill(chart.title, 90), loc="left", fontweight="bold", color=ink)
    axes.set_ylabel("" if chart.bars else chart.y_label, color=ink)
    below = chart.y_label if chart.bars else f"{chart.x_label}{' (UTC)' * chart.over_time}"
    axes.set_xlabel("\n".join([below, *wrap(chart.note, 110)]), color=ink)
    axes.tick_params(colors=ink, which="both")
    for spine in axes.spines.values():
        spine.set_edgecolor(ink)
    if any(chart.names):
        columns = 1 if max(map(len, chart.names)) > _WIDTH * 6 else 2
        part.legend(loc="outside lower left", frameon=False, fontsize="small", labelcolor=ink, ncols=columns)


def _draw_line(axes: Axes, line: Line, i: int, chart: Chart) -> None:
    from math import nan

    points = [point for run in runs(line, positive=chart.log_y) for point in (*run, (run[-1][0], nan))]
    seconds = [x for x, _ in points]
    xs: list[Any] = [datetime.fromtimestamp(x, UTC) for x in seconds] if chart.over_time else list(seconds)
    axes.plot(
        xs,
        [y for _, y in points],
        label=line.name or "_",
        color=_COLOURS[i % len(_COLOURS)],
        linestyle=_DASHES[i // len(_COLOURS) % len(_DASHES)],
        linewidth=1.8,
        marker="o" if len(points) == 2 else None,
    )


def _draw_bars(axes: Axes, chart: Chart) -> None:
    """Horizontal bars, the first on top, so that long labels stay readable."""
    labels = [fill(label, 28) for label in chart.bars[0].labels]
    thick = 0.8 / len(chart.bars)
    for i, bars in enumerate(chart.bars):
        places = [n - 0.4 + thick * (i + 0.5) for n in range(len(labels))]
        values = [value if value is not None and known(value) else 0.0 for value in bars.values]
        drawn = axes.barh(places, values, height=thick * 0.9, label=bars.name or "_", color=_COLOURS[i % len(_COLOURS)])
        told = [number(value) if value is not None and known(value) else "–" for value in bars.values]
        axes.bar_label(drawn, told, padding=3, fontsize="small")
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.grid(visible=False, axis="y")


def _mark(axes: Axes, chart: Chart) -> None:
    """Ticks at round numbers, as in the terminal; matplotlib chooses those of times."""
    if chart.over_time:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator()  # type: ignore[no-untyped-call]  # matplotlib.dates has no types
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]  # the same
    else:
        across = ticks.numbers(*axes.get_xlim(), 10)
        axes.set_xticks([x for x, _ in across], [text for _, text in across])
    if chart.bars:
        return
    if chart.log_y:
        axes.set_yscale("log")
        axes.minorticks_off()
    up = (ticks.powers if chart.log_y else ticks.numbers)(*axes.get_ylim(), 9)
    axes.set_yticks([y for y, _ in up], [text for _, text in up])


def _any_value(chart: Chart) -> bool:
    values = [y for line in chart.lines for y in line.y] + [value for bars in chart.bars for value in bars.values]
    return any(known(value, positive=chart.log_y) for value in values)


def may_write(path: Path, *, replace: bool) -> None:
    """Raises `InvalidInput` if no picture may be written to ``path``. Called before the time-consuming work."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        what = f"unknown picture format {suffix!r}" if suffix else "the name has no suffix"
        raise InvalidInput(what, where=str(path), hint=f"name it {', '.join(f'{path.stem}{s}' for s in SUFFIXES)}")
    if not path.parent.is_dir():
        raise InvalidInput(f"the folder {path.parent} does not exist", where=str(path), hint="create it first")
    if path.is_dir():
        raise InvalidInput("is a folder", where=str(path))
    try:
        with path.open("rb") as file:
            ours = MARK.encode() in file.read(_MARK_WITHIN)
    except FileNotFoundError:
        return
    except OSError:
        ours = False
    if not (ours or replace):
        raise InvalidInput(
            "the file exists and is not a gpubroker chart",
            where=str(path),
            hint="choose another name, or use --force to overwrite it",
        )


def _write(path: Path, content: bytes) -> None:
    draft = None
    try:
        handle, draft = mkstemp(dir=path.parent, prefix=f".{path.name}.")  # private: mode 0600
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(draft).replace(path)
    except OSError as error:
        if draft is not None:
            Path(draft).unlink(missing_ok=True)
        raise InvalidInput(f"cannot be written: {error.strerror or error}", where=str(path)) from error
