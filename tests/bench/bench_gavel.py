"""Costs beside Gavel's: which GPU is cheapest for which model, and what three policies cost in comparison.
Run: python -m tests.bench.bench_gavel [JOBS] [SEED]

Published (Narayanan et al., OSDI 2020; github.com/stanford-futuredata/gavel, MIT): the speed of six training programs
on P100 and V100 over that on K80 (`scheduler/notebooks/figures/motivation/heterogeneity.ipynb` at 45da479), the
on-demand prices of Google Cloud by which they are divided (`normalized_throughput_per_cost.ipynb` at 2d8e076), how jobs
and their time limits are drawn (`scheduler/utils.py`: lengths on a V100 of 10^x minutes, x even in 1.5 to 3 for four
fifths and in 3 to 4 for one fifth; limits of 1.2, 2 and 10 times that, a third each), and the objectives of three
policies (`scheduler/policies/max_sum_throughput.py`): most throughput, most for a dollar, and that within the limits.

Each job is drawn on one GPU and decided twice: by the published objective, computed here in a line, and by the broker's
planner with these speeds as measured paces, as it would have after earlier runs. There are enough machines of each
kind: published schedules share 36 of each in rounds of six minutes, and what those cost is in no file of the artifact.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from broker.core.job.jobs import Job, MachineRequest, Work
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.money import Money
from broker.placement.planner import make_plan
from broker.placement.pricing.pace import Pace
from tests.bench.bench_plan import CONDITIONS, NOW

JOBS, SEED = 600, 7
PRICES = {"K80": 0.52, "P100": 1.68, "V100": 2.85}  # USD an hour
SPEEDS = {
    "A3C": {"K80": 1.0, "P100": 1.24, "V100": 2.15},
    "CycleGAN": {"K80": 1.0, "P100": 4.62, "V100": 9.29},
    "LSTM": {"K80": 1.0, "P100": 3.56, "V100": 4.96},
    "ResNet-18": {"K80": 1.0, "P100": 3.98, "V100": 6.31},
    "ResNet-50": {"K80": 1.0, "P100": 3.65, "V100": 9.60},
    "Transformer": {"K80": 1.0, "P100": 2.51, "V100": 4.73},
}
POLICIES = ("most throughput", "cheapest", "cheapest in time")
OFFERS = [
    Offer(
        provider="gcp", region="us-central1", zone="us-central1-a", instance_type=f"one-{name}", accelerator=name,
        count=1, capacity_type=CapacityType.ON_DEMAND, price=Money.usd(str(price)), as_of=NOW,
        source="published", cpus=8.0, memory_gib=52.0, engine="skypilot", max_age=timedelta(hours=6),
    )
    for name, price in PRICES.items()
]  # fmt: skip
# A finish an hour earlier is worth more than any machine: the planner then takes the fastest.
FASTEST = Money.usd(10_000)


@dataclass(frozen=True, slots=True)
class DrawnRun:
    """``hours``: on a V100; ``limit``: the time limit in multiples of these."""

    model: str
    hours: float
    limit: float

    def lasts(self, gpu: str) -> float:
        """Hours there."""
        return self.hours * SPEEDS[self.model]["V100"] / SPEEDS[self.model][gpu]

    def in_time(self, gpu: str) -> bool:
        return self.lasts(gpu) <= self.hours * self.limit


def drawn(number: int, seed: int) -> list[DrawnRun]:
    chance = random.Random(seed)
    models, found = sorted(SPEEDS), []
    for _ in range(number):
        x = chance.uniform(1.5, 3) if chance.random() < 0.8 else chance.uniform(3, 4)
        found.append(DrawnRun(chance.choice(models), 10**x / 60, chance.choice((1.2, 2.0, 10.0))))
    return found


def by_objective(run: DrawnRun, policy: str) -> str:
    """The GPU that the published objective gives the job where there are enough of each."""
    allowed = [gpu for gpu in PRICES if policy != POLICIES[2] or run.in_time(gpu)]
    if policy == POLICIES[0]:
        return max(allowed, key=lambda gpu: SPEEDS[run.model][gpu])
    return max(allowed, key=lambda gpu: SPEEDS[run.model][gpu] / PRICES[gpu])


def by_planner(run: DrawnRun, policy: str) -> str | None:
    """The GPU of the broker's best placement; None if it finds none."""
    work = Work(duration=timedelta(hours=run.hours), accelerator="V100", count=1)
    # The start of a machine is no part of the published times.
    limit = timedelta(hours=run.hours * run.limit) + CONDITIONS.start_up if policy == POLICIES[2] else None
    job = Job(
        name=run.model.lower(), run="true", work=work, deadline=limit, max_duration=timedelta(days=900),
        resources=tuple(MachineRequest(accelerator=gpu, count=1) for gpu in PRICES),
    )  # fmt: skip
    paces = {(gpu, 1): Pace(1_000 * speed, 1.0) for gpu, speed in SPEEDS[run.model].items()}
    known = replace(CONDITIONS, paces=paces, value_of_time=FASTEST if policy == POLICIES[0] else None)
    best = make_plan(job, OFFERS, now=NOW, submitted_at=NOW, conditions=known).best
    return None if best is None else best.offer.accelerator


def order(scores: Mapping[str, float]) -> str:
    return " > ".join(sorted(scores, key=lambda name: -scores[name]))


def main(number: int, seed: int) -> None:
    runs = drawn(number, seed)
    print("speed for a dollar, published | cheapest of the planner")
    for model, speeds in SPEEDS.items():
        worth = {gpu: speeds[gpu] / PRICES[gpu] for gpu in PRICES}
        chosen = by_planner(DrawnRun(model, 10.0, 10.0), POLICIES[1])
        told = " ".join(f"{gpu} {worth[gpu] / worth['K80']:.2f}" for gpu in PRICES)
        print(f"  {model:<12} {told}  {order(worth)} | {chosen}")
    costs: dict[str, tuple[float, float]] = {}
    for policy in POLICIES:
        pairs = [(run, by_objective(run, policy), by_planner(run, policy)) for run in runs]
        placed = [(run, theirs, ours) for run, theirs, ours in pairs if ours is not None]
        costs[policy] = (
            sum(run.lasts(theirs) * PRICES[theirs] for run, theirs, _ in placed),
            sum(run.lasts(ours) * PRICES[ours] for run, _, ours in placed),
        )
        same = sum(theirs == ours for _, theirs, ours in placed)
        late = [sum(not run.in_time(gpu) for run, gpu in chosen) for chosen in (
            [(run, theirs) for run, theirs, _ in placed], [(run, ours) for run, _, ours in placed]
        )]  # fmt: skip
        print(f"{policy:<17} the same GPU {same} of {len(runs)}; over the limit {late[0]} and {late[1]}")
    for number, whose in enumerate(("by the objectives", "by the planner")):
        total = {policy: costs[policy][number] for policy in POLICIES}
        less = ", ".join(f"{policy} {total[POLICIES[0]] / total[policy]:.2f} times less" for policy in POLICIES[1:])
        print(f"costs {whose}: {order(total)}; {POLICIES[0]} ${total[POLICIES[0]]:,.0f}, {less}")


if __name__ == "__main__":
    asked = [int(one) for one in sys.argv[1:3]]
    main(*(asked + [JOBS, SEED][len(asked) :]))
