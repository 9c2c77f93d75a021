"""Daily spending of simulated teams, for figures of forecasts and anomalies on series that nothing was chosen on.
Run: python -m tests.backtest.spending.simulated_teams --seed 9001 --out FOLDER, then
gpubroker backtest forecast FOLDER/spending.csv --json
gpubroker backtest anomalies FOLDER/spending.csv --labels FOLDER/labels.csv --json

Spending is that of jobs: how many begin on a day, how long each runs, on how many GPUs. Four families: researchers
(many jobs, few at weekends), a service (steady, with a weekly rhythm), large runs (few, of days each), and growth. Into
each series a forgotten job is put every four to seven weeks: for three days it costs as much as the median day before.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from statistics import fmean, median

DAYS = 240
EPISODE = 3
_FIRST = date(2026, 1, 1)
_USD = 2.5  # a GPU-hour

Family = Callable[[random.Random], list[float]]


def researchers(chance: random.Random) -> list[float]:
    """Twelve to forty jobs on a working day, a quarter of that at weekends, most of them hours long on one to eight
    GPUs."""
    begin = chance.uniform(12, 40)
    return _jobs(chance, lambda day: begin * (0.25 if day % 7 >= 5 else 1), hours=6, gpus=(1, 2, 4, 8))


def service(chance: random.Random) -> list[float]:
    """GPUs that are always there, more of them on working days."""
    level, rhythm = chance.uniform(200, 2000), chance.uniform(0.05, 0.3)
    return [level * (1 - rhythm * (day % 7 >= 5)) * max(chance.gauss(1, 0.05), 0.2) for day in range(DAYS)]


def large_runs(chance: random.Random) -> list[float]:
    """A run of some days begins every day or two, on 16 to 64 GPUs, beside small jobs."""
    runs = _jobs(chance, lambda day: 0.7, hours=48, gpus=(16, 32, 64))
    small = _jobs(chance, lambda day: 10.0, hours=5, gpus=(1, 2))
    return [one + other for one, other in zip(runs, small, strict=True)]


def growth(chance: random.Random) -> list[float]:
    """As of researchers, and two to five per cent more each week."""
    week = chance.uniform(0.02, 0.05)
    return [amount * (1 + week) ** (day / 7) for day, amount in enumerate(researchers(chance))]


FAMILIES: dict[str, Family] = {
    "researchers": researchers, "service": service, "large-runs": large_runs, "growth": growth,
}  # fmt: skip


def _jobs(chance: random.Random, begin: Callable[[int], float], *, hours: float, gpus: Sequence[int]) -> list[float]:
    """USD a day of all jobs together."""
    days = [0.0] * DAYS
    for costs in job_costs(chance, begin, hours=hours, gpus=gpus):
        for number, usd in costs.items():
            days[number] += usd
    return days


def job_costs(
    chance: random.Random, begin: Callable[[int], float], *, hours: float, gpus: Sequence[int], days: int = DAYS
) -> Iterator[dict[int, float]]:
    """USD a day of each job. Their time is log-normal with that median; so many begin on a day."""
    for day in range(-14, days):
        for _ in range(_poisson(chance, begin(day))):
            at, left = day * 24 + chance.uniform(8, 20), hours * chance.lognormvariate(0, 0.9)
            usd, ends = chance.choice(gpus) * _USD, at + min(left, 14 * 24)
            numbers = range(max(int(at // 24), 0), min(int(ends // 24) + 1, days))
            yield {number: usd * max(min(ends, number * 24 + 24) - max(at, number * 24), 0) for number in numbers}


def _poisson(chance: random.Random, mean: float) -> int:
    count, at = -1, 0.0
    while at <= mean:
        count, at = count + 1, at + chance.expovariate(1)
    return count


def with_episodes(chance: random.Random, days: list[float]) -> tuple[list[float], list[tuple[int, int]]]:
    """The days with what forgotten jobs cost, and the first and last day of each."""
    found, at = [], 35 + chance.randrange(14)
    while at + EPISODE < len(days):
        more = median(days[at - 28 : at]) or fmean(days[at - 28 : at])
        for number in range(at, at + EPISODE):
            days[number] += more
        found.append((at, at + EPISODE - 1))
        at += 28 + chance.randrange(21)
    return days, found


def series(seed: int, of_each: int = 6) -> Iterator[tuple[str, list[float], list[tuple[int, int]]]]:
    """So many of each family, by name, with their episodes."""
    for family, make in FAMILIES.items():
        for number in range(of_each):
            chance = random.Random(f"{seed}/{family}/{number}")
            yield f"{family}-{number}", *with_episodes(chance, make(chance))


def _plain(seed: int, name: str) -> list[float]:
    family, _, number = name.rpartition("-")
    return FAMILIES[family](random.Random(f"{seed}/{family}/{number}"))


def write(seed: int, out: Path) -> None:
    """``plain.csv`` without episodes, ``spending.csv`` with them, and ``labels.csv``."""
    every = list(series(seed))
    days = [(_FIRST + timedelta(days=number)).isoformat() for number in range(DAYS)]
    plain = {name: _plain(seed, name) for name, *_ in every}
    for file, columns in (("spending.csv", {name: amounts for name, amounts, _ in every}), ("plain.csv", plain)):
        with (out / file).open("w", newline="") as opened:
            rows = csv.writer(opened)
            rows.writerow(["day", *columns])
            rows.writerows([day, *(f"{amounts[n]:.2f}" for amounts in columns.values())] for n, day in enumerate(days))
    with (out / "labels.csv").open("w", newline="") as opened:
        rows = csv.writer(opened)
        rows.writerow(["series", "first_day", "last_day"])
        rows.writerows([name, days[first], days[last]] for name, _, found in every for first, last in found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    write(asked.seed, asked.out)
