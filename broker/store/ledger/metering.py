"""How far the machine time of attempts is settled: one row per attempt, updated in the transaction of its entries.

A row may be deleted: the next settlement of the attempt recreates it from its entries (`posted_spend`). Every function
works inside the caller's transaction."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, case, func, select, text

from broker.core.values.money import Money
from broker.ledger.entries import EGRESS, OUTSIDE, QUARTER, Account
from broker.ledger.journal import Posted
from broker.ledger.meter import HOUR, Meter
from broker.store.engine.fields import from_micros, to_micros
from broker.store.engine.statements import for_jobs, in_jobs
from broker.store.schema.ledger import LedgerEntryRow, MeteringRow
from broker.store.schema.row import table_of

_NAMES = table_of(MeteringRow).columns.keys()
_OF_JOBS = select(MeteringRow).where(in_jobs(MeteringRow.job_id))
_KEEP = text(
    f"INSERT INTO metering ({', '.join(_NAMES)}) VALUES (:{', :'.join(_NAMES)})"  # noqa: S608  # our own names
    " ON CONFLICT (job_id, attempt) DO UPDATE SET"
    f" {', '.join(f'{name} = excluded.{name}' for name in _NAMES if name not in ('job_id', 'attempt'))}"
)


def read(connection: Connection, job_ids: Sequence[str]) -> dict[str, dict[int, Meter]]:
    """The meters of those jobs' attempts, by job and number of the attempt. Without jobs that have none."""
    meters: dict[str, dict[int, Meter]] = {}
    for row in for_jobs(connection, _OF_JOBS, job_ids):
        meters.setdefault(row.job_id, {})[row.attempt] = _meter(row)
    return meters


def _posted_query() -> Select[Any, Any, Any, bool]:
    egress = LedgerEntryRow.movement_id.startswith(bindparam("egress"))
    quarter = LedgerEntryRow.covers_from // QUARTER
    # Entries within one quarter of an hour are summed, as the caller compares only such quarters.
    same_quarter = and_(
        LedgerEntryRow.covers_to <= (quarter + 1) * QUARTER, LedgerEntryRow.covers_to > LedgerEntryRow.covers_from
    )
    group = case((same_quarter, quarter), else_=-LedgerEntryRow.id)
    return (
        select(
            func.sum(LedgerEntryRow.micros),
            func.min(LedgerEntryRow.covers_from),
            func.max(LedgerEntryRow.covers_to),
            egress,
        )
        .where(
            LedgerEntryRow.job_id == bindparam("job"),
            LedgerEntryRow.attempt == bindparam("attempt"),
            LedgerEntryRow.account == Account.SPENT.value,
        )
        .where(~LedgerEntryRow.movement_id.startswith(bindparam("outside")))
        .group_by(group, egress)
    )


_POSTED = _posted_query()  # built once, as building takes longer than the query


def keep(connection: Connection, meters: Mapping[str, Mapping[int, Meter]]) -> None:
    """Store meters by job and number of the attempt; replaces earlier ones."""
    rows = [
        {
            "job_id": job_id,
            "attempt": attempt,
            "settled": meter.settled.micros,
            "settled_to": to_micros(meter.settled_to),
            "since": to_micros(meter.since),
            "rate": meter.rate.micros,
            "cost": meter.cost // HOUR,
            "cost_rest": meter.cost % HOUR,
            "moved": meter.moved.micros,
            "ended": meter.ended,
        }
        for job_id, attempts in sorted(meters.items())
        for attempt, meter in sorted(attempts.items())
    ]
    if rows:
        connection.execute(_KEEP, rows)


def posted_spend(connection: Connection, job_id: str, attempt: int) -> Posted:
    """The posted spend of an attempt. The time for this grows with the number of its settlements."""
    parameters = {
        "job": job_id,
        "attempt": attempt,
        **{name: f"{job_id}/{attempt}/{name}/" for name in (EGRESS, OUTSIDE)},
    }
    time, moved = [], Money.ZERO
    for micros, start, end, is_egress in connection.execute(_POSTED, parameters):
        if is_egress:
            moved += Money(int(micros))
        else:
            time.append((from_micros(start), from_micros(end), Money(int(micros))))
    return Posted(time, moved)


def _meter(row: Any) -> Meter:
    return Meter(
        settled=Money(row.settled),
        settled_to=from_micros(row.settled_to),
        since=from_micros(row.since),
        rate=Money(row.rate),
        cost=row.cost * HOUR + row.cost_rest,
        moved=Money(row.moved),
        ended=row.ended,
    )
