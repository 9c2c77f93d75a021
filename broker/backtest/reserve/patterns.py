"""Synthetic demand to try reserve rules on: two weeks and a year of whole units an hour, always the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.backtest.reserve.demand import Demand
from broker.core.errors import UnknownName

PATTERN_HOURS = 336 + 8760
"""Two weeks of known history, and a year that is measured."""

_YEAR = 8760
_SHAPES: dict[str, tuple[Callable[[int], int], str]] = {
    "constant": (lambda hour: 10, "10 at all hours"),
    "half-day": (lambda hour: 12 if hour % 24 < 12 else 4, "12 for half of each day, else 4"),
    "weekday": (lambda hour: 20 if hour // 24 % 7 < 5 else 5, "20 on weekdays, 5 on weekends"),
    "quarter-end": (lambda hour: 12 if hour // 24 % 91 >= 77 else 4, "12 in the last two weeks of a quarter, else 4"),
    "ramp": (lambda hour: 5 + 15 * hour // PATTERN_HOURS, "rising from 5 to 20"),
    "stop": (lambda hour: 10 if hour < PATTERN_HOURS - _YEAR // 2 else 0, "10, and nothing in the last half year"),
    "burst": (lambda hour: 20 if hour // 48 % 15 == 7 else 4, "two days of 20 a month, else 4"),
}
PATTERNS = tuple(_SHAPES)


def pattern_demand(names: Iterable[str]) -> list[Demand]:
    """The patterns by name. Raises `UnknownName`."""
    return [_pattern(name) for name in names]


def _pattern(name: str) -> Demand:
    if name not in _SHAPES:
        raise UnknownName("pattern", name, PATTERNS)
    units, says = _SHAPES[name]
    hours = tuple(units(hour) for hour in range(PATTERN_HOURS))
    return Demand(name, hours, where=f"pattern {name}", notes=(f"synthetic, {says}",))
