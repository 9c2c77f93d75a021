"""Round positions for the ticks of an axis."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from math import ceil, floor, log10

from broker.cli.render.charts.chart import number

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
