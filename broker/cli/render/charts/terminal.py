"""Charts in the terminal, through plotext."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from math import ceil, floor, log10
from textwrap import wrap
from threading import Lock
from typing import Any

from rich.cells import cell_len

from broker.agent.names import shown
from broker.cli.render.charts.chart import Chart, Point, known, number, runs

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
# Distances of ticks in seconds; from a month on, ticks follow the calendar.
_STEPS = (1, 5, 15, 30, *(_MINUTE * n for n in (1, 5, 15, 30)), *(_HOUR * n for n in (1, 3, 6, 12)))
_STEPS_OF_DAYS = tuple(_DAY * n for n in (1, 2, 7, 14))
_MONTHS = (1, 3, 6, 12, 24, 60, 120)


def numbers(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """At most ``most`` (≥ 2) round numbers from ``low`` to ``high``, with their texts."""
    if high <= low:
        return [(low, number(low))]
    rough = (high - low) / max(most - 1, 1)
    scale = 10.0 ** floor(log10(rough))
    step = next(scale * n for n in (1, 2, 2.5, 5, 10, 20) if scale * n >= rough * (1 - 1e-9))
    decimals = max(0, -floor(log10(step)) + (1 if f"{step / 10.0 ** floor(log10(step)):.1f}" == "2.5" else 0))
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [(n * step, f"{n * step:,.{decimals}f}") for n in range(first, last + 1)]


def powers(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Round numbers for a logarithmic scale, ``low`` > 0: 1, 2 and 5 times powers of ten, or the powers alone."""
    first, last = floor(log10(low)), ceil(log10(high))
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [f * 10.0**n for n in range(first, last + 1) for f in factors if low <= f * 10.0**n <= high]
        if len(found) <= most:
            break
    thin = found[:: max(1, ceil(len(found) / most))]
    return [(value, number(value)) for value in thin] if len(thin) > 1 else numbers(low, high, most)


def times(start: datetime, end: datetime, most: int, zone: tzinfo | None = None) -> list[tuple[datetime, str]]:
    """At most ``most`` round times from ``start`` to ``end``, with their texts in ``zone`` (default: local time)."""
    first, last = start.astimezone(zone), end.astimezone(zone)
    seconds = (last - first).total_seconds() / max(most, 1)
    step = next((step for step in (*_STEPS, *_STEPS_OF_DAYS) if step >= seconds), None)
    if step is None:
        found = _by_month(first, last, most)
        form = "%Y" if all(at.month == 1 for at in found) else "%b %Y"
        return [(at, at.strftime(form)) for at in found]
    found = _by_step(first, last, step, zone)
    if step >= _DAY:
        return [(at, f"{at:%b} {at.day}") for at in found]
    if last - first > timedelta(days=1):
        return [(at, f"{at:%b} {at.day} {at:%H:%M}") for at in found]
    return [(at, f"{at:%H:%M:%S}" if step < _MINUTE else f"{at:%H:%M}") for at in found]


def _by_step(first: datetime, last: datetime, step: int, zone: tzinfo | None) -> list[datetime]:
    """Counted from midnight of the first day in local time, so that ticks stay round when clocks change."""
    midnight = first.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    if step > _DAY:  # weeks start on Mondays
        midnight -= timedelta(days=midnight.weekday())
    found, n = [], 0
    while (at := _on_wall(midnight + timedelta(seconds=n * step), zone)) <= last:
        if at >= first:
            found.append(at)
        n += 1
    return found


def _by_month(first: datetime, last: datetime, most: int) -> list[datetime]:
    months = (last.year - first.year) * 12 + last.month - first.month + 1
    step = next((step for step in _MONTHS if months / step <= most), _MONTHS[-1])
    found = []
    for n in range(first.year * 12, last.year * 12 + 12, step):
        at = _on_wall(datetime(n // 12, n % 12 + 1, 1), first.tzinfo)  # noqa: DTZ001  # its zone is given next
        if first <= at <= last:
            found.append(at)
    return found


def _on_wall(time: datetime, zone: tzinfo | None) -> datetime:
    return time.astimezone() if zone is None else time.replace(tzinfo=zone)


def zone_name(at: datetime, zone: tzinfo | None = None) -> str:
    """The name of the ticks' time zone: ``UTC``, ``CET``."""
    return "UTC" if zone is UTC else f"{at.astimezone(zone):%Z}"


_LEAST_WIDTH, _LEAST_HEIGHT = 30, 8
# Braille dots if colors distinguish the lines; otherwise one sign per line.
_FINE = "braille"
_SIGNS = "•×+o#%@*"
# ANSI codes of the terminal's own 16 colors, which suit both dark and light backgrounds.
_COLOURS = (6, 1, 2, 5, 4, 3, 14, 9)
_EIGHTHS = " ▏▎▍▌▋▊▉"
_plotting = Lock()  # plotext has one figure per process


def in_terminal(
    chart: Chart, *, width: int, height: int = 20, colour: bool = False, names: Sequence[str] = ()
) -> str:  # fmt: skip
    """The chart as lines of at most ``width`` characters: title, unit, the plot, legend and note.

    ``height``: lines of the plot including its axis; bars take as many as they need. Times are local times.
    ``colour``: with ANSI codes (print it with `rich.text.Text.from_ansi`); without, each line has its own sign.
    ``names``: of the lines of all charts shown together, so that a sign or color stands for the same name in all of
    them, as far as there are enough signs.
    """
    width, height = max(width, _LEAST_WIDTH), max(height, _LEAST_HEIGHT)
    order = _order(chart.names, names)
    body = _bars(chart, width, colour, order) if chart.bars else _lines(chart, width, height, colour, order)
    return "\n".join(
        [
            *_folded(chart.title, width),
            *_folded(chart.y_label, width),
            *(body or ["", "  nothing to draw: no values", ""]),
            *(_legend(chart, width, colour, order) if body else []),
            *_folded(chart.note, width),
        ]
    )


def _order(own: Sequence[str], names: Sequence[str]) -> Sequence[int]:
    """The number of the sign and color of each line."""
    places = {name: i for i, name in enumerate(dict.fromkeys(names))}
    shared = len(places) <= len(_SIGNS) and len(set(own)) == len(own) and places.keys() >= set(own)
    return [places[name] for name in own] if shared else range(len(own))


def _lines(chart: Chart, width: int, height: int, colour: bool, order: Sequence[int]) -> list[str]:
    stretches = [list(runs(line, positive=chart.log_y)) for line in chart.lines]
    points = [point for of_line in stretches for run in of_line for point in run]
    if not points:
        return []
    left, right = _range([x for x, _ in points], 0, alone=43_200.0 if chart.over_time else 1.0)
    low, high = _range([y for _, y in points], 0.05, log=chart.log_y)
    up = (powers if chart.log_y else numbers)(low, high, max(height // 3, 3))
    # plotext's own logarithmic scale ignores explicit limits and ticks.
    scaled: Callable[[float], float] = log10 if chart.log_y else float
    from plotext import figure, terminal

    with _plotting:
        terminal.limit(False, False)
        figure.clear()
        figure.theme("colorless")
        figure.plot_size(width, height)
        for i, of_line in zip(order, stretches, strict=True):
            for run in of_line:
                xs, ys = [x for x, _ in run], [scaled(y) for _, y in run]
                figure.draw(figure.signal(xs, ys, marker=_marker(i, colour)).lines().density("full"))
        across = _across(chart, left, right, width)
        figure.ruler("x", 0).lim(left, right).ticks([x for x, _ in across], [text for _, text in across])
        figure.ruler("y", 0).lim(scaled(low), scaled(high)).ticks([scaled(y) for y, _ in up], [text for _, text in up])
        drawn: str = figure.build().string(colorless=not colour)
        figure.clear()
        terminal.limit()
    label = chart.x_label
    if chart.over_time:
        label = f"{label} ({zone_name(_time(right))})"
    return [*(line.rstrip() for line in drawn.rstrip("\n").split("\n")), label.center(width).rstrip()]


def _marker(i: int, colour: bool) -> Any:
    from plotext import marker, pixel

    if colour:
        return marker(_FINE, pixel(foreground=_COLOURS[i % len(_COLOURS)]))
    return marker(_SIGNS[i % len(_SIGNS)])


def _range(values: Sequence[float], margin: float, *, alone: float = 0, log: bool = False) -> tuple[float, float]:
    """The range of the values, extended by ``margin`` (a fraction of it), or by ``alone`` around a single value; never
    empty. It does not extend below zero if no value does."""
    low, high = min(values), max(values)
    if log:
        return (low / 1.2, high * 1.2)
    room = (high - low) * margin if high > low else (alone or abs(high) * 0.1 or 1.0)
    return (max(low - room, 0.0) if low >= 0 else low - room), high + room


def _across(chart: Chart, left: float, right: float, width: int) -> list[Point | tuple[float, str]]:
    most = max(width // 14, 2)
    if not chart.over_time:
        return list(numbers(left, right, most))
    return [(at.timestamp(), text) for at, text in times(_time(left), _time(right), most)]


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _bars(chart: Chart, width: int, colour: bool, order: Sequence[int]) -> list[str]:
    """Horizontal bars, each followed by its value: plotext has no room for labels and values of vertical bars."""
    values = [value for bars in chart.bars for value in bars.values if value is not None and known(value)]
    if not values:
        return []
    labels = [shown(label) for label in chart.bars[0].labels]
    beside = min(max(cell_len(label) for label in labels), width // 3)
    behind = max(len(number(value)) for value in values) + 1
    signed = len(chart.bars) > 1 and not colour
    room = max(width - beside - behind - 3 - 2 * signed, 5)
    low, high = min(0.0, *values), max(0.0, *values)
    cell = (high - low) / room or 1.0
    zero = round(-low / cell)
    found = []
    for n, label in enumerate(labels):
        for i, bars in zip(order, chart.bars, strict=True):
            value = bars.values[n]
            name = _cut(label, beside) if bars is chart.bars[0] else ""
            drawn = _bar(value, cell, zero, room) if value is not None and known(value) else "–"
            sign = f"{_SIGNS[i % len(_SIGNS)]} " if signed else ""
            found.append(f"{name}{' ' * (beside - cell_len(name))} │{sign}{_painted(drawn, i, colour)}".rstrip())
    return found


def _bar(value: float, cell: float, zero: int, room: int) -> str:
    eighths = round(abs(value) / cell * 8)
    whole, rest = divmod(eighths, 8)
    if value < 0:
        return f"{'█' * (whole + (rest >= 4)):>{zero}} {number(value)}"
    return f"{' ' * zero}{'█' * min(whole, room)}{_EIGHTHS[rest].strip()} {number(value)}"


def _legend(chart: Chart, width: int, colour: bool, order: Sequence[int]) -> list[str]:
    """The legend in as few lines as possible; none if a single name adds nothing."""
    names = chart.names
    if len(names) < 2 and not any(names):
        return []
    found: list[str] = []
    taken = width + 1
    for i, name in zip(order, names, strict=True):
        sign = "█" if chart.bars and colour else "━" if colour else _SIGNS[i % len(_SIGNS)]
        entry = f"{_painted(sign, i, colour)} {_cut(shown(name), width - 4)}"
        needs = cell_len(_cut(shown(name), width - 4)) + 2
        if taken + 3 + needs > width:
            found.append(f"  {entry}")
            taken = 2 + needs
        else:
            found[-1] += f"   {entry}"
            taken += 3 + needs
    return found


def _painted(text: str, i: int, colour: bool) -> str:
    if not colour:
        return text
    code = _COLOURS[i % len(_COLOURS)]
    return f"\x1b[{code + (30 if code < 8 else 82)}m{text}\x1b[0m"


def _folded(text: str, width: int) -> list[str]:
    return wrap(shown(text), width)


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else f"{text[: max(width - 1, 1)]}…"
