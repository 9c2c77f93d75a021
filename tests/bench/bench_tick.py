"""How long the reconciler takes over 10,000 attempts that run: a look, and the first look of a new process. Run:
python -m tests.bench.bench_tick [ATTEMPTS]

On SQLite and a local disk for run folders. The engines are in memory, so that what is measured is the broker's; each
counts how often it is asked. A third of the machines are spot; every attempt has run for an hour and was settled a few
times, its agent has just shown a sign of life, and a policy file judges it. At most 1 s a look, 10 s the first one:
a look visits every eighth attempt without news (`broker.reconciler.worklist`).
"""

import gc
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from broker.agent.clock import to_text
from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved, Claimed, CommandStarted, Restored
from broker.core.events.events import EventBody
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.ports import EngineState, Observation
from broker.core.values.burns import Burn
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from broker.engines.runfolder.run_folders import RunFolders
from broker.ledger.entries import Entry, Movement, Tags, move
from broker.ledger.meter import Meter
from broker.reconciler.admission.records import attempt_key, hold_entries
from broker.reconciler.controllers.enforcement import Enforcement
from broker.reconciler.loop import Reconciler, Tick
from broker.reconciler.ports import Controllers, ReconcilerPorts
from broker.store import Store, open_store
from policies.loader import load
from tests.controllers import AskedAlways
from tests.reconciler.rehearsal import TrustingGate

ATTEMPTS, SETTLED, A_BATCH = 10_000, 5, 500
ENGINES = ("alpha", "beta", "gamma")
HOUR = timedelta(hours=1)
POLICY = """\
version: 1
policy: bench
budgets: [{name: all, amount: "$10,000,000", period: month}]
guardrails:
  - {name: price, max_price_per_gpu_hour: $4.50}
  - {name: share, max_concurrent_gpus: 1000000}
  - {name: places, allowed_locations: {providers: [cloud, aws]}}
"""
T = TypeVar("T")


class MemoryEngine:
    """Machines that are up, in memory."""

    honours: frozenset[str] = frozenset()
    remote = False

    def __init__(self, name: str, since: datetime) -> None:
        self.name, self._seen, self.asked = name, Observation(EngineState.UP, since), 0

    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        self.asked += 1
        return dict.fromkeys(handles, self._seen)


def offers(now: datetime) -> list[Offer]:
    """One pool an engine; the last one's is spot."""
    return [
        Offer(
            "cloud", "here", f"here-{engine}", "box", "H100", 8,
            CapacityType.SPOT if engine == ENGINES[-1] else CapacityType.ON_DEMAND,
            Money.usd("10"), now - 2 * HOUR, "api",
            cpus=64, memory_gib=512, availability=Availability.AVAILABLE, engine=engine,
        )
        for engine in ENGINES
    ]  # fmt: skip


def life(number: int, offer: Offer) -> tuple[str, list[tuple[int | None, EventBody]], list[dict[str, Any]]]:
    """A job that runs: its id, its events, and what its agent wrote of them into its journal."""
    job_id = f"bench-{number:05d}"
    job = Job(name=f"bench-{number}", run="python train.py", team=f"team-{number % 9}")
    rate = offer.price or Money.ZERO
    placement = Placement(offer, 1, rate, rate, (), None, None, 1.0, 1.0, 0.0)
    submitted = ev.Submitted(job=job, user="ada", max_duration_seconds=400 * 3600.0)
    told: list[EventBody] = [Claimed(host="node"), Restored(checkpoint=None), CommandStarted()]
    told += [CheckpointSaved(checkpoint=f"0001-{n:012d}-000000-a", step=n, size=10**9) for n in range(3)]
    request = ev.LaunchRequested(key=attempt_key(job_id, 1), engine=offer.engine or "", placement=placement)
    since = datetime.now(UTC) - HOUR
    events: list[tuple[int | None, EventBody]] = [(None, submitted), (1, request)]
    events += [(1, ev.Launched(handle=request.key)), (1, ev.MachineUp(since=since)), *((1, body) for body in told)]
    return job_id, events, [{**body.model_dump(mode="json"), "at": to_text(since)} for body in told]


def money(job_id: str, now: datetime) -> list[Entry]:
    """A hold, and what was settled of it."""
    tags = Tags(job_id, "ada", attempt=1)
    burn = Burn.evenly(Money.usd("4000"), (now, now + HOUR))
    held = hold_entries(Tags(job_id, "ada"), {}, {MoneyKind.CASH: burn}, Movement.HOLD, 1)
    steps = [now - HOUR + n * HOUR / SETTLED for n in range(SETTLED + 1)]
    return held + [
        entry
        for n, (start, end) in enumerate(pairwise(steps))
        for entry in move(
            Movement.SETTLE, Money.usd("2"), movement_id=f"{job_id}/1/settle/{n}", money=MoneyKind.CASH,
            at=end, covers=(start, end), tags=tags,
        )
    ]  # fmt: skip


def fill(store: Store, runs: Path, attempts: int) -> None:
    """So many jobs with one attempt each, in the store and on the disk."""
    now = datetime.now(UTC)
    pools = offers(now)
    store.record_poll("cloud", started=now - 2 * HOUR, finished=now - 2 * HOUR, offers=pools)
    for first in range(0, attempts, A_BATCH):
        with store.writing() as tx:
            for number in range(first, min(first + A_BATCH, attempts)):
                job_id, events, journal = life(number, pools[number % len(pools)])
                tx.append(job_id, events, now - HOUR)
                tx.post(money(job_id, now))
                tx.keep_meters({job_id: {1: Meter(Money.usd("10"), now, now - HOUR, Money.usd("10"))}})
                folder = runs / job_id / "attempts" / "1"
                folder.mkdir(parents=True)
                claim = dict.fromkeys(("host", "address", "started", "nonce", "gang", "user"), "x") | {
                    "rank": 0,
                    "pid": 1,
                }
                (folder / "claim-0.json").write_text(json.dumps({**claim, "at": to_text(now - HOUR)}))
                (folder / "journal.json").write_text(json.dumps({"entries": journal}))
                (folder / "heartbeat.json").write_text("")
    beat(runs)


def beat(runs: Path, chance: float = 1.0) -> None:
    """The agents show signs of life."""
    drawn = random.Random(1)
    document = json.dumps({"at": to_text(datetime.now(UTC)), "phase": "running", "step": 7, "total": 9, "gpus": []})
    for folder in runs.iterdir():
        if drawn.random() < chance:
            (folder / "attempts" / "1" / "heartbeat.json").write_text(document)


def timed(what: str, call: Callable[[], T], at_most: str = "") -> T:
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    print(
        f"{what:<58} {time.process_time() - cpu:8.3f} s CPU {time.perf_counter() - wall:8.3f} s  {at_most}", flush=True
    )
    return result


def main(attempts: int = ATTEMPTS) -> None:
    gc.set_threshold(100_000, 20, 20)  # as the program itself does
    with tempfile.TemporaryDirectory() as name:
        folder, clock = Path(name), SystemClock()
        url = f"sqlite:///{folder / 'store.db'}"
        runs = folder / "runs"
        store = open_store(url, clock=clock)
        fill(store, runs, attempts)
        store.close()
        engines = {name: MemoryEngine(name, clock.now() - HOUR) for name in ENGINES}
        policy = load({"bench.yaml": POLICY})

        def start() -> tuple[Reconciler, Tick]:
            opened = open_store(url, clock=clock)
            enforce = Enforcement(opened, lambda: policy, clock.now, every=timedelta(seconds=5))
            reconciler = Reconciler(
                ReconcilerPorts(opened, engines.__getitem__, RunFolders(runs.as_uri(), clock), clock),  # type: ignore[arg-type]  # engines in memory
                Controllers(AskedAlways(lambda view: False), (enforce,)), TrustingGate(),
            )  # fmt: skip
            return reconciler, reconciler.tick()

        start()  # the process before, which left leases
        reconciler, tick = timed(f"{attempts:,} attempts: the first look of a new process", start, "(at most 10 s)")
        assert tick.open == attempts, tick
        timed(f"{attempts:,} attempts: the second look", reconciler.tick, "(at most 1 s)")
        for round_ in (1, 2, 3):
            beat(runs)
            before = Counter({name: engine.asked for name, engine in engines.items()})
            timed(f"{attempts:,} attempts: a look, every heart has beaten ({round_})", reconciler.tick, "(at most 1 s)")
            asked = {name: engine.asked - before[name] for name, engine in engines.items()}
            assert set(asked.values()) == {1}, asked
        timed(f"{attempts:,} attempts: a look, nothing happened", reconciler.tick, "(at most 1 s)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ATTEMPTS)
