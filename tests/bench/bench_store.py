"""How fast the store is on SQLite. Run: python tests/bench/bench_store.py [offers]

Opening, polls of many offers of which 2 % changed, the questions a plan asks, appending and money, and how large a
year of history gets. CPU and wall seconds of this process; one run each, so run it twice on a busy machine.
"""

from __future__ import annotations

import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from broker.core.clock import SystemClock
from broker.core.events import CancelRequested, Submitted
from broker.core.jobs import Job
from broker.core.money import Money
from broker.core.offers import Availability, CapacityType, MoneyKind, Offer, OfferQuery
from broker.core.ports import BudgetSpec
from broker.ledger.entries import Movement, Tags, move
from broker.store import Store, open_store

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CARDS = (*(f"card-{number}" for number in range(30)), "H100", "A100", "L4", None)
T = TypeVar("T")
TEN_MINUTES = timedelta(minutes=10)
HISTORY_SERIES = 432
CHANGES_A_YEAR = 20_000 * 4 * 365  # 20,000 series, one change every six hours


def timed(what: str, call: Callable[[], T]) -> T:
    """Call, and print what it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    print(f"{what:<58} {time.process_time() - cpu:8.3f} s CPU {time.perf_counter() - wall:8.3f} s")
    return result


def market(number: int) -> list[Offer]:
    chance = random.Random(1)
    return [
        Offer(
            provider="aws" if place % 2 else "gcp",
            region=f"us-east-{place % 40}",
            zone=f"us-east-{place % 40}{'abc'[place % 3]}",
            instance_type=f"type-{place}",
            accelerator=card,
            count=chance.choice((1, 2, 4, 8)) if card else 0,
            capacity_type=chance.choice((CapacityType.SPOT, CapacityType.ON_DEMAND)),
            price=Money(chance.randrange(10**5, 10**8)),
            as_of=NOW,
            source="api",
            availability=Availability.AVAILABLE,
            cpus=8.0,
            memory_gib=64.0,
            engine="skypilot",
            max_age=timedelta(hours=1),
        )
        for place in range(number)
        for card in (CARDS[place % len(CARDS)],)
    ]


def polled(store: Store, offers: list[Offer], at: datetime) -> int:
    return store.record_poll("bench", started=at, finished=at + timedelta(seconds=30), offers=offers)


def bench_market(store: Store, number: int) -> None:
    offers = market(number)
    timed(f"first poll of {number:,} offers", lambda: polled(store, offers, NOW))
    chance = random.Random(2)
    for round_ in (1, 2):
        at = NOW + round_ * TEN_MINUTES
        for place, offer in enumerate(offers):
            price = Money(chance.randrange(10**5, 10**8)) if chance.random() < 0.02 else offer.price
            offers[place] = replace(offer, as_of=at, price=price)
        timed(f"poll of {number:,} offers, 2 % changed", lambda at=at: polled(store, offers, at))
    print(f"{'memory, offers included':<58} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:8.0f} MB")
    query = OfferQuery(accelerators=("H100",), count=8)
    found = timed("offers that match H100:8, first time", lambda: store.offers(query))
    timed(f"offers that match H100:8 ({len(found)})", lambda: store.offers(query))
    timed("counted reasons of all others", lambda: store.rejected_in_sql(query))
    timed("a full list", store.offers)


def bench_jobs(store: Store) -> None:
    submitted = Submitted(job=Job(name="bench", run="true"), user="ada", max_duration_seconds=3600.0)
    tags = Tags("j0", "ada", team="nlp")
    budget = BudgetSpec("b", "month", "UTC", frozenset({"cash"}), teams=("nlp",))

    def append() -> None:
        for number in range(100):
            with store.writing() as journal:
                journal.append(f"j{number}", [(None, submitted), (None, CancelRequested(by="ada"))], NOW)

    def settle() -> None:
        with store.writing() as journal:
            for number in range(2_000):
                covers = (NOW + timedelta(seconds=number), NOW + timedelta(seconds=number + 1))
                about = {"movement_id": f"m{number}", "money": MoneyKind.CASH, "at": NOW, "covers": covers}
                journal.post(move(Movement.ADJUST, Money(1), tags=tags, **about))

    def spent() -> Money:
        with store.reading() as journal:
            return journal.spent(budget, NOW, NOW + timedelta(days=30))

    timed("100 jobs submitted, a transaction each", append)
    timed("2,000 movements posted one by one", settle)
    timed("spent under a budget over 2,000 movements", spent)


def bench_history(store: Store, path: Path) -> None:
    """A year of a small market, written straight into the table in the order in which polls would."""
    chance = random.Random(3)
    offers = market(HISTORY_SERIES)
    polled(store, offers, NOW)
    raw = sqlite3.connect(path, isolation_level=None)
    before = path.stat().st_size
    raw.execute("BEGIN")
    changes = 0
    for number in range(1, 144 * 365):
        at = int((NOW + number * TEN_MINUTES).timestamp() * 1e6)
        some = chance.sample(range(1, HISTORY_SERIES + 1), HISTORY_SERIES // 36)
        rows = [(series, at, chance.randrange(10**5, 10**8)) for series in some]
        raw.executemany("INSERT INTO price_change (series, at, micros, availability) VALUES (?, ?, ?, 0)", rows)
        changes += len(rows)
    raw.execute("COMMIT")
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()
    bytes_each = (path.stat().st_size - before) / changes
    a_year = bytes_each * CHANGES_A_YEAR / 1e9
    print(f"{'bytes a change; a year of 20,000 series':<58} {bytes_each:8.1f} B {a_year:12.2f} GB")

    def series() -> Sequence[object]:
        with store.reading() as journal:
            return journal.price_series(offers[5], NOW, NOW + timedelta(days=30))

    print(f"{'changes of one series in 30 days':<58} {len(timed('a 30-day series', series)):8}")


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    cpu = "import time; import broker.store; print(time.process_time())"
    seconds = subprocess.run([sys.executable, "-c", cpu], capture_output=True, text=True, check=True).stdout
    print(f"{'a process that imports the store':<58} {float(seconds):8.3f} s CPU")
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/store.db"
        timed("creating a store", lambda: open_store(url, clock=SystemClock())).close()
        store = timed("opening a current store", lambda: open_store(url, clock=SystemClock()))
        bench_market(store, number)
        bench_jobs(store)
        store.close()
        path = Path(folder) / "history.db"
        store = open_store(f"sqlite:///{path}", clock=SystemClock())
        bench_history(store, path)
        store.close()


if __name__ == "__main__":
    main()
