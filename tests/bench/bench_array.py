"""An array of 10,000 tasks while brokers, agents and machines are killed. Run:
python -m tests.bench.bench_array [TASKS] [AT-ONCE] [SEED]

On the money stage: the broker is the real one, on SQLite; provider, machines and run folders are simulated, and weeks
pass in minutes. Every ten minutes of its time the broker is killed with a chance of 0.3, and a fifth of its looks are
followed by one; so are agents and machines; nothing any more once no more than 20 of them run.
Exits with 1 if a task was not done exactly
once, if the bill of the array is not that of its tasks, if money is still held, or if the promise of `tests/money` is
broken.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from broker.app.jobs import jobs, submit
from broker.app.jobs.bills import bill_of
from broker.core.events.outcomes import AttemptState
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.values.money import Money
from tests.actors import person
from tests.money.moves import job_text
from tests.money.promise import broken
from tests.money.stores import sqlite_store
from tests.money.test_arrays import _KEYS, ON_DEMAND
from tests.money.world import MINUTE, SECOND, MoneyWorld

TASKS, AT_ONCE, SEED = 10_000, 500, 7
LOOKS = 6  # at most, every ten minutes
FEW = 20  # machines: below this many none is killed, or the last tasks would never end
KILLS = ("restart", "lose", "kill_agent")


@dataclass
class Figures:
    """CPU seconds of the submission and of each look, and what was killed."""

    submission: float = 0.0
    looks: list[float] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)


def enter(world: MoneyWorld, tasks: int, at_once: int, told: Figures) -> JobView:
    text = {**dict.fromkeys(_KEYS, ""), **ON_DEMAND, "max_duration": "10d"}
    text["array"] = f"range: {tasks}, parallel: {at_once}"
    job = parse_job(job_text("sweep", text), file="job.yaml", now=world.clock.now())
    began = time.process_time()
    array = submit.submit(world.broker, job, by=person("ann"))
    told.submission = time.process_time() - began
    return array


def ten_minutes(world: MoneyWorld, chance: random.Random, told: Figures) -> None:
    for name in KILLS:
        live = len(world.cloud.live())
        if chance.random() < 0.3 and live > FEW:
            world.do(name, {} if name == "restart" else {"machine": chance.randrange(live)})
            told.kills[name] += 1
    world.passes(10 * MINUTE)
    world.do("tell", {})
    for _ in range(LOOKS):
        began = time.process_time()
        moved = world._tick()
        told.looks.append(time.process_time() - began)
        world.passes(SECOND)
        if chance.random() < 0.2 and len(world.cloud.live()) > FEW:
            world.do("restart", {})
            told.kills["restart"] += 1
        if not moved:
            break


def wrong(world: MoneyWorld, array: JobView, tasks: int) -> list[str]:
    """What is not as it has to be."""
    with world.store.reading() as look:
        found = look.tasks_of(array.id)
    done = Counter(task.job.task.index for task in found if task.job.task)
    successes = Counter(sum(one.state is AttemptState.SUCCEEDED for one in task.attempts) for task in found)
    bill = bill_of(world.broker, array)
    paid = sum((bill_of(world.broker, task).so_far for task in found), Money.ZERO)
    print(f"{sum(task.attempt_count for task in found):,} attempts for {len(found):,} tasks; {bill.so_far} paid")
    checks = {
        "each task is done exactly once": done == Counter(range(tasks)) and successes == {1: tasks},
        "the bill of the array is that of its tasks": bill.so_far == paid,
        "nothing is held": not any(bill.held.values()),
    }
    world.drain()
    return [what for what, right in checks.items() if not right] + [str(one) for one in [*world.found, *broken(world)]]


def main(tasks: int = TASKS, at_once: int = AT_ONCE, seed: int = SEED) -> int:
    chance, told, began = random.Random(seed), Figures(), time.monotonic()
    with sqlite_store() as (store, _):
        world = MoneyWorld(store)
        world.do("policy", {"amount": "$100000000", "period": "month", "default_max": "24h"})
        world.do("fate", {"runs": 1800.0})
        array = enter(world, tasks, at_once, told)
        while not jobs.find(world.broker, array.id).closed and not world.found:
            ten_minutes(world, chance, told)
        mistakes = wrong(world, jobs.find(world.broker, array.id), tasks)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    looks = sorted(told.looks)
    print(f"{tasks:,} tasks, {at_once} at once; submission {told.submission:.2f} s CPU")
    print(f"{len(looks)} looks: median {looks[len(looks) // 2]:.2f}, slowest {looks[-1]:.2f} s CPU; {memory:.0f} MiB")
    print(f"killed: {dict(told.kills)}; {time.monotonic() - began:.0f} s in all")
    print("\n".join(f"WRONG: {one}" for one in mistakes) or "each done once; the ledger is right")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
