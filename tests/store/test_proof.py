"""`Store.prove`: what is kept follows from events and entries; what does not is found and made anew, a few jobs at a
time."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import delete, insert, select, update

from broker.core.policy.approvals import StandingGrant
from broker.core.values.money import Money
from broker.store import Store
from broker.store.jobs import journal
from broker.store.jobs.journal import Proof, StoreWriter
from broker.store.jobs.reader import StoreReader
from broker.store.schema.jobs import JobRow, MachineTimeRow
from broker.store.schema.ledger import LedgerBalanceRow, MovementSumRow, SpendSumRow
from tests.past import finished, started

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
CLOSED, RUNNING = 11, 2


@pytest.fixture
def filled(store: Store) -> Store:
    """Jobs that have run, and jobs that run; every fourth under a standing grant."""
    begun = NOW - timedelta(days=1)
    ahead = StandingGrant(0, "bob", begun, NOW + timedelta(days=9), Money.usd(9_000), ("dear",), ("user-*",))
    with store.writing() as tx:
        tx.give_standing(ahead)
    for number in range(CLOSED):
        finished(store, number, begun)
    for number in range(RUNNING):
        started(store, number, NOW - timedelta(hours=1))
    return store


def ids(store: Store) -> list[str]:
    with store.reading() as look:
        return sorted(view.id for view in look.jobs())


def sums_of(store: Store) -> int:
    with store.reading() as look:
        return len(look.kept_sums())


def test_where_all_follows_nothing_differs(filled: Store) -> None:
    found = filled.prove()
    assert found == Proof(CLOSED + RUNNING, [], sums_of(filled), 0)
    assert found.sums > 0


def test_whatever_differs_is_found_once_and_mended(filled: Store) -> None:
    viewed, balanced, moved, timed, *_ = ids(filled)
    before = {job_id: look_at(filled, job_id) for job_id in ids(filled)}
    sums = sums_of(filled)
    with filled._database.writing() as connection:
        state = JobRow.view
        text = connection.scalar(select(JobRow).with_only_columns(state).where(JobRow.id == viewed))
        assert text is not None
        changed = text.replace('"user":"', '"user":"x')
        connection.execute(update(JobRow).where(JobRow.id == viewed).values(view=changed))
        connection.execute(
            update(LedgerBalanceRow).where(LedgerBalanceRow.job_id == balanced).values(spent=LedgerBalanceRow.spent + 1)
        )
        connection.execute(
            update(MovementSumRow).where(MovementSumRow.job_id == moved).values(movements=MovementSumRow.movements + 1)
        )
        connection.execute(delete(MachineTimeRow).where(MachineTimeRow.job_id == timed))
        row = connection.execute(select(SpendSumRow).where(SpendSumRow.micros != 0)).mappings().first()
        assert row is not None
        same = (
            SpendSumRow.size == row["size"],
            SpendSumRow.group_id == row["group_id"],
            SpendSumRow.slot == row["slot"],
        )
        connection.execute(update(SpendSumRow).where(*same).values(micros=row["micros"] + 1))
        later = {**row, "slot": row["slot"] + 5_000_000_000_000_000 // row["size"]}  # years after everything
        connection.execute(insert(SpendSumRow).values(later))
    found = filled.prove()
    assert (found.jobs, found.differing) == (CLOSED + RUNNING, [viewed, balanced, moved])
    assert (found.sums, found.sums_differing) == (sums + 1, 2)
    assert filled.prove() == Proof(CLOSED + RUNNING, [], sums, 0)
    assert {job_id: look_at(filled, job_id) for job_id in ids(filled)} == before


def look_at(store: Store, job_id: str) -> object:
    """All that is kept of a job."""
    with store.reading() as look:
        return look.job(job_id), look.balance(job_id), look.sums([job_id]), look.machine_time(job_ids=[job_id])


def test_what_is_kept_of_a_job_without_events_goes(filled: Store) -> None:
    first = ids(filled)[0]
    with filled._database.writing() as connection:
        row = dict(connection.execute(select(JobRow).where(JobRow.id == first)).mappings().one())
        connection.execute(insert(JobRow).values({**row, "id": "zz-nobody"}))
        connection.execute(
            insert(LedgerBalanceRow).values(
                {**dict(connection.execute(select(LedgerBalanceRow)).mappings().first() or {}), "job_id": "zz-nobody"}
            )
        )
    assert filled.prove().differing == ["zz-nobody"]
    assert "zz-nobody" not in ids(filled)
    with filled.reading() as look:
        assert look.balance("zz-nobody") == {}


def test_what_closed_jobs_used_of_a_standing_grant_is_mended(filled: Store) -> None:
    def used() -> Sequence[Money]:
        with filled.reading() as look:
            return [grant.used for grant in look.standing_grants()]

    before = used()
    with filled._database.writing() as connection:
        connection.exec_driver_sql("UPDATE standing_grant SET closed_use = closed_use + 7")
    assert used() != before
    filled.prove()
    assert used() == before != [Money.ZERO]


def test_no_transaction_and_no_answer_has_more_than_a_few_jobs(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "BATCH_SIZE", 4)
    real, portions = StoreWriter.renew, list[int]()

    def noted(tx: StoreWriter, job_ids: Sequence[str]) -> list[str]:
        portions.append(len(job_ids))
        return real(tx, job_ids)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("all that there is, at once")

    monkeypatch.setattr(StoreWriter, "renew", noted)
    for everything in ("jobs", "entries", "kept_sums"):
        monkeypatch.setattr(StoreReader, everything, never)
    assert filled.prove().jobs == CLOSED + RUNNING
    assert portions == [4, 4, 4, 1]
