"""Reserved units, by the hour in which they lapse."""

from __future__ import annotations


class Stock:
    """Holdings over time. Hours count from 0; a unit bought ``until`` hour 5 serves through hour 4."""

    def __init__(self) -> None:
        self._bought = 0
        self._lapsed = [0]  # units, of all ever bought, that have lapsed at the start of each hour; then constant

    def add(self, units: int, until: int) -> None:
        """``units`` more that lapse at the start of hour ``until``."""
        last = self._lapsed[-1]
        self._lapsed += [last] * (until + 1 - len(self._lapsed))
        for hour in range(until, len(self._lapsed)):
            self._lapsed[hour] += units
        self._bought += units

    def held(self, hour: int) -> int:
        """Units that serve ``hour``."""
        return self._bought - self._gone(hour)

    def lapsing(self, hour: int, within: int) -> int:
        """Units that serve ``hour`` but not ``within`` hours later."""
        return self._gone(hour + within) - self._gone(hour)

    def _gone(self, hour: int) -> int:
        return self._lapsed[min(hour, len(self._lapsed) - 1)]
