"""The reserve planner: how many units to reserve, from the demand so far.

A unit that costs the share ``ratio`` (ρ) of the on-demand price whether used or not is worth holding when demand
reaches it at least that share of the time. Six things are added to this level rule. The first three:

- **Patience.** A purchase can wait an hour, but binds for the term. So the required share of use is ρ plus a margin,
  ``PATIENCE`` · ρ(1 − ρ), and a unit is bought only while it is in use.
- **Early renewal.** A unit bought now replaces the renewal of one that lapses soon and would be renewed anyway. It adds
  only the time until that renewal, so it is judged by demand over such a short time, with proportionally less patience.
- **Several memories.** Quantiles over several past periods are averaged, so the plan follows a change of level in
  steps, and one unusual day has little effect.

Three more handle weekly patterns and trends:

- **Season.** Demand that repeats from week to week needs no patience, and its units need not be in use at this hour.
- **Past and trend.** A falling trend is followed; for a term of a quarter or more the whole known past must justify a
  purchase, unless demand rises steadily.
- **Regret.** While the rule has cost more, by `REGRET_ALLOWED`, than buying nothing or than permanent care would have,
  the whole known past must justify a purchase, whatever the term.

Demand and units are in whatever is reserved (GPUs, machines); time is in hours. Costs are multiples of one on-demand
hour.
"""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence
from functools import cache

from broker.core.errors import InvalidInput
from broker.economics.reserve.replay import Stock
from broker.economics.units import positive, whole

PATIENCE = 0.8
"""The margin over ρ, in units of ρ(1 − ρ), for a whole term. Results change little between 0.6 and 1."""

IN_USE_HOURS = 6
"""A unit counts as in use when demand reached it in each of this many hours."""

MIN_KNOWN_HOURS = 24
"""Minimum hours of known demand before anything is bought."""

HORIZONS = (12, 24, 72, 168)
"""Hours until a renewal that is saved; each is judged by memories of at most that length."""

REGRET_ALLOWED = 0.02
"""The rule becomes careful when its cost exceeds that of buying nothing, or of constant care, by this share."""

LONGEST_TERM = 5 * 8760


@cache
def memories(term: int) -> tuple[int, ...]:
    """The stretches of the past, in hours, that count for a whole ``term``: three days and a week, and for terms of
    months and years three times as much, and so on, up to about a quarter of the term."""
    windows = [72, 168]
    while windows[-1] * 3 <= term / 4:
        windows.append(windows[-1] * 3)
    return tuple(windows)


def hours_used(term: int) -> int:
    """The most hours of the past that the rule looks at for a ``term``."""
    return max(*memories(term), *HORIZONS, LONGEST_LOOK, min(term, LONGEST_TERM))


def required_share(ratio: float, patience: float = PATIENCE) -> float:
    """The share of hours in which demand must reach a unit for it to be bought: ρ + patience · ρ(1 − ρ)."""
    return ratio + patience * ratio * (1 - ratio)


class Memory:
    """Stored demand: sorted windows of its latest hours. ``lot``: the units that are only sold together, as a machine
    with its GPUs."""

    def __init__(self, term: int, history: Iterable[float] = (), lot: int = 1) -> None:
        self.term = whole("term", term, most=LONGEST_TERM)
        self._lot = lot
        self._windows = {hours: SlidingWindow(hours) for hours in (IN_USE_HOURS, *HORIZONS, *memories(term))}
        self._season = Season(term)
        self.extend(history)

    def extend(self, history: Iterable[float]) -> None:
        """The demand of the next hours, oldest first, each 0 or more. Raises InvalidInput."""
        values = [_demand(demand) for demand in history]
        for window in self._windows.values():
            window.extend(values)
        self._season.extend(values)

    def add(self, demand: float) -> None:
        """The demand of the next hour, 0 or more. Raises InvalidInput."""
        value = _demand(demand)
        for window in self._windows.values():
            window.add(value)
        self._season.add(value)

    @property
    def in_use(self) -> int:
        """The whole units that demand reached in each of the last hours; 0 before a day of demand is known."""
        if len(self._windows[HORIZONS[-1]]) < MIN_KNOWN_HOURS:
            return 0
        return math.floor(self._windows[IN_USE_HOURS].quantile(0.0))

    def share_asked(self, ratio: float) -> float:
        """The share of hours in which demand must reach a unit: ρ and the error with which weeks repeat, where demand
        is regular; else `required_share`."""
        regular_share = self._season.regular_share(ratio)
        return required_share(ratio) if regular_share is None else regular_share

    def reached(self, ratio: float) -> int:
        """The whole units that may be bought now: those in use, and for demand that repeats weekly all that a week
        needs."""
        return max(self.in_use, math.floor(self._season.regular_level(ratio)))

    def level(self, ratio: float, patience: float = PATIENCE, *, careful: bool = False) -> int:
        """Units worth holding for the whole term. Never more at a higher ``ratio``; 0 above 1, where on-demand is
        cheaper at any use.
        """
        base_level = self._mean(memories(self.term), positive("ratio", ratio), patience)
        if ratio > 1:
            return 0
        ceiling = self._season.max_level(ratio, careful=careful)
        target = max(base_level, math.floor(self._season.regular_level(ratio)))
        return target if math.isinf(ceiling) else min(target, math.floor(ceiling))

    def level_for(self, horizon: int, ratio: float) -> int:
        """Units worth holding for ``horizon`` hours only, one of `HORIZONS`, and for no longer than the term."""
        patience = PATIENCE * min(horizon, self.term) / HORIZONS[-1]
        return self._mean([hours for hours in HORIZONS if hours <= horizon], ratio, min(patience, PATIENCE))

    def lots(self, units: int, held: int, asked: float) -> int:
        """``units`` beyond the ``held`` ones in whole lots: one that they fill in part only if its units are needed in
        the share ``asked`` of the hours on average."""
        part = units % self._lot
        if part == 0:
            return units
        use = self._windows[max(memories(self.term))].use(held + units - part, self._lot)
        return units - part + (self._lot if use >= asked else 0)

    def _mean(self, lengths: Iterable[int], ratio: float, patience: float) -> int:
        if ratio > 1:
            return 0
        q = 1 - required_share(ratio, patience)
        levels = [self._windows[hours].quantile(q) for hours in lengths]
        return math.floor(sum(levels) / len(levels) + 0.5)


def _demand(value: float) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise InvalidInput(f"demand: expected 0 or more, got {value!r}")
    return value


def units_to_buy(memory: Memory, ratio: float, stock: Stock, hour: int, *, careful: bool = False) -> int:
    """Units to buy at the start of ``hour`` for one term, given the holdings and their ends. ``careful``: nothing that
    the whole known past does not justify."""
    held, in_use = stock.held(hour), memory.reached(ratio)
    if in_use <= held:
        return 0
    level = memory.level(ratio, careful=careful)
    target = max(held, min(level, in_use))
    early = 0
    for horizon in HORIZONS:
        lapsing = stock.lapsing(hour, min(horizon, memory.term))
        renewals = min(max(level - (target - lapsing), 0), lapsing)
        early = max(early, min(renewals, memory.level_for(horizon, ratio) - target, in_use - target))
    return memory.lots(target + early - held, held, memory.share_asked(ratio))


class Planner:
    """The planner as a rule of purchase (`broker.economics.reserve.replay.Buyer`)."""

    def __init__(self, term: int, ratio: float, lot: int = 1) -> None:
        self._memory = Memory(term, lot=lot)
        self._ratio = positive("ratio", ratio)
        # The cost so far (reservations pro rata) of this rule, of buying nothing, and of being careful always.
        self._cost = self._nothing = self._careful = 0.0
        self._careful_stock, self._hour = Stock(), 0

    def remember(self, history: Iterable[float]) -> None:
        self._memory.extend(history)

    def buy(self, stock: Stock, hour: int, hours_left: int | None) -> int:
        """The units to buy now. If the end is known, a term must pay back in the remaining time."""
        ratio = self._ratio
        if hours_left is not None and hours_left < self._memory.term:
            ratio *= self._memory.term / hours_left
        self._hour = hour
        if ratio > 1:
            return 0
        if units := units_to_buy(self._memory, ratio, self._careful_stock, hour, careful=True):
            self._careful_stock.add(units, hour + self._memory.term)
        careful = self._cost > min(self._nothing, self._careful) * (1 + REGRET_ALLOWED)
        return units_to_buy(self._memory, ratio, stock, hour, careful=careful)

    def observe(self, demand: float, held: int) -> None:
        self._memory.add(demand)
        self._nothing += demand
        self._cost += self._price(demand, held)
        self._careful += self._price(demand, self._careful_stock.held(self._hour))

    def _price(self, demand: float, held: int) -> float:
        """The cost of an hour with ``held`` units, in on-demand prices of a unit."""
        return self._ratio * held + max(demand - held, 0.0)


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
        position = min(max(q, 0.0), 1.0) * (len(self._sorted) - 1)
        low = int(position)
        high = min(low + 1, len(self._sorted) - 1)
        return self._sorted[low] + (position - low) * (self._sorted[high] - self._sorted[low])

    def level(self, share: float) -> float:
        """The largest value that at least a ``share`` of the hours reaches; 0 if none. For ``share`` ρ this is the (1 −
        ρ)-quantile of the level rule.
        """
        hours = math.ceil(share * len(self._sorted) - 1e-9)
        return self._sorted[len(self._sorted) - max(hours, 1)] if 0 <= hours <= len(self._sorted) != 0 else 0.0

    def use(self, first: int, units: int) -> float:
        """The share of the hours in which ``units`` above the ``first`` ones are needed, on average."""
        used = sum(min(max(value - first, 0), units) for value in self._sorted)
        return used / (units * max(len(self._sorted), 1))


WEEK = 168

LONGEST_LOOK = 52 * WEEK
"""The hours over which a trend is determined."""

REGULAR_WITHIN = 0.05
"""Demand repeats weekly if, over a week or two, an hour differs from the same hour a week before by this share of the
mean demand at most."""

MIN_PAST = 4 * WEEK
"""The known past is looked back at for this long or for the term, if that is longer."""

LATEST_HOURS = 6
LATEST_WITHIN = 0.15
"""The same for the last hours, so that a pattern that just broke does not count."""

LONG_TERM = 2190
"""Terms of a quarter and more (hours): the latest weeks may be a season, so the whole known past counts as well."""

MIN_TREND_WEEKS = 8
TREND_FIT = 0.8
"""The R² of a straight line through weekly means from which on they count as a trend."""


class Season:
    """Pattern and trend of the demand so far, for reservations of ``term`` hours."""

    def __init__(self, term: int) -> None:
        self._term = term
        self._week = SlidingWindow(WEEK)
        self._past = SlidingWindow(max(term, MIN_PAST))
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
        hours, count = self._latest, len(self._latest)
        changed = sum(abs(hours[index] - hours[index - WEEK]) for index in range(count - LATEST_HOURS, count))
        mean = sum(hours[index] for index in range(count - WEEK, count)) / WEEK
        return changed / LATEST_HOURS > LATEST_WITHIN * mean

    def regular_share(self, ratio: float) -> float | None:
        """``ratio`` and the error with which the weeks repeat; None where demand is not regular."""
        error = self.error
        if error is None or error > REGULAR_WITHIN or ratio + error > 1 or self._broken:
            return None
        return ratio + error

    def regular_level(self, ratio: float) -> float:
        """The level that the last week reached at least the regular share of the time; 0 where demand is not
        regular."""
        share = self.regular_share(ratio)
        return 0.0 if share is None else self._week.level(share)

    def max_level(self, ratio: float, *, careful: bool = False) -> float:
        """The level above which nothing should be bought for the term, whatever the last weeks say; infinity for no
        limit.

        With a falling trend: the demand that the trend predicts at ``ratio`` · term from now, the hour at which a
        purchase breaks even. For a long term without a rising trend, or if ``careful``: the level that demand reached
        for the share ``ratio`` of the known past, at most one term, so that one high quarter does not decide a year.
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
        if count < MIN_TREND_WEEKS:
            return 0.0, 0.0
        middle, mean = (count - 1) / 2, sum(self._weekly) / count
        width = sum((week - middle) ** 2 for week in range(count))
        covariance = sum((week - middle) * (value - mean) for week, value in enumerate(self._weekly))
        spread = sum((value - mean) ** 2 for value in self._weekly)
        if spread <= 1e-12 * (1 + mean * mean):
            return 0.0, 0.0
        return covariance / width, covariance * covariance / (width * spread)
