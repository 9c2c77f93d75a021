"""Backtest of anomaly detection on recorded daily spending: `run_anomaly_backtest`.

With labels: an episode is found if an alarm is active on one of its days; alarms outside of episodes are false. Without
labels: every alarm counts as false, and detection is measured with planted episodes of three days, at random days of
the seed, with each day raised by 50, 100 or 200 % of the median of the four weeks before. Days with an alarm of their
own are not used for planting.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from broker.backtest.spending.series import DailySpending, MarkedEpisode
from broker.finops.anomalies import WARM_UP, WINDOW, AlarmThreshold, DayScore, Incident, incidents, scores

SIZES = (0.5, 1.0, 2.0)
PLANTED_DAYS = 3
PLANTED_EACH = 30
_PER = 30


@dataclass(frozen=True, slots=True)
class FoundEpisodes:
    """Of ``episodes`` that could be judged, ``found`` were found, after ``delays`` days each. ``size``: the increase of
    planted ones, as a fraction of the median before."""

    episodes: int
    delays: tuple[int, ...]
    size: float | None = None

    @property
    def found(self) -> int:
        return len(self.delays)

    @property
    def recall(self) -> float | None:
        return self.found / self.episodes if self.episodes else None

    @property
    def mean_delay(self) -> float | None:
        return fmean(self.delays) if self.delays else None


@dataclass(frozen=True, slots=True)
class JudgedSeries:
    """A series, its incidents, and the number of its judged days outside of marked episodes. ``false_alarms``:
    incidents outside of marked episodes; ``false_days``: their days, and ``false_excess`` their cost (USD) above the
    usual level, which would not have been spent if alarms stopped jobs. ``judged_amount``: the cost of the judged
    days."""

    series: DailySpending
    incidents: tuple[Incident, ...]
    false_alarms: int
    false_days: int
    false_excess: float
    judged_days: int
    judged_amount: float


@dataclass(frozen=True, slots=True)
class AlarmAccuracy:
    """``marked``: results for labelled episodes; None without labels. ``planted``: results by size; empty with labels.
    ``unjudged``: labels within the warm-up of their series."""

    series: tuple[JudgedSeries, ...]
    marked: FoundEpisodes | None
    planted: tuple[FoundEpisodes, ...]
    unjudged: int
    sensitivity: AlarmThreshold
    seed: int

    @property
    def judged_days(self) -> int:
        return sum(one.judged_days for one in self.series)

    @property
    def false_alarms(self) -> int:
        return sum(one.false_alarms for one in self.series)

    @property
    def alarms_per_30(self) -> float | None:
        """False alarms in 30 days of one series."""
        return self.false_alarms * _PER / self.judged_days if self.judged_days else None

    @property
    def alarm_days_per_30(self) -> float | None:
        """Days of false alarms in 30 days of one series."""
        days = sum(one.false_days for one in self.series)
        return days * _PER / self.judged_days if self.judged_days else None

    @property
    def held_back(self) -> float | None:
        """The share of all judged spending that would have been stopped by false alarms."""
        spent = sum(one.judged_amount for one in self.series)
        return sum(one.false_excess for one in self.series) / spent if spent > 0 else None


def run_anomaly_backtest(
    series: Sequence[DailySpending], labels: Sequence[MarkedEpisode] | None, at: AlarmThreshold, seed: int
) -> AlarmAccuracy:
    """Judge every series; ``labels`` None: plant episodes."""
    judged, found, delays, unjudged = [], 0, list[int](), 0
    scored = {one.name: scores(one.days) for one in series}
    for one in series:
        episodes = [label for label in labels or () if label.series == one.name]
        judged.append(_judged(one, scored[one.name], episodes, at))
        for episode in episodes:
            of_it = scored[one.name][episode.first : episode.last + 1]
            if not any(of_it):
                unjudged += 1
                continue
            found += 1
            delays += _delay(of_it, at)
    if labels is not None:
        return AlarmAccuracy(tuple(judged), FoundEpisodes(found, tuple(delays)), (), unjudged, at, seed)
    planted = tuple(_planted(series, scored, size, at, seed) for size in SIZES)
    return AlarmAccuracy(tuple(judged), None, planted, 0, at, seed)


def too_short(series: Sequence[DailySpending]) -> list[str]:
    """A sentence for each series that is too short to judge."""
    return [
        f"{one.name}: {len(one.days)} days, and the first {WARM_UP} are not judged: nothing could be found"
        for one in series
        if len(one.days) <= WARM_UP
    ]


def _judged(
    series: DailySpending, scored: Sequence[DayScore | None], episodes: Sequence[MarkedEpisode], at: AlarmThreshold
) -> JudgedSeries:
    alarms = incidents(scored, at)
    false = [alarm for alarm in alarms if not any(it.first <= alarm.last and alarm.first <= it.last for it in episodes)]
    marked = {day for it in episodes for day in range(it.first, it.last + 1)}
    days = [day for day, score in enumerate(scored) if score is not None and day not in marked]
    return JudgedSeries(
        series,
        tuple(alarms),
        false_alarms=len(false),
        false_days=sum(alarm.last - alarm.first + 1 for alarm in false),
        false_excess=sum(alarm.excess for alarm in false),
        judged_days=len(days),
        judged_amount=sum(series.days[day] for day in days),
    )


def _planted(
    series: Sequence[DailySpending],
    scored: dict[str, list[DayScore | None]],
    size: float,
    at: AlarmThreshold,
    seed: int,
) -> FoundEpisodes:
    chance, episodes, delays = random.Random(seed), 0, list[int]()  # noqa: S311 - repeatable places, not a secret
    for one in series:
        for start in _places(one, scored[one.name], at, chance):
            raised = list(one.days[: start + PLANTED_DAYS])
            more = size * median(one.days[max(0, start - WINDOW) : start])
            for day in range(start, start + PLANTED_DAYS):
                raised[day] += more
            episodes += 1
            delays += _delay(scores(raised, since=start)[start:], at)
    return FoundEpisodes(episodes, tuple(delays), size)


def _places(
    series: DailySpending, scored: Sequence[DayScore | None], at: AlarmThreshold, chance: random.Random
) -> Iterator[int]:
    last = len(series.days) - PLANTED_DAYS
    if last <= WARM_UP:
        return
    for _ in range(PLANTED_EACH):
        start = chance.randint(WARM_UP, last)
        quiet = all(
            score is not None and not score.exceeds(at) for score in scored[start : start + PLANTED_DAYS]
        ) and median(series.days[max(0, start - WINDOW) : start])
        if quiet:
            yield start


def _delay(scored: Sequence[DayScore | None], at: AlarmThreshold) -> list[int]:
    """The days until the first alarm, as a list of one; empty without an alarm."""
    return [day for day, score in enumerate(scored) if score is not None and score.exceeds(at)][:1]
