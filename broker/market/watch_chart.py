"""The lowest price over time as one line of text, for notices. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from broker.core.values.money import Money

_BARS = "▁▂▃▄▅▆▇█"
_STEPS = 42  # characters of a line: for a week, four hours each
_NONE = "·"  # no price is known for that time

PriceSteps = Sequence[tuple[datetime, Money | None]]
"""The price from each time on, oldest first; None: not offered from then on."""


def lowest(series: Iterable[PriceSteps], start: datetime, end: datetime) -> list[Money | None]:
    """The lowest of these prices at the end of each of `_STEPS` equal parts of the time; None where none is known."""
    known = [(list(map(_time, points)), points) for points in series]
    found: list[Money | None] = []
    for step in range(1, _STEPS + 1):
        at = start + (end - start) * (step / _STEPS)
        prices = [points[place - 1][1] for times, points in known if (place := bisect_right(times, at))]
        found.append(min((price for price in prices if price is not None), default=None))
    return found


def _time(point: tuple[datetime, Money | None]) -> datetime:
    return point[0]


def line(prices: Sequence[Money | None], period: timedelta, per: str = "GPU-hour") -> str:
    """``last 7 d: ▂▂▃▅█ $1.90 to $2.40``; empty if fewer than two prices are known.

    Each bar shows a price on the scale from the lowest to the highest of the line; equal prices give low bars. ``per``:
    the unit that the prices are for.
    """
    known = [price for price in prices if price is not None]
    if len(known) < 2:
        return ""
    low, high = min(known), max(known)
    between = high.micros - low.micros
    bars = "".join(
        _NONE if price is None else _BARS[(price.micros - low.micros) * (len(_BARS) - 1) // (between or 1)]
        for price in prices
    )
    return f"last {_length(period)}: {bars} {low} to {high} per {per} (lowest offer)"


def _length(period: timedelta) -> str:
    for unit, size in (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("min", timedelta(minutes=1))):
        if period >= size:
            return f"{period // size} {unit}"
    return f"{period // timedelta(seconds=1)} s"
