"""What a job's movements come to is kept as sums: the same as adding up all entries, at a cost that does not grow."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import Entry, Movement, Sum, Tags, move, movements
from broker.store import Store
from broker.store.engine import statements
from tests.counts import FULL
from tests.store.work import statements_work

T = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
_ids = itertools.count()

Moved = tuple[Movement, int, str, int | None, MoneyKind, int, int]
MOVED = st.tuples(
    st.sampled_from(Movement),
    st.integers(1, 10**12),
    st.sampled_from(["a", "b"]),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([MoneyKind.CASH, MoneyKind.AMORTISED]),
    st.integers(0, 50),
    st.integers(0, 50),
)


def entries_of(
    kind: Movement, micros: int, job: str, attempt: int | None, money: MoneyKind, start: int, at: int
) -> tuple[Entry, ...]:
    covers = (T + start * HOUR, T + (start + 1) * HOUR)
    amount = Money(0 if kind is Movement.DATE else micros)
    return move(
        kind, amount, movement_id=f"s{next(_ids)}", money=money, at=T + at * HOUR, covers=covers,
        tags=Tags(job, "ada", attempt=attempt),
    )  # fmt: skip


def added_up(entries: Sequence[Entry]) -> set[Sum]:
    groups: dict[tuple[object, ...], list[Entry]] = defaultdict(list)
    for entry in entries:
        groups[entry.tags.attempt, entry.movement, entry.account, entry.money].append(entry)
    return {
        Sum(
            "sum", some[0].movement, some[0].account, sum((e.amount for e in some), Money.ZERO), some[0].money,
            max(e.at for e in some), min(e.covers_from for e in some), max(e.covers_to for e in some),
            Tags(some[0].tags.job_id, "ada", attempt=some[0].tags.attempt), count=len(some),
        )
        for some in groups.values()
    }  # fmt: skip


def test_movements_of_one_posting_are_added_up_before_they_are_kept(store: Store) -> None:
    """Three settlements of an attempt: $5, $7 and $11 for other hours, the last of them booked in between."""
    settled = [(5, 3, 4), (7, 1, 9), (11, 8, 6)]  # micro-dollars, the hour, when it was booked
    with store.writing() as tx:
        tx.post(
            [e for m, hour, at in settled for e in entries_of(Movement.SETTLE, m, "a", 1, MoneyKind.CASH, hour, at)]
        )
    with store.reading() as look:
        drawn, spent = look.sums(["a"])["a"]
    assert (drawn.amount, spent.amount) == (Money(-23), Money(23))
    assert (spent.count, spent.at) == (3, T + 9 * HOUR)
    assert (spent.covers_from, spent.covers_to) == (T + HOUR, T + 9 * HOUR)


def test_sums_of_many_jobs_are_read_in_portions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [f"j{number}" for number in range(5)]
    with store.writing() as tx:
        for number, job in enumerate(jobs):
            tx.post(entries_of(Movement.HOLD, number + 1, job, None, MoneyKind.CASH, 0, 0))
    monkeypatch.setattr(statements, "MAX_PARAMETERS", 2)
    with store.reading() as look:
        found = look.sums([*jobs, "nobody"])
    assert {job: [one.amount.micros for one in sums] for job, sums in found.items()} == {
        job: [-number, number] for number, job in enumerate(jobs, 1)
    }


@settings(max_examples=15 if FULL else 8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(MOVED, max_size=8), max_size=6))
def test_sums_are_what_the_entries_come_to(store: Store, batches: list[list[Moved]]) -> None:
    number = next(_ids)
    jobs = [f"{name}-{number}" for name in "ab"]
    for batch in batches:
        with store.writing() as tx:
            tx.post(
                [
                    entry
                    for kind, micros, job, attempt, money, start, at in batch
                    for entry in entries_of(kind, micros, f"{job}-{number}", attempt, money, start, at)
                ]
            )

    def check() -> None:
        with store.reading() as look:
            kept = look.sums(jobs)
            for job in jobs:
                entries = look.entries(job)
                assert set(kept.get(job, ())) == added_up(entries)
                assert movements(kept.get(job, ())) == len({entry.movement_id for entry in entries})

    check()
    store.rebuild()
    check()


def test_reading_the_sums_costs_the_same_for_a_long_history(store: Store) -> None:
    def post(count: int) -> None:
        with store.writing() as tx:
            for hour in range(count):
                tx.post(entries_of(Movement.SETTLE, 5, "a", 1, MoneyKind.CASH, hour, hour))

    post(10)
    with statements_work(store) as short, store.reading() as look:
        look.sums(["a"])
    post(500)
    with statements_work(store) as long, store.reading() as look:
        (_, spent) = look.sums(["a"])["a"]
    assert spent.count == 510
    assert spent.amount == Money(2550)
    assert long.done == short.done
