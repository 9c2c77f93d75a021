"""How fast the store is on SQLite: opening, appending and money. Run: python -m tests.bench.bench_store

CPU and wall seconds of this process; one run each, so run it twice on a busy machine. The market: `bench_market`.
"""

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from broker.core.events.events import CancelRequested, Submitted
from broker.core.job.jobs import Job
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.ports import BudgetSpec
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags, move
from broker.store import Store, open_store

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CARDS = (*(f"card-{number}" for number in range(30)), "H100", "A100", "L4", None)
T = TypeVar("T")


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
                about: dict[str, Any] = {
                    "movement_id": f"m{number}",
                    "money": MoneyKind.CASH,
                    "at": NOW,
                    "covers": covers,
                }
                journal.post(move(Movement.ADJUST, Money(1), tags=tags, **about))

    def spent() -> Money:
        with store.reading() as journal:
            return journal.spent(budget, NOW, NOW + timedelta(days=30))

    timed("100 jobs submitted, a transaction each", append)
    timed("2,000 movements posted one by one", settle)
    timed("spent under a budget over 2,000 movements", spent)


def main() -> None:
    cpu = "import time; import broker.store.store; print(time.process_time())"
    seconds = subprocess.run([sys.executable, "-c", cpu], capture_output=True, text=True, check=True).stdout
    print(f"{'a process that imports the store':<58} {float(seconds):8.3f} s CPU")
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/store.db"
        timed("creating a store", lambda: open_store(url, clock=SystemClock())).close()
        store = timed("opening a current store", lambda: open_store(url, clock=SystemClock()))
        bench_jobs(store)
        store.close()


if __name__ == "__main__":
    main()
