"""Charts in the terminal, through plotext."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from math import ceil, floor, log10
from textwrap import wrap
from threading import Lock
from typing import Any

from rich.cells import cell_len

from broker.agent.names import escape_unprintable
from broker.cli.render.charts.chart import Bars, Chart, Point, is_drawable, line_runs, number_text

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
# Distances of ticks in seconds; from a month on, ticks follow the calendar.
_TICK_SECONDS = (1, 5, 15, 30, *(_MINUTE * n for n in (1, 5, 15, 30)), *(_HOUR * n for n in (1, 3, 6, 12)))
_TICK_DAYS = tuple(_DAY * n for n in (1, 2, 7, 14))
_TICK_MONTHS = (1, 3, 6, 12, 24, 60, 120)


def number_ticks(low: float, high: float, max_ticks: int) -> list[tuple[float, str]]:
    """At most ``max_ticks`` (≥ 2) round numbers from ``low`` to ``high``, with their texts."""
    if high <= low:
        return [(low, number_text(low))]
    rough_step = (high - low) / max(max_ticks - 1, 1)
    scale = 10.0 ** floor(log10(rough_step))
    step = next(scale * n for n in (1, 2, 2.5, 5, 10, 20) if scale * n >= rough_step * (1 - 1e-9))
    decimals = max(0, -floor(log10(step)) + (1 if f"{step / 10.0 ** floor(log10(step)):.1f}" == "2.5" else 0))
    first_multiple, last_multiple = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [(n * step, f"{n * step:,.{decimals}f}") for n in range(first_multiple, last_multiple + 1)]


def time_ticks(
    start: datetime, end: datetime, max_ticks: int, zone: tzinfo | None = None
) -> list[tuple[datetime, str]]:
    """At most ``max_ticks`` round times from ``start`` to ``end``, with their texts in ``zone`` (default: local
    time)."""
    first_time, last_time = start.astimezone(zone), end.astimezone(zone)
    seconds = (last_time - first_time).total_seconds() / max(max_ticks, 1)
    step = next((step for step in (*_TICK_SECONDS, *_TICK_DAYS) if step >= seconds), None)
    if step is None:
        ticks = _month_ticks(first_time, last_time, max_ticks)
        form = "%Y" if all(at.month == 1 for at in ticks) else "%b %Y"
        return [(at, at.strftime(form)) for at in ticks]
    ticks = _step_ticks(first_time, last_time, step, zone)
    if step >= _DAY:
        return [(at, f"{at:%b} {at.day}") for at in ticks]
    if last_time - first_time > timedelta(days=1):
        return [(at, f"{at:%b} {at.day} {at:%H:%M}") for at in ticks]
    return [(at, f"{at:%H:%M:%S}" if step < _MINUTE else f"{at:%H:%M}") for at in ticks]


def _step_ticks(first_time: datetime, last_time: datetime, step: int, zone: tzinfo | None) -> list[datetime]:
    """The ticks, every ``step`` seconds from midnight of the first day in local time, so that they stay round when
    clocks change."""
    midnight = first_time.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    if step > _DAY:  # weeks start on Mondays
        midnight -= timedelta(days=midnight.weekday())
    ticks, n = [], 0
    while (at := _in_zone(midnight + timedelta(seconds=n * step), zone)) <= last_time:
        if at >= first_time:
            ticks.append(at)
        n += 1
    return ticks


def _month_ticks(first_time: datetime, last_time: datetime, max_ticks: int) -> list[datetime]:
    months = (last_time.year - first_time.year) * 12 + last_time.month - first_time.month + 1
    step = next((step for step in _TICK_MONTHS if months / step <= max_ticks), _TICK_MONTHS[-1])
    ticks = []
    for n in range(first_time.year * 12, last_time.year * 12 + 12, step):
        at = _in_zone(datetime(n // 12, n % 12 + 1, 1), first_time.tzinfo)  # noqa: DTZ001  # its zone is given next
        if first_time <= at <= last_time:
            ticks.append(at)
    return ticks


def _in_zone(time: datetime, zone: tzinfo | None) -> datetime:
    return time.astimezone() if zone is None else time.replace(tzinfo=zone)


def zone_name(at: datetime, zone: tzinfo | None = None) -> str:
    """The name of the ticks' time zone: ``UTC``, ``CET``."""
    return "UTC" if zone is UTC else f"{at.astimezone(zone):%Z}"


_MIN_WIDTH, _MIN_HEIGHT = 30, 8
# Braille dots if colors distinguish the lines; otherwise one sign per line.
_BRAILLE = "braille"
_SIGNS = "•×+o#%@*"
# ANSI codes of the terminal's own 16 colors, which suit both dark and light backgrounds.
_COLORS = (6, 1, 2, 5, 4, 3, 14, 9)
_EIGHTHS = " ▏▎▍▌▋▊▉"
_plotext_lock = Lock()  # plotext has one figure per process


def render_chart(
    chart: Chart, *, width: int, height: int = 20, color: bool = False, names: Sequence[str] = ()
) -> str:  # fmt: skip
    """The chart as lines of at most ``width`` characters: title, unit, the plot, legend and note.

    ``height``: lines of the plot including its axis; bars take as many as they need. Times are local times.
    ``color``: with ANSI codes (print it with `rich.text.Text.from_ansi`); without, each line has its own sign.
    ``names``: of the lines of all charts shown together, so that a sign or color stands for the same name in all of
    them, as far as there are enough signs.
    """
    width, height = max(width, _MIN_WIDTH), max(height, _MIN_HEIGHT)
    styles = _style_numbers(chart.names, names)
    if chart.radar:
        body = _render_radar(chart, width, color, styles)
    elif chart.bars:
        body = _render_bars(chart.bars[0], width, color)
    else:
        body = _render_lines(chart, width, height, color, styles)
    return "\n".join(
        [
            *_wrap_text(chart.title, width),
            *_wrap_text(chart.y_label, width),
            *(body or ["", "  nothing to draw: no values", ""]),
            *(_legend(chart, width, color, styles) if body else []),
            *_wrap_text(chart.note, width),
        ]
    )


def _style_numbers(own_names: Sequence[str], names: Sequence[str]) -> Sequence[int]:
    """The number of the sign and color of each line."""
    style_by_name = {name: i for i, name in enumerate(dict.fromkeys(names))}
    shared = (
        len(style_by_name) <= len(_SIGNS)
        and len(set(own_names)) == len(own_names)
        and style_by_name.keys() >= set(own_names)
    )
    return [style_by_name[name] for name in own_names] if shared else range(len(own_names))


def _render_lines(chart: Chart, width: int, height: int, color: bool, styles: Sequence[int]) -> list[str]:
    runs_by_line = [list(line_runs(line)) for line in chart.lines]
    points = [point for runs_of_line in runs_by_line for run in runs_of_line for point in run]
    if not points:
        return []
    x_low, x_high = _axis_range([x for x, _ in points], 0, single_value_margin=43_200.0 if chart.over_time else 1.0)
    low, high = _axis_range([y for _, y in points], 0.05)
    y_ticks = number_ticks(low, high, max(height // 3, 3))
    from plotext import figure, terminal

    with _plotext_lock:
        terminal.limit(False, False)
        figure.clear()
        figure.theme("colorless")
        figure.plot_size(width, height)
        for i, runs_of_line in zip(styles, runs_by_line, strict=True):
            for run in runs_of_line:
                xs, ys = [x for x, _ in run], [y for _, y in run]
                figure.draw(figure.signal(xs, ys, marker=_marker(i, color)).lines().density("full"))
        x_ticks = _x_ticks(chart, x_low, x_high, width)
        figure.ruler("x", 0).lim(x_low, x_high).ticks([x for x, _ in x_ticks], [text for _, text in x_ticks])
        figure.ruler("y", 0).lim(low, high).ticks([y for y, _ in y_ticks], [text for _, text in y_ticks])
        plot_text: str = figure.build().string(colorless=not color)
        figure.clear()
        terminal.limit()
    label = chart.x_label
    if chart.over_time:
        label = f"{label} ({zone_name(_utc_time(x_high))})"
    return [*(line.rstrip() for line in plot_text.rstrip("\n").split("\n")), label.center(width).rstrip()]


def _marker(i: int, color: bool) -> Any:
    from plotext import marker, pixel

    if color:
        return marker(_BRAILLE, pixel(foreground=_COLORS[i % len(_COLORS)]))
    return marker(_SIGNS[i % len(_SIGNS)])


def _axis_range(values: Sequence[float], margin: float, *, single_value_margin: float = 0) -> tuple[float, float]:
    """The range of the values, extended by ``margin`` (a fraction of it), or by ``single_value_margin`` around a single
    value; never empty. It does not extend below zero if no value does."""
    low, high = min(values), max(values)
    extension = (high - low) * margin if high > low else (single_value_margin or abs(high) * 0.1 or 1.0)
    return (max(low - extension, 0.0) if low >= 0 else low - extension), high + extension


def _x_ticks(chart: Chart, x_low: float, x_high: float, width: int) -> list[Point | tuple[float, str]]:
    max_ticks = max(width // 14, 2)
    if not chart.over_time:
        return list(number_ticks(x_low, x_high, max_ticks))
    return [(at.timestamp(), text) for at, text in time_ticks(_utc_time(x_low), _utc_time(x_high), max_ticks)]


def _utc_time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _render_bars(bars: Bars, width: int, color: bool) -> list[str]:
    """Horizontal bars, each followed by its value: plotext has no room for labels and values of vertical bars."""
    values = [value for value in bars.values if value is not None and is_drawable(value)]
    if not values:
        return []
    labels = [escape_unprintable(label) for label in bars.labels]
    label_width = min(max(cell_len(label) for label in labels), width // 3)
    bar_width = max(width - label_width - max(len(number_text(value)) for value in values) - 4, 5)
    cell = max(0.0, *values) / bar_width or 1.0
    rows = []
    for label, value in zip(labels, bars.values, strict=True):
        name = _truncate(label, label_width)
        bar_text = _bar_text(value, cell, bar_width) if value is not None and is_drawable(value) else "–"
        rows.append(f"{name}{' ' * (label_width - cell_len(name))} │{_color(bar_text, 0, color)}".rstrip())
    return rows


_MAX_RADIUS = 13  # rows
_DIRECTIONS = ((0, -1), (1, 0), (0, 1), (-1, 0))


def _render_radar(chart: Chart, width: int, color: bool, styles: Sequence[int]) -> list[str]:
    """The axes go up, right, down and left; half and the whole are dotted. A cell is twice as high as it is wide. The
    first polygon is on top; one is open where a value is not known."""
    if not chart.bars:
        return []
    axes = [_truncate(escape_unprintable(label), width // 2 - 6) for label in chart.bars[0].labels]
    side = max(cell_len(axes[1]), cell_len(axes[3])) + 1
    radius = max(min((width - 2 * side) // 4, _MAX_RADIUS), 2)
    cells: dict[tuple[int, int], str] = {}

    def corner(axis: int, value: float) -> tuple[int, int]:
        x, y = _DIRECTIONS[axis % 4]
        return round(2 * radius * x * value), round(radius * y * value)

    def draw(start: tuple[int, int], end: tuple[int, int], sign: str) -> None:
        (x, y), (dx, dy) = start, (end[0] - start[0], end[1] - start[1])
        steps = max(abs(dx), abs(dy), 1)
        cells.update({(x + round(dx * n / steps), y + round(dy * n / steps)): sign for n in range(steps + 1)})

    for axis in range(4):
        draw((0, 0), corner(axis, 1), "·")
        for ring in (0.5, 1):
            draw(corner(axis, ring), corner(axis + 1, ring), "·")
    for i, bars in reversed(list(zip(styles, chart.bars, strict=True))):
        corners = [None if value is None else corner(axis, value) for axis, value in enumerate(bars.values)]
        for start, end in zip(corners, [*corners[1:], corners[0]], strict=True):
            if start is not None:
                draw(start, end or start, _color(_SIGNS[i % len(_SIGNS)], i, color))
    rows = []
    for y in range(-radius, radius + 1):
        left, right = (axes[3], axes[1]) if y == 0 else ("", "")
        row = "".join(cells.get((x, y), " ") for x in range(-2 * radius, 2 * radius + 1))
        rows.append(f"{left:>{side - 1}} {row} {right}".rstrip())
    middle = side + 2 * radius
    return [f"{axes[0]:^{2 * middle}}".rstrip(), *rows, f"{axes[2]:^{2 * middle}}".rstrip()]


def _bar_text(value: float, cell: float, bar_width: int) -> str:
    whole, rest_eighths = divmod(round(max(value, 0.0) / cell * 8), 8)
    return f"{'█' * min(whole, bar_width)}{_EIGHTHS[rest_eighths].strip()} {number_text(value)}"


def _legend(chart: Chart, width: int, color: bool, styles: Sequence[int]) -> list[str]:
    """The legend in as few lines as possible; none if a single name adds nothing."""
    names = chart.names
    if len(names) < 2 and not any(names):
        return []
    rows: list[str] = []
    used_width = width + 1
    for i, name in zip(styles, names, strict=True):
        sign = "━" if color and not chart.bars else _SIGNS[i % len(_SIGNS)]
        entry = f"{_color(sign, i, color)} {_truncate(escape_unprintable(name), width - 4)}"
        entry_width = cell_len(_truncate(escape_unprintable(name), width - 4)) + 2
        if used_width + 3 + entry_width > width:
            rows.append(f"  {entry}")
            used_width = 2 + entry_width
        else:
            rows[-1] += f"   {entry}"
            used_width += 3 + entry_width
    return rows


def _color(text: str, i: int, color: bool) -> str:
    if not color:
        return text
    code = _COLORS[i % len(_COLORS)]
    return f"\x1b[{code + (30 if code < 8 else 82)}m{text}\x1b[0m"


def _wrap_text(text: str, width: int) -> list[str]:
    return wrap(escape_unprintable(text), width)


def _truncate(text: str, width: int) -> str:
    return text if cell_len(text) <= width else f"{text[: max(width - 1, 1)]}…"
