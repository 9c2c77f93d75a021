"""Waiting beside published results: the virtual clusters of Philly, under FIFO, shortest job first, and our queue.
Run: python -m tests.bench.bench_published [DAYS] [SEED]

Published: mean waits and completion times of the Philly trace by virtual cluster, as Hu et al. simulated it (SC '21;
github.com/S-Lab-System-Group/HeliosArtifact at 6345d9f, `framework/QSSF Service/plot/result_plot.ipynb`; machines of
8 GPUs by cluster in `data/philly_vc.csv`). QSSF is their order by predicted length times GPUs.

The trace itself is not here (`python -m tests.lab.simulate` reads it: its report compares with the recorded waits by
cluster and by size). So jobs are drawn as Narayanan et al. did after Philly (OSDI '20, section 7.1: lengths of 10^x
minutes, x even in 1.5 to 3 for four fifths and in 3 to 4 for one fifth; 70 % of jobs on one GPU, 25 % on two to four,
5 % on eight), scaled to the cluster's published mean run time. What is not published, how loaded each cluster was, is
fitted: so that FIFO without backfilling, simulated here in a few lines, waits as long as published. All other figures
follow.
"""

from __future__ import annotations

import heapq
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import NamedTuple

import cli
from broker.core.ports import PolicySet
from tests.lab.simulate import WhatIf, played
from tests.lab.simulation.figures import WaitFigures, agreement
from tests.lab.simulation.job_traces import TraceJob, TraceReading, as_workload
from tests.lab.simulation.workload import DAY
from tests.lab.simulation.workload_file import parse_workload

DAYS, SEED = 20, 7
GANGS = ((1, 0.70), (2, 0.10), (4, 0.15), (8, 0.05))
# Mean length in minutes of jobs as drawn, by integration: 280.4 for the shorter four fifths, 3,908.7 for the others.
MEAN_MINUTES = 0.8 * 280.36 + 0.2 * 3908.65
START = 1_500_000_000 // DAY * DAY
MARKET = """\
workload: published
market: [{{machine: "P100:1", capacity: owned, machines: {gpus}, cost: $1}}]
teams:
  t: {{user: ann, jobs: [{{name: x, arrivals: 1, duration: 1h, job: {{resources: {{accelerators: "P100:1"}}}}}}]}}
"""
POLICY = "version: 1\npolicy: rich\nbudgets: [{name: all, amount: '$900,000,000', period: month}]\n"


@dataclass(frozen=True, slots=True)
class PublishedCluster:
    """Machines of 8 GPUs; mean seconds until completion under FIFO, and mean waits under FIFO, shortest job first, and
    QSSF."""

    machines: int
    completion: int
    fifo: int
    sjf: int
    qssf: int

    @property
    def gpus(self) -> int:
        return 8 * self.machines

    @property
    def length(self) -> int:
        return self.completion - self.fifo


PUBLISHED = {
    "6214e9": PublishedCluster(64, 97501, 78659, 4494, 7179),
    "7f04ca": PublishedCluster(32, 133826, 1412, 857, 1527),
    "11cb48": PublishedCluster(16, 82540, 74040, 5944, 12550),
    "b436b2": PublishedCluster(64, 28732, 544, 421, 454),
    "ee9e8c": PublishedCluster(64, 243144, 127270, 14619, 16493),
    "e13805": PublishedCluster(16, 87265, 2331, 1015, 953),
    "6c71a0": PublishedCluster(32, 31088, 220, 162, 151),
    "2869ce": PublishedCluster(16, 70215, 21171, 7344, 9044),
    "ed69ec": PublishedCluster(8, 28345, 28, 28, 28),
    "103959": PublishedCluster(8, 24743, 2391, 932, 867),
    "0e4a51": PublishedCluster(32, 233539, 101473, 36682, 64820),
}


class DrawnJob(NamedTuple):
    """Seconds between its arrival and the one before, at a load of 1; GPUs; seconds of work."""

    after: float
    gpus: int
    seconds: int


def drawn(one: PublishedCluster, days: int, seed: int) -> list[DrawnJob]:
    """As many jobs as keep the cluster busy for that many days."""
    chance = random.Random(f"{seed}/{one}")
    sizes, shares = [size for size, _ in GANGS], [share for _, share in GANGS]
    each = sum(size * share for size, share in GANGS) * one.length
    found = []
    for _ in range(max(round(days * DAY * one.gpus / each), 200)):
        x = chance.uniform(1.5, 3) if chance.random() < 0.8 else chance.uniform(3, 4)
        seconds = max(round(10**x / MEAN_MINUTES * one.length), 1)
        found.append(DrawnJob(chance.expovariate(one.gpus / each), chance.choices(sizes, shares)[0], seconds))
    return found


def arriving(jobs: Sequence[DrawnJob], load: float) -> list[TraceJob]:
    now, found = 0.0, list[TraceJob]()
    for job in jobs:
        now += job.after / load
        found.append(TraceJob("vc", job.gpus, START + round(now), job.seconds, None))
    return found


def reference(jobs: Sequence[TraceJob], gpus: int, *, shortest: bool) -> float:
    """The mean wait (seconds) if the first in line starts as soon as it fits and nobody passes it: first come, or
    shortest."""
    free, now, total = gpus, 0, 0
    running: list[tuple[int, int]] = []
    line: list[tuple[int, int, TraceJob]] = []
    following = 0
    while following < len(jobs) or line:
        while line and line[0][2].gpus <= free:
            _, _, job = heapq.heappop(line)
            total += now - job.submitted
            free -= job.gpus
            heapq.heappush(running, (now + job.seconds, job.gpus))
        arrives = following < len(jobs)
        if not arrives and not line:
            break
        if arrives and (not running or jobs[following].submitted <= running[0][0]):
            job = jobs[following]
            now = job.submitted
            heapq.heappush(line, (job.seconds if shortest else following, following, job))
            following += 1
        else:
            now, back = heapq.heappop(running)
            free += back
    return total / len(jobs)


def fitted_load(one: PublishedCluster, jobs: Sequence[DrawnJob]) -> float:
    """The load at which FIFO waits as long as published, within 1 %: the nearest that twenty halvings find."""
    low, high = 0.02, 8.0
    for _ in range(20):
        middle = (low + high) / 2
        wait = reference(arriving(jobs, middle), one.gpus, shortest=False)
        low, high = (middle, high) if wait < one.fifo else (low, middle)
    return (low + high) / 2


def ours(one: PublishedCluster, jobs: Sequence[TraceJob], policy: PolicySet, *, told: bool) -> WaitFigures:
    """Waits under the broker's queue and gate. ``told``: it knows the lengths, rounded up to a power of two minutes."""
    start, classes, source, days = as_workload(jobs, TraceReading("P100", told))
    made = parse_workload(MARKET.format(gpus=one.gpus), file="published.yaml")
    workload = replace(made, start=start, classes=classes, source=source, days=days)
    result = played(workload, policy, WhatIf(days, SEED))
    if result.faults:
        raise SystemExit(f"the ledger does not balance: {result.faults}")
    return WaitFigures.of([wait for tally in result.teams.values() for wait in tally.waits])


class PlayedCluster(NamedTuple):
    """Mean waits in seconds: of the references, and of ours without and with told lengths."""

    published: PublishedCluster
    fifo: float
    sjf: float
    unknown: float
    told: float


def main(days: int, seed: int) -> None:
    policy = cli.registries().load_policies({"published.yaml": POLICY})
    print("mean wait in seconds; p: published; f: fitted to p; GPUs, load")
    print(f"{'cluster':8}{'GPUs':>5}{'load':>6}{'FIFO p':>9}{'FIFO f':>9}{'SJF p':>8}{'SJF':>8}{'QSSF p':>8}"
          f"{'ours':>9}{'waited':>8}{'ours, told':>11}")  # fmt: skip
    rows = list[PlayedCluster]()
    for name, one in PUBLISHED.items():
        jobs = drawn(one, days, seed)
        load = fitted_load(one, jobs)
        came = arriving(jobs, load)
        fifo, sjf = (reference(came, one.gpus, shortest=shortest) for shortest in (False, True))
        blind, told = (ours(one, came, policy, told=told) for told in (False, True))
        rows.append(PlayedCluster(one, fifo, sjf, blind.mean, told.mean))
        print(f"{name:8}{one.gpus:5}{load:6.2f}{one.fifo:9,}{fifo:9,.0f}{one.sjf:8,}{sjf:8,.0f}{one.qssf:8,}"
              f"{blind.mean:9,.0f}{blind.waited:8.0%}{told.mean:11,.0f}", flush=True)  # fmt: skip
    print("\norder of the clusters by mean wait, Spearman's rank correlation with the published order")
    unknown, told_waits = [row.unknown for row in rows], [row.told for row in rows]
    for what, mine, column in (
        ("lengths unknown, and FIFO", unknown, [row.published.fifo for row in rows]),
        ("lengths told, and QSSF", told_waits, [row.published.qssf for row in rows]),
        ("lengths told, and shortest job first", told_waits, [row.published.sjf for row in rows]),
    ):
        print(f"  ours, {what:40} {agreement(mine, column):.3f}")
    print("\nFIFO's mean wait over that of another order, clusters weighed alike (geometric mean)")
    for what, pairs in (
        ("published: shortest job first", [(row.published.fifo, row.published.sjf) for row in rows]),
        ("here: shortest job first", [(row.fifo, row.sjf) for row in rows]),
        ("published: QSSF", [(row.published.fifo, row.published.qssf) for row in rows]),
        ("here: ours, lengths told", [(row.fifo, row.told) for row in rows]),
        ("here: ours, lengths unknown", [(row.fifo, row.unknown) for row in rows]),
    ):
        ratios = [max(first, 1.0) / max(other, 1.0) for first, other in pairs]
        print(f"  {what:32} {geometric_mean(ratios):6.2f}")


if __name__ == "__main__":
    asked = [int(word) for word in sys.argv[1:3]]
    main(*(asked + [DAYS, SEED][len(asked) :]))
