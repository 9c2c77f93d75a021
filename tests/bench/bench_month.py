"""How long a look takes over 15 jobs that have run for 30 days and were settled every minute, about $1M a month. Run:
python -m tests.bench.bench_month

A third of the machines are spot, and the price of their pool changed every ten minutes. Also measured: how long the
longest write transaction keeps every other writer waiting; the first look after an upgrade, which finds out from all
entries how far each job is settled; and a look after which a price became known late. At most 0.5 s CPU a look, but for
the first one after an upgrade, and 50 ms a transaction.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from broker.agent.clock import to_text
from broker.core.events import events as ev
from broker.core.events.agent_events import Claimed, CommandStarted, Restored
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.burns import Burn
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags
from broker.reconciler.admission.records import attempt_key, hold_entries
from broker.reconciler.controllers.enforcement import Enforcement
from broker.reconciler.loop import Reconciler, Tick
from broker.reconciler.ports import Controllers, ReconcilerPorts
from broker.reconciler.settlement.batch import post_due
from broker.runfolder.run_folders import RunFolders
from broker.store import Store, open_store
from policies.loader import load
from tests.bench.bench_tick import ENGINES, POLICY, MemoryEngine, offers, timed
from tests.controllers import AskedAlways
from tests.reconciler.rehearsal import TrustingGate

JOBS, SETTLEMENTS = 15, 30 * 24 * 60
MINUTE = timedelta(minutes=1)
PRICE = Money.usd("98")

# All entries of a job are copies of its first settlement, a minute apart.
_ENTRIES = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :more)
INSERT INTO ledger_entry ({names}) SELECT {copies} FROM ledger_entry e CROSS JOIN n
WHERE e.movement_id = :job || '/1/settle/0'
"""
_COPIES = {
    "movement_id": "e.job_id || '/1/settle/' || n.i",
    "at": "e.at + n.i * 60000000",
    "covers_from": "e.covers_from + n.i * 60000000",
    "covers_to": "e.covers_to + n.i * 60000000",
}
_KEPT = (
    "UPDATE movement_sum SET micros = micros * (:more + 1), movements = :more + 1,"
    " covers_to = covers_to + :more * 60000000, at = at + :more * 60000000"
    " WHERE job_id = :job AND movement = 'settle'",
    "UPDATE ledger_balance SET held = held - spent * :more, spent = spent * (:more + 1) WHERE job_id = :job",
    "UPDATE metering SET settled = settled * (:more + 1), settled_to = settled_to + :more * 60000000"
    " WHERE job_id = :job",
)
# The price goes up and down by nothing that matters: what is measured is how many changes there are.
_PRICES = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4319)
INSERT INTO price_change (series, at, micros, availability)
SELECT p.series, p.at + n.i * 600000000, p.micros, p.availability FROM price_change p CROSS JOIN n
WHERE p.series = (SELECT o.id FROM offer o JOIN pool ON pool.id = o.pool_id WHERE pool.capacity_type = 'spot')
"""


def started(store: Store, runs: Path, number: int, placement: Placement, start: datetime) -> str:
    """A job whose machine is up since ``start``, settled once."""
    job_id = f"month-{number}"
    key = attempt_key(job_id, 1)
    request = ev.LaunchRequested(key=key, engine=placement.offer.engine or "", placement=placement)
    job = Job(name=job_id, run="python train.py")
    told: list[ev.EventBody] = [Claimed(host="node"), Restored(checkpoint=None), CommandStarted()]
    with store.writing() as tx:
        burn = Burn.evenly(Money.usd("200000"), (start, start + timedelta(days=60)))
        tx.post(hold_entries(Tags(job_id, "ada"), {}, {MoneyKind.CASH: burn}, Movement.HOLD, 1))
        submitted = ev.Submitted(job=job, user="ada", max_duration_seconds=80 * 86400.0)
        bodies: list[ev.EventBody] = [request, ev.Launched(handle=key), ev.MachineUp(since=start), *told]
        view = tx.append(job_id, [(None, submitted), *((1, body) for body in bodies)], start)
        post_due(tx, [view], start + MINUTE)
    folder = runs / job_id / "attempts" / "1"
    folder.mkdir(parents=True)
    claim = dict.fromkeys(("host", "address", "started", "nonce", "gang"), "x") | {"rank": 0, "pid": 1}
    (folder / "claim-0.json").write_text(json.dumps({**claim, "at": to_text(start)}))
    entries = [{**body.model_dump(mode="json"), "at": to_text(start)} for body in told]
    (folder / "journal.json").write_text(json.dumps({"entries": entries}))
    return job_id


def fill(store: Store, runs: Path, clock: ManualClock) -> None:
    start = clock.now()
    pools = [replace(pool, price=PRICE, as_of=start) for pool in offers(start)]
    store.record_poll("cloud", started=start, finished=start, offers=pools)
    for number in range(JOBS):
        placement = Placement(pools[number % len(pools)], 1, PRICE, PRICE, (), None, None, 1.0, 1.0, 0.0)
        job_id = started(store, runs, number, placement, start)
        about = {"job": job_id, "more": SETTLEMENTS - 1}
        with store._database.writing() as connection:
            from sqlalchemy import text

            names = [row[1] for row in connection.exec_driver_sql("PRAGMA table_info(ledger_entry)") if row[1] != "id"]
            copies = ", ".join(_COPIES.get(name, f"e.{name}") for name in names)
            connection.execute(text(_ENTRIES.format(names=", ".join(names), copies=copies)), about)
            for statement in _KEPT:
                connection.execute(text(statement), about)
    with store._database.writing() as connection:
        connection.exec_driver_sql(_PRICES)
        connection.exec_driver_sql("ANALYZE")
    clock.time = start + SETTLEMENTS * MINUTE


def longest_write(store: Store) -> Callable[[], tuple[float, float]]:
    """Remembers how long write transactions take, without the wait for their turn; call it for the longest since the
    last call: elapsed and CPU, in seconds."""
    writing, spans = store._database.writing, [(0.0, 0.0)]

    @contextmanager
    def timed_writing() -> Iterator[Any]:
        with writing() as connection:
            begun, used = time.perf_counter(), time.thread_time()
            yield connection
            spans.append((time.perf_counter() - begun, time.thread_time() - used))

    store._database.writing = timed_writing  # type: ignore[method-assign]  # the store times itself nowhere

    def longest() -> tuple[float, float]:
        found = max(spans)
        spans[:] = [(0.0, 0.0)]
        return found

    return longest


def beat(runs: Path, now: datetime) -> None:
    """The agents show signs of life."""
    document = json.dumps({"at": to_text(now), "phase": "running", "step": 7, "total": 9, "gpus": []})
    for folder in runs.iterdir():
        (folder / "attempts" / "1" / "heartbeat.json").write_text(document)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, clock = Path(name), ManualClock(datetime(2026, 11, 1, tzinfo=UTC))
        runs = folder / "runs"
        store = open_store(f"sqlite:///{folder / 'store.db'}", clock=clock)
        engines = {name: MemoryEngine(name, clock.now()) for name in ENGINES}
        fill(store, runs, clock)
        policy = load({"bench.yaml": POLICY.replace("$4.50", "$20")})
        longest = longest_write(store)
        enforce = Enforcement(store, lambda: policy, clock.now, every=timedelta(seconds=5))

        def process() -> Reconciler:
            return Reconciler(
                ReconcilerPorts(store, engines.__getitem__, RunFolders(runs.as_uri(), clock), clock),  # type: ignore[arg-type]  # engines in memory
                Controllers(AskedAlways(lambda view: False), (enforce,)), TrustingGate(),
            )  # fmt: skip

        def look(what: str, reconciler: Reconciler, limit: str = "(at most 0.5 s CPU, 50 ms)") -> None:
            clock.advance(MINUTE)
            beat(runs, clock.now())
            longest()
            before = spent()
            tick: Tick = timed(f"{JOBS} jobs of 30 days: {what}", reconciler.tick, limit)
            elapsed, used = longest()
            print(f"{'  the longest write transaction':<58} {used:8.3f} s CPU {elapsed:8.3f} s")
            assert tick.open == JOBS
            assert spent() > before, "all were settled"

        def spent() -> Money:
            with store.reading() as look:
                return sum((b[MoneyKind.CASH].spent for b in look.open_balances().values()), Money.ZERO)

        clock.advance(MINUTE)
        beat(runs, clock.now())
        process().tick()  # the process before, which left leases, and meters that know of all prices
        look("the first look of a new process", process())
        reconciler = process()
        reconciler.tick()
        look("a look, all are settled", reconciler)
        spot = replace(offers(clock.now())[-1], price=Money.usd("97"), as_of=clock.now() - 5 * MINUTE)
        assert spot.capacity_type is CapacityType.SPOT
        store.record_poll("cloud", started=clock.now(), finished=clock.now(), offers=[spot], complete=False)
        look("a look after a price became known late", reconciler)
        with store.writing() as tx:
            tx._connection.exec_driver_sql("DELETE FROM metering")
        look("the first look after an upgrade", process(), "(once, 50 ms)")


if __name__ == "__main__":
    main()
