"""Daily spending (USD) of simulated processes that chose no constant of forecasts and alarms: 45 to 240 days each."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from statistics import fmean, median

LENGTHS = (45, 75, 120, 180, 240)
EPISODE = 3
_FIRST = date(2026, 1, 5)  # a Monday


@dataclass(frozen=True, slots=True)
class SimulatedSpending:
    """``plain``: USD a day; ``raised``: with forgotten jobs, each of which costs as much as the median day before for
    three days; ``episodes``: the first day of each."""

    plain: list[float]
    raised: list[float]
    episodes: list[int]


def hired_teams(chance: random.Random, length: int) -> list[float]:
    """People who come and stay, each with days of their own."""
    people, days = chance.randint(2, 8), list[float]()
    for day in range(length):
        people += chance.random() < 1 / 25
        at_work = sum(chance.random() < (0.15 if day % 7 >= 5 else 0.8) for _ in range(people))
        days.append(sum(40 * chance.lognormvariate(0, 0.8) for _ in range(at_work)))
    return days


def long_memory(chance: random.Random, length: int) -> list[float]:
    """Noises that remember two days, two weeks and three months."""
    sums = [0.0] * (length + 90)
    for memory in (0.5, 0.93, 0.99):
        x, scale = 0.0, chance.uniform(0.05, 0.25)
        for day in range(length + 90):
            x = memory * x + scale * math.sqrt(1 - memory**2) * chance.gauss(0, 1)
            sums[day] += x
    return [600 * math.exp(one) for one in sums[90:]]


def long_tailed_jobs(chance: random.Random, length: int) -> list[float]:
    """Most jobs take an hour, some take weeks: each costs its GPUs as long as it runs."""
    often, days = chance.uniform(5, 30), [0.0] * length
    for begin in range(-40, length):
        for _ in range(poisson(chance, often * (0.4 if begin % 7 >= 5 else 1))):
            left, day = min(chance.paretovariate(0.9) / 24, 40.0), begin
            gpus = chance.choice((1, 1, 2, 4, 8))
            while left > 0:
                if 0 <= day < length:
                    days[day] += 60 * gpus * min(1.0, left)
                left, day = left - 1, day + 1
    return days


def projects(chance: random.Random, length: int) -> list[float]:
    """Projects that begin slowly, last some weeks, and end, one beside the other, over a small base."""
    days = [chance.uniform(20, 40) for _ in range(length)]
    day = -40
    while day < length:
        lasts, size = chance.randint(10, 45), chance.lognormvariate(5, 0.6)
        for n in range(max(day, 0), min(day + lasts, length)):
            days[n] += size * min(1.0, (n - day + 1) / 5) * chance.lognormvariate(0, 0.2)
        day += 1 + int(chance.expovariate(1 / 14))
    return days


def nervous(chance: random.Random, length: int) -> list[float]:
    """Quiet weeks and nervous ones: the variance remembers."""
    level, variance, days = chance.uniform(100, 3000), 0.02, list[float]()
    for _ in range(length):
        shock = math.sqrt(variance) * chance.gauss(0, 1)
        variance = min(0.25, 0.003 + 0.25 * shock**2 + 0.7 * variance)
        days.append(level * math.exp(shock))
    return days


def month_ends(chance: random.Random, length: int) -> list[float]:
    """Reports and retraining in the last three days of a month, a night's batch on the others; nothing on Sundays."""
    level, more = chance.uniform(50, 500), chance.uniform(0.5, 2)
    found = list[float]()
    for n in range(length):
        day = _FIRST + timedelta(days=n)
        last = (day + timedelta(days=3)).month != day.month
        found.append(level * (1 + more * last) * (day.weekday() < 6) * chance.lognormvariate(0, 0.12))
    return found


PROCESSES = (hired_teams, long_memory, long_tailed_jobs, projects, nervous, month_ends)


def poisson(chance: random.Random, mean: float) -> int:
    count, at = -1, 0.0
    while at <= mean:
        count, at = count + 1, at + chance.expovariate(1)
    return count


def simulated_spending(seed: int) -> Iterator[SimulatedSpending]:
    """A series of each process and length."""
    for process in PROCESSES:
        for length in LENGTHS:
            chance = random.Random(f"untouched/{seed}/{process.__name__}/{length}")
            plain = process(chance, length)
            yield SimulatedSpending(plain, *_with_episodes(chance, list(plain)))


def _with_episodes(chance: random.Random, days: list[float]) -> tuple[list[float], list[int]]:
    found, at = [], 35 + chance.randrange(14)
    while at + EPISODE < len(days):
        more = median(days[at - 28 : at]) or fmean(days[at - 28 : at])
        for number in range(at, at + EPISODE):
            days[number] += more
        found.append(at)
        at += 28 + chance.randrange(21)
    return days, found
