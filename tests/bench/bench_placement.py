"""How long the strategy and its measurement take. Run: python -m tests.bench.bench_placement

``full`` measures the whole of 8 pools, 3 deadlines and 100 starts; without, two starts stand for it.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from broker.economics.reserve.replay import ReserveTerms
from broker.placement.strategy.choose import session_for
from broker.placement.strategy.situation import Mode, Situation, StrategyTask
from tests.lab.reserve_rules import optimum
from tests.lab.windows import DEFAULT_POLICIES, Request, measure

HOUR = 3600.0
POOLS, DEADLINES, STARTS = 8, (52 * HOUR, 60 * HOUR, 70 * HOUR), 100


def spells(seed: int, ticks: int) -> list[bool]:
    """Capacity that comes and goes every few hours, ten minutes a tick."""
    dice, bits, up = Random(seed), list[bool](), True
    while len(bits) < ticks:
        bits += [up] * (1 + round(dice.expovariate(1 / (18 if up else 6))))
        up = not up
    return bits[:ticks]


def seconds(what: Callable[[], object]) -> float:
    began = time.process_time()
    what()
    return time.process_time() - began


def main(full: bool = False) -> None:
    ticks = 30 * 144
    history = {f"p{n}": spells(n, ticks) for n in range(POOLS)}
    price = {pool: [1.0] * ticks for pool in history}
    task = StrategyTask(48 * HOUR, 60 * HOUR, 720, 600)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    course, why = session_for(task, list(history), history, price, gap=600, on_demand_price=3.06)  # warm: imports NumPy
    taken = seconds(lambda: session_for(task, list(history), history, price, gap=600, on_demand_price=3.06))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"preparing a job: 8 pools, 30 days ({why}; at most 3 s, 300 MB) {taken:12.3f} s CPU {grown:8.0f} MB")
    now = [
        Situation(i * 600, task.work, Mode.IDLE, None, 0, {p: 1.0 for p in history if history[p][i]}, 3.06)
        for i in range(72)
    ]
    taken = seconds(lambda: [course.decide(each) for each in now]) / len(now)
    print(f"one decision among 8 pools (at most 5 ms) {taken * 1000:33.3f} ms CPU")
    starts = STARTS if full else 2
    with TemporaryDirectory() as folder:
        for n in range(POOLS):
            document = {"metadata": {"gap_seconds": 600}, "data": [int(bit) for bit in spells(n, 1768)]}
            (Path(folder) / f"p{n}.json").write_text(json.dumps(document))
        request = Request([Path(folder)], deadlines=DEADLINES, policies=DEFAULT_POLICIES, starts=starts)
        began, cpu = time.perf_counter(), seconds(lambda: measure(request))
        wall = time.perf_counter() - began
    on_two = cpu * STARTS / starts / 2
    print(f"placement: 8 pools, 3 deadlines, {starts} starts, 5 policies {cpu:22.1f} s CPU {wall:8.1f} s")
    print(f"placement: the same with 100 starts on 2 processors, reckoned (at most 300 s) {on_two:6.0f} s")
    demand = [200 + 150 * (hour % 24 > 8) - hour * 7919 % 190 for hour in range(4400)]
    taken = seconds(lambda: optimum(demand, ReserveTerms(720, 0.6)))
    print(f"optimum of reservations: half a year, 400 units (at most 20 s) {taken:15.2f} s CPU")


if __name__ == "__main__":
    main(full="full" in sys.argv[1:])
