"""Weekly pattern, trend and long past of an hourly demand.

Plain arithmetic on the hours seen so far. Demand in any unit, time in hours.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence


class SlidingWindow:
    """The last ``hours`` values, or fewer at the beginning. Adding one costs a search and a shift, which for windows of
    weeks is a microsecond or two."""

    def __init__(self, hours: int) -> None:
        self._hours = hours
        self._latest: deque[float] = deque(maxlen=hours)
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._sorted)

    def extend(self, values: Sequence[float]) -> None:
        """Take many hours at once, oldest first."""
        self._latest.extend(values[-self._hours :])
        self._sorted = sorted(self._latest)

    def add(self, value: float) -> None:
        """Take the next hour's value; the oldest leaves once the window is full."""
        if len(self._latest) == self._hours:
            del self._sorted[bisect_left(self._sorted, self._latest.popleft())]
        self._latest.append(value)
        insort(self._sorted, value)

    def quantile(self, q: float) -> float:
        """The quantile ``q`` of the hours, interpolated; outside 0 to 1 the extremes; 0 for an empty window."""
        if not self._sorted:
            return 0.0
        at = min(max(q, 0.0), 1.0) * (len(self._sorted) - 1)
        low = int(at)
        high = min(low + 1, len(self._sorted) - 1)
        return self._sorted[low] + (at - low) * (self._sorted[high] - self._sorted[low])

    def level(self, share: float) -> float:
        """The largest value that at least a ``share`` of the hours reaches; 0 if none. For ``share`` ρ this is the (1 −
        ρ)-quantile of the level rule.
        """
        hours = math.ceil(share * len(self._sorted) - 1e-9)
        return self._sorted[len(self._sorted) - max(hours, 1)] if 0 <= hours <= len(self._sorted) != 0 else 0.0

    def largest(self, rank: int) -> float | None:
        """The value that ``rank`` values stand above in the order (0: the largest); None with fewer values."""
        return self._sorted[-1 - rank] if rank < len(self._sorted) else None


WEEK = 168

LONGEST_LOOK = 52 * WEEK
"""The hours over which a trend is determined."""

REGULAR_WITHIN = 0.05
"""Demand repeats weekly if, over a week or two, an hour differs from the same hour a week before by this share of the
mean demand at most."""

LEAST_PAST = 4 * WEEK
"""The known past is looked back at for this long or for the term, if that is longer."""

LATEST_HOURS = 6
LATEST_WITHIN = 0.15
"""The same for the last hours, so that a pattern that just broke does not count."""

LONG_TERM = 2190
"""Terms of a quarter and more (hours): the latest weeks may be a season, so the whole known past counts as well."""

LEAST_TREND_WEEKS = 8
TREND_FIT = 0.8
"""The R² of a straight line through weekly means from which on they count as a trend."""


class Season:
    """Pattern and trend of the demand so far, for reservations of ``term`` hours."""

    def __init__(self, term: int) -> None:
        self._term = term
        self._week = SlidingWindow(WEEK)
        self._past = SlidingWindow(max(term, LEAST_PAST))
        self._latest: deque[float] = deque(maxlen=3 * WEEK)
        self._changed = 0.0
        self._weekly: deque[float] = deque(maxlen=LONGEST_LOOK // WEEK)
        self._hours, self._total = 0, 0.0

    def extend(self, values: Iterable[float]) -> None:
        for value in values:
            self.add(value)

    def add(self, value: float) -> None:
        """The demand of the next hour."""
        if len(self._latest) == 3 * WEEK:
            self._changed -= abs(self._latest[WEEK] - self._latest[0])
        self._latest.append(value)
        if len(self._latest) > WEEK:
            self._changed += abs(value - self._latest[-1 - WEEK])
        self._week.add(value)
        self._past.add(value)
        self._hours += 1
        self._total += value
        if self._hours % WEEK == 0:
            self._weekly.append(self._total / WEEK)
            self._total = 0.0

    @property
    def error(self) -> float | None:
        """The mean difference between an hour and the same hour a week before: the mean over up to two weeks, as a
        share of the mean demand of those; None before two weeks are known, or without demand."""
        compared = len(self._latest) - WEEK
        if compared < WEEK:
            return None
        demand = sum(list(self._latest)[WEEK:])
        return self._changed / demand if demand > 0 else None

    @property
    def _broken(self) -> bool:
        """Whether the last hours differ from those a week before."""
        hours, last = self._latest, len(self._latest)
        changed = sum(abs(hours[at] - hours[at - WEEK]) for at in range(last - LATEST_HOURS, last))
        mean = sum(hours[at] for at in range(last - WEEK, last)) / WEEK
        return changed / LATEST_HOURS > LATEST_WITHIN * mean

    def regular_level(self, ratio: float) -> float:
        """The level that the last week reached at least a share ``ratio`` of the time; 0 where demand is not regular.

        The share asked is larger by the error with which the weeks repeat.
        """
        error = self.error
        if error is None or error > REGULAR_WITHIN or ratio + error > 1 or self._broken:
            return 0.0
        return self._week.level(ratio + error)

    def most_worth(self, ratio: float, *, careful: bool = False) -> float:
        """The level above which nothing should be bought for the term, whatever the last weeks say; infinite where
        the past gives no reason.

        A falling trend is followed to the hour that decides, ``ratio`` · term from now. For a long term without a
        rising trend, and where the rule must be ``careful``, a level must have been reached a share ``ratio`` of the
        known past, up to one term: a high quarter is then not taken for a year.
        """
        slope, fit = self._trend()
        trend = fit >= TREND_FIT
        if trend and slope < 0:
            return max(0.0, self._weekly[-1] + slope * ratio * self._term / WEEK)
        if not len(self._past) or not (careful or (self._term >= LONG_TERM and not trend)):
            return float("inf")
        return self._past.level(min(ratio, 1.0))

    def _trend(self) -> tuple[float, float]:
        """The slope per week of a line through the weekly means, and its R²."""
        count = len(self._weekly)
        if count < LEAST_TREND_WEEKS:
            return 0.0, 0.0
        middle, mean = (count - 1) / 2, sum(self._weekly) / count
        width = sum((week - middle) ** 2 for week in range(count))
        both = sum((week - middle) * (value - mean) for week, value in enumerate(self._weekly))
        spread = sum((value - mean) ** 2 for value in self._weekly)
        if spread <= 1e-12 * (1 + mean * mean):
            return 0.0, 0.0
        return both / width, both * both / (width * spread)
