"""Daily spending of three lots of simulated processes, for figures of forecasts and anomalies: ``design`` may choose
constants, ``judged`` tells whether a choice is better, ``untouched`` is for the figures that are published and chose
nothing. No two lots share a process. Run: python -m tests.backtest.spending.simulated_demand --lot untouched --seed 7
--out FOLDER, then
gpubroker backtest forecast FOLDER/plain.csv --json
gpubroker backtest anomalies FOLDER/spending.csv --labels FOLDER/labels.csv --json

Each process makes series of 45 to 240 days. Into ``spending.csv`` forgotten jobs are put, as in `simulated_teams`.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from itertools import accumulate
from pathlib import Path

from tests.backtest.spending.simulated_teams import with_episodes

LENGTHS = (45, 75, 120, 180, 240)
_FIRST = date(2026, 1, 5)  # a Monday

Process = Callable[[random.Random, int], list[float]]


def autocorrelated(chance: random.Random, length: int) -> list[float]:
    """A level with a noise that remembers some days."""
    memory, noise, level = chance.uniform(0, 0.9), chance.uniform(0.05, 0.4), chance.uniform(50, 5000)
    steps = accumulate(range(length), lambda x, _: memory * x + noise * chance.gauss(0, 1), initial=0.0)
    return [level * max(0.0, 1 + step) for step in steps][:length]


def shifting_levels(chance: random.Random, length: int) -> list[float]:
    """A new level every five weeks or so."""
    noise, level, days = chance.uniform(0.03, 0.25), chance.uniform(100, 2000), list[float]()
    for _ in range(length):
        level *= chance.lognormvariate(0, 0.6) if chance.random() < 1 / 35 else 1
        days.append(level * max(0.0, chance.gauss(1, noise)))
    return days


def weekdays_and_trend(chance: random.Random, length: int) -> list[float]:
    """A week's pattern on a line that rises or falls."""
    slope, noise, level = chance.uniform(-0.003, 0.008), chance.uniform(0.03, 0.2), chance.uniform(100, 2000)
    week = [chance.uniform(0.9, 1.2)] * 5 + [chance.uniform(0.1, 0.9)] * 2
    return [
        level * week[n % 7] * max(0.05, 1 + slope * n) * max(0.0, chance.gauss(1, noise)) for n in range(length)
    ]  # fmt: skip


def campaigns(chance: random.Random, length: int) -> list[float]:
    """Days of work between days of nothing."""
    busy, begin, end, days = chance.random() < 0.5, chance.uniform(0.1, 0.4), chance.uniform(0.05, 0.25), list[float]()
    for _ in range(length):
        busy = chance.random() >= end if busy else chance.random() < begin
        days.append(busy * chance.lognormvariate(6, 0.5))
    return days


def bursts(chance: random.Random, length: int) -> list[float]:
    """A small base, and days of ten times as much now and then."""
    often, size = chance.uniform(0.05, 0.2), chance.uniform(2, 6)
    return [
        100 * chance.lognormvariate(0, 0.2) + (100 * size * chance.paretovariate(2) if chance.random() < often else 0)
        for _ in range(length)
    ]


def wandering(chance: random.Random, length: int) -> list[float]:
    """Each day is the one before, more or less."""
    step, noise = chance.uniform(0.01, 0.1), chance.uniform(0.01, 0.1)
    levels = accumulate(range(length), lambda x, _: x + step * chance.gauss(0, 1), initial=chance.uniform(4, 8))
    return [math.exp(level + noise * chance.gauss(0, 1)) for level in levels][:length]


def regimes(chance: random.Random, length: int) -> list[float]:
    """Three levels, one to four weeks at each."""
    levels, stay = [chance.lognormvariate(6, 0.7) for _ in range(3)], chance.uniform(7, 28)
    now, days = 0, list[float]()
    for _ in range(length):
        now = chance.randrange(3) if chance.random() < 1 / stay else now
        days.append(levels[now] * chance.lognormvariate(0, 0.15))
    return days


def self_exciting(chance: random.Random, length: int) -> list[float]:
    """Jobs lead to more jobs the days after; fewer at weekends."""
    base, more, heat, days = chance.uniform(3, 20), chance.uniform(0.2, 0.85), 0.0, list[float]()
    for day in range(-20, length):
        jobs = _poisson(chance, (base * (1 - more) + heat) * (0.5 if day % 7 >= 5 else 1))
        heat = 0.6 * heat + 0.4 * more * jobs
        days.append(sum(chance.lognormvariate(3, 1) for _ in range(jobs)))
    return days[20:]


def capped_fleet(chance: random.Random, length: int) -> list[float]:
    """Demand beyond what there is waits: many days at the cap."""
    cap, wanted, queue, days = 1000.0, chance.uniform(0.6, 1.0), 0.0, list[float]()
    for day in range(length):
        queue += 1000 * wanted * (0.6 if day % 7 >= 5 else 1.1) * chance.lognormvariate(0, 0.4)
        days.append(min(cap, queue))
        queue = 0.7 * (queue - days[-1])
    return days


def deadlines(chance: random.Random, length: int) -> list[float]:
    """Spending rises for three weeks to a deadline every fifty days, and falls at once."""
    peak, noise, shift = chance.uniform(1, 4), chance.uniform(0.1, 0.3), chance.randrange(50)
    return [
        200 * (1 + peak * max(0.0, ((n + shift) % 50 - 29) / 21)) * chance.lognormvariate(0, noise)
        for n in range(length)
    ]


def holidays(chance: random.Random, length: int) -> list[float]:
    """A steady week, and a week of almost nothing now and then."""
    level, off, days = chance.uniform(200, 900), 0, list[float]()
    for day in range(length):
        off = 7 if not off and chance.random() < 1 / 50 else max(0, off - 1)
        days.append(level * (0.1 if off else 1) * (0.4 if day % 7 >= 5 else 1) * chance.lognormvariate(0, 0.25))
    return days


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
        for _ in range(_poisson(chance, often * (0.4 if begin % 7 >= 5 else 1))):
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


LOTS: dict[str, tuple[Process, ...]] = {
    "design": (autocorrelated, shifting_levels, weekdays_and_trend, campaigns, bursts, wandering),
    "judged": (regimes, self_exciting, capped_fleet, deadlines, holidays),
    "untouched": (hired_teams, long_memory, long_tailed_jobs, projects, nervous, month_ends),
}


def _poisson(chance: random.Random, mean: float) -> int:
    count, at = -1, 0.0
    while at <= mean:
        count, at = count + 1, at + chance.expovariate(1)
    return count


def series(lot: str, seed: int) -> Iterator[tuple[str, list[float], list[float], list[tuple[int, int]]]]:
    """A series of each process and length: its name, its days, those with forgotten jobs, and the days of each."""
    for process in LOTS[lot]:
        for length in LENGTHS:
            chance = random.Random(f"{lot}/{seed}/{process.__name__}/{length}")
            plain = process(chance, length)
            yield f"{process.__name__}-{length}", plain, *with_episodes(chance, list(plain))


def write(lot: str, seed: int, out: Path) -> None:
    """``plain.csv`` without forgotten jobs, ``spending.csv`` with them, and ``labels.csv``."""
    every = list(series(lot, seed))
    days = [(_FIRST + timedelta(days=number)).isoformat() for number in range(max(LENGTHS))]
    for file, columns in (
        ("plain.csv", {name: plain for name, plain, *_ in every}),
        ("spending.csv", {name: raised for name, _, raised, _ in every}),
    ):
        with (out / file).open("w", newline="") as opened:
            rows = csv.writer(opened)
            rows.writerow(["day", *columns])
            for n, day in enumerate(days):
                rows.writerow([day, *(f"{one[n]:.2f}" if n < len(one) else "" for one in columns.values())])
    with (out / "labels.csv").open("w", newline="") as opened:
        rows = csv.writer(opened)
        rows.writerow(["series", "first_day", "last_day"])
        rows.writerows([name, days[first], days[last]] for name, *_, found in every for first, last in found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lot", choices=LOTS, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    write(asked.lot, asked.seed, asked.out)
