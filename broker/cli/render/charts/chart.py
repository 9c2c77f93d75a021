"""The content of a chart, independent of its output: lines or bars, with title, axes and units."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    """A series of values. ``x``: numbers, or times with a time zone, ascending. ``y``: None, NaN and infinite values
    leave a gap. ``step``: a value holds until the next one, as prices do. Raises ValueError.
    """

    name: str
    x: Sequence[float] | Sequence[datetime]
    y: Sequence[float | None]
    step: bool = False

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"line {self.name!r}: {len(self.x)} x values and {len(self.y)} y values")
        if any(isinstance(x, datetime) and x.tzinfo is None for x in self.x):
            raise ValueError(f"line {self.name!r}: a time without a time zone")


@dataclass(frozen=True, slots=True)
class Bars:
    """One bar for each label. Raises ValueError for more or fewer values than labels."""

    name: str
    labels: Sequence[str]
    values: Sequence[float | None]

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.values):
            raise ValueError(f"bars {self.name!r}: {len(self.labels)} labels and {len(self.values)} values")


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines or bars, not both. ``y_label`` (for bars: what their length means) names the unit: ``USD per GPU-hour``.

    ``radar``: the bars, with four labels and values from 0 to 1, as polygons on four axes from one middle; without
    it, one series of bars.
    ``note``: a sentence below, such as the source of the figures. Either all lines are over numbers, or all are over
    times; all bars have the same labels. Raises ValueError.
    """

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line] = ()
    bars: Sequence[Bars] = ()
    note: str = ""
    radar: bool = False

    def __post_init__(self) -> None:
        if self.lines and self.bars:
            raise ValueError(f"chart {self.title!r}: lines or bars, not both")
        if len({isinstance(x, datetime) for line in self.lines for x in line.x}) > 1:
            raise ValueError(f"chart {self.title!r}: times and numbers on one axis")
        if len({tuple(bars.labels) for bars in self.bars}) > 1:
            raise ValueError(f"chart {self.title!r}: bars over different labels")

    @property
    def names(self) -> list[str]:
        """The names of the lines or bars."""
        return [line.name for line in self.lines] or [bars.name for bars in self.bars]

    @property
    def over_time(self) -> bool:
        """Whether the lines are over times."""
        return any(isinstance(x, datetime) for line in self.lines for x in line.x)


def line_runs(line: Line) -> Iterator[list[Point]]:
    """The parts of the line between gaps; times are seconds since 1970. A stepped line gets the corners of its steps;
    its last value before a gap holds up to the gap."""
    current: list[Point] = []
    for x, y in zip(x_numbers(line), line.y, strict=True):
        if current and line.step:
            current.append((x, current[-1][1]))
        if y is not None and is_drawable(y):
            current.append((x, float(y)))
        elif current:
            yield current
            current = []
    if current:
        yield current


def x_numbers(line: Line) -> list[float]:
    """The x values; times as seconds since 1970."""
    return [x.timestamp() if isinstance(x, datetime) else float(x) for x in line.x]


def is_drawable(value: float | None) -> bool:
    """Whether the value can be drawn."""
    return value is not None and isfinite(value)


def number_text(value: float) -> str:
    """A value with its significant digits: ``1,234.5``, ``0.0375``, ``12``."""
    text = f"{value:,.6g}"
    return f"{value:,.0f}" if "e+" in text else text
