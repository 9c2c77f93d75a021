"""Plays jobs through several processes of one PostgreSQL store, some of which are killed, and tells what became of the
jobs, of their machines and of the money."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from sqlalchemy import func, select

from broker.core.events.views import JobView
from broker.core.market.offers import Availability, Billing, CapacityType, MoneyKind, Offer
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from broker.ledger.entries import Account, faults
from broker.store import Store, open_store
from broker.store.schema.ledger import LedgerBalanceRow
from tests.program import ROOT, environment
from tests.replicas.replica import ENOUGH
from tests.replicas.shared_cloud import ENGINE, LAUNCH_TAKES, RUNS, SharedCloud

PRICE = Money.usd("3.60")  # an hour: a tenth of a cent a second
POLICY = "version: 1\npolicy: t\nbudgets: [{{name: all, amount: ${amount}, period: month}}]\n"
_COMMITTED = select(func.sum(LedgerBalanceRow.held + LedgerBalanceRow.spent)).where(
    LedgerBalanceRow.money == MoneyKind.CASH.value
)
_LOOK = 0.25  # seconds between two looks of who plays


@dataclass(frozen=True, slots=True)
class ReplicaPlay:
    """``jobs`` submitted by ``writers``, looked after by ``replicas``; one of these is killed about every
    ``kill_every`` seconds and started anew (0: none is). ``amount``: of the budget, whole USD a month. ``submit_for``:
    seconds after which no more are submitted; ``launch_takes``: seconds that the engine takes for a launch."""

    jobs: int
    replicas: int = 2
    writers: int = 2
    kill_every: float = 0.0
    amount: int = 1_000_000
    patience: float = 240.0
    submit_for: float = math.inf
    launch_takes: float = 0.0
    seed: int = 7


@dataclass(slots=True)
class ReplicaOutcome:
    """``problems``: what must not happen. Seconds by the wall clock, from the first submission to the last end."""

    submitted: int = 0
    refused: int = 0
    seconds: float = 0.0
    kills: int = 0
    attempts: int = 0
    most_held: Money = Money.ZERO
    spent: Money = Money.ZERO
    problems: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.submitted / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        return (
            f"{self.submitted} jobs, {self.refused} refused, {self.attempts} attempts, {self.kills} processes killed,"
            f" {self.seconds:.0f} s, {self.rate:.1f} jobs a second, {self.spent} spent, at most {self.most_held} held"
            f" and spent; problems: {self.problems or 'none'}"
        )


def play(home: Path, url: str, what: ReplicaPlay) -> ReplicaOutcome:
    """Play it. ``url``: of an empty PostgreSQL database. Ends every process that it started."""
    clock, engine = SystemClock(), home / "engines" / ENGINE
    store, cloud, found = open_store(url, clock=clock), SharedCloud(engine, clock), ReplicaOutcome()
    (engine / LAUNCH_TAKES).write_text(str(what.launch_takes))
    store.activate_policy({"t.yaml": POLICY.format(amount=what.amount)}, by="test")
    now = datetime.now(UTC)
    store.record_poll("stage", started=now, finished=now, offers=[offer(now, "a"), offer(now, "b")])
    chance, began = random.Random(what.seed), time.monotonic()
    role = "reconcile" if what.replicas > 1 else "reconcile-alone"
    replicas = [_start(home, url, role) for _ in range(what.replicas)]
    writers = [_writer(home, url, what, number) for number in range(what.writers)]
    limit, next_kill = Money.usd(what.amount), time.monotonic() + what.kill_every
    try:
        while time.monotonic() - began < what.patience:
            time.sleep(_LOOK)  # real processes: nothing here hears of what they do
            if time.monotonic() - began > what.submit_for:
                (home / ENOUGH).touch()
            submitted = all(writer.poll() is not None for writer in writers)
            with store.reading() as look:
                open_jobs = look.has_open_jobs()
            promised = committed(store)
            found.most_held = max(found.most_held, promised)
            if promised > limit:
                found.problems.append(f"{promised} held and spent under a budget of {limit}")
            if what.kill_every and time.monotonic() >= next_kill:
                next_kill += what.kill_every * chance.uniform(0.5, 1.5)
                victim = chance.randrange(len(replicas))
                replicas[victim].kill()
                replicas[victim].wait()
                replicas[victim] = _start(home, url, role)
                found.kills += 1
            if submitted and not open_jobs:
                break
        else:
            found.problems.append("some jobs are still open")
        for number in range(what.writers):
            told = (home / f"submit-{number}.out").read_text().split()
            found.refused += told.count("refused")
            found.submitted += len(told) - told.count("refused")
    finally:
        for process in (*replicas, *writers):
            process.kill()
            process.wait()
    judge(store, cloud, found)
    store.close()
    return found


def offer(now: datetime, name: str) -> Offer:
    return Offer(
        "stage", "here", name, "box", "L4", 1, CapacityType.ON_DEMAND, PRICE, now, "test", cpus=4, memory_gib=16,
        availability=Availability.AVAILABLE, engine=ENGINE, billing=Billing(granularity=timedelta(seconds=1)),
    )  # fmt: skip


def committed(store: Store) -> Money:
    """What is held and spent, of the kind that the budget counts."""
    with store._database.reading() as connection:  # one sum: reading every job would keep a processor busy
        return Money(int(connection.scalar(_COMMITTED) or 0))


def judge(store: Store, cloud: SharedCloud, found: ReplicaOutcome) -> None:
    """What must hold, whatever was killed when."""
    with store.reading() as look:
        jobs, entries = list(look.jobs()), look.entries()
    found.problems += [f"the ledger: {fault}" for fault in faults(entries)]
    found.problems += [f"{key} was launched {times} times" for key, times in cloud.launches().items() if times != 1]
    if len(jobs) != found.submitted:
        found.problems.append(f"{len(jobs)} jobs on record, {found.submitted} submitted")
    billed: dict[str, Money] = {}
    for entry in entries:
        if entry.account is Account.SPENT:
            billed[entry.tags.job_id] = billed.get(entry.tags.job_id, Money.ZERO) + entry.amount
    # Not the time until the processes have started: that of four is longer than that of three.
    last = max((view.ended_at for view in jobs if view.ended_at is not None), default=None)
    if last is not None:
        found.seconds = (last - min(view.submitted_at for view in jobs)).total_seconds()
    for view in jobs:
        found.attempts += len(view.attempts)
        found.problems += [f"{view.id}: {problem}" for problem in _wrong(view, cloud, billed)]
    found.spent = sum(billed.values(), Money.ZERO)


def _wrong(view: JobView, cloud: SharedCloud, billed: dict[str, Money]) -> list[str]:
    found = []
    if view.state.value != "succeeded":
        found.append(f"it {view.state.value}")
    visits = [visit for attempt in view.attempts if (visit := cloud.visit(attempt.key)) is not None]
    for one, other in pairwise(visits):
        if other.since < one.until:
            found.append(f"{other.key} began before {one.key} ended")
    if not visits or visits[-1].until - visits[-1].since < RUNS:
        found.append("its last machine did not run to the end")
    # Whole seconds, the last of each attempt begun.
    used = sum(((visit.until - visit.since) for visit in visits), timedelta(0))
    least, most = PRICE.for_duration(used), PRICE.for_duration(used + timedelta(seconds=2 * len(visits)))
    spent = billed.get(view.id, Money.ZERO)
    if not least <= spent <= most:
        found.append(f"{spent} billed for {used}")
    return found


def _start(home: Path, url: str, what: str, names: str = "") -> subprocess.Popen[bytes]:
    """A process of `tests.replicas.replica`, which says what it says into a file, and reads names from one."""
    named = home / f"{what}.names"
    named.write_text(names)
    with named.open() as read, (home / f"{what}.out").open("a") as said:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.replicas.replica", what, str(home), url],
            stdin=read,
            stdout=said,
            stderr=said,
            cwd=ROOT,
            env=environment(home, PYTHONPATH=str(ROOT)),
        )


def _writer(home: Path, url: str, what: ReplicaPlay, number: int) -> subprocess.Popen[bytes]:
    names = "".join(f"job-{one}\n" for one in range(number, what.jobs, what.writers))
    return _start(home, url, f"submit-{number}", names)
