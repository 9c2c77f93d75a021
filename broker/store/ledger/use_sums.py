"""Sums of the use and spend of closed jobs, so that a report over all time reads sums and not all jobs.

Every function works inside the caller's transaction.

`fold` adds a closed job to the sums of its slots of time (`use_slots`) and marks its machine time with the smallest of
them. By the mark, a report knows which jobs its sums contain; the others, and those within whose slot its period begins
or ends, are counted one by one. Before a folded job changes, it is taken out of the sums (`unfold`).

Numbers of jobs can be added although a job may have had several places: a row belongs to all jobs with the same set of
places (``signature``), and each such set is counted once.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Connection, bindparam, delete, select, text, tuple_, update

from broker.core.market.offers import MoneyKind
from broker.ledger.entries import ROUTES, Account
from broker.store.engine.times import to_micros
from broker.store.ledger import use_slots
from broker.store.schema.jobs import STILL_THERE, JobRow, MachineTimeRow
from broker.store.schema.ledger import MovementSumRow, UseSumRow
from broker.store.schema.row import table_of

AT_ONCE = 1_000
"""The maximum number of jobs folded in one transaction."""
SPENDS = [movement.value for movement, route in ROUTES.items() if Account.SPENT in route]
GIVES_BACK = frozenset(movement.value for movement, (source, _) in ROUTES.items() if source is Account.SPENT)

_PLACE = (
    "money", "user_name", "team", "project", "workload", "environment", "provider", "region", "capacity_type",
    "instance_type", "accelerator",
)  # fmt: skip
_ADDED = ("jobs", "attempts", "gpu_time", "machine_time", *(kind.value for kind in MoneyKind))
_COLUMNS = table_of(UseSumRow).columns.keys()
_ADD = text(
    f"INSERT INTO use_sum ({', '.join(_COLUMNS)}) VALUES (:{', :'.join(_COLUMNS)})"  # noqa: S608  # our own names
    " ON CONFLICT (slot, part) DO UPDATE SET "
    + ", ".join(f"{name} = use_sum.{name} + excluded.{name}" for name in _ADDED)
)
_OF_JOBS = MachineTimeRow.job_id.in_(bindparam("jobs", expanding=True))
_TIMES = select(
    MachineTimeRow.job_id,
    MachineTimeRow.attempt,
    MachineTimeRow.since,
    MachineTimeRow.until,
    MachineTimeRow.count,
    MachineTimeRow.nodes,
    *(getattr(MachineTimeRow, name) for name in _PLACE),
).where(_OF_JOBS)
_MOVED = select(
    MovementSumRow.job_id,
    MovementSumRow.attempt,
    MovementSumRow.money,
    MovementSumRow.movement,
    MovementSumRow.micros,
    MovementSumRow.covers_from,
    MovementSumRow.covers_to,
).where(MovementSumRow.job_id.in_(bindparam("jobs", expanding=True)), MovementSumRow.movement.in_(SPENDS))
_FOLDED = select(MachineTimeRow.job_id).distinct().where(_OF_JOBS, MachineTimeRow.folded.is_not(None))
_DELETE_EMPTY = delete(UseSumRow).where(
    UseSumRow.slot == bindparam("in_slot", type_=BigInteger),
    UseSumRow.part == bindparam("of_part"),
    UseSumRow.jobs == 0,
)
_MARK = update(MachineTimeRow).where(MachineTimeRow.job_id == bindparam("job"))

Place = tuple[Any, ...]


def fold(connection: Connection, before: datetime, after: tuple[int, str] = (0, "")) -> tuple[int, str] | None:
    """Add the next closed jobs, and launches outside gpubroker, whose machines were gone before ``before`` (UTC) to the
    sums, at most `AT_ONCE`.

    Returns the position after which the next call continues (``after``); None if there are no more.
    """
    waiting = select(MachineTimeRow.until, MachineTimeRow.job_id, JobRow.closed).join_from(
        MachineTimeRow, JobRow, JobRow.id == MachineTimeRow.job_id, isouter=True
    )
    waiting = waiting.where(
        MachineTimeRow.folded.is_(None),
        MachineTimeRow.until <= to_micros(before),
        tuple_(MachineTimeRow.until, MachineTimeRow.job_id) > tuple_(*after),
    )
    rows = connection.execute(waiting.order_by(MachineTimeRow.until, MachineTimeRow.job_id).limit(AT_ONCE)).all()
    if not rows:
        return None
    _change(connection, sorted({row.job_id for row in rows if row.closed is not False}), 1)
    return rows[-1].until, rows[-1].job_id


def unfold(connection: Connection, job_ids: Sequence[str]) -> None:
    """Take these jobs out of the sums, if they are in them. Call this before their machine time or spend changes."""
    for first in range(0, len(job_ids), AT_ONCE):
        folded = list(connection.scalars(_FOLDED, {"jobs": job_ids[first : first + AT_ONCE]}))
        if folded:
            _change(connection, folded, -1)


def forget(connection: Connection) -> None:
    """Delete every sum; all jobs are counted one by one until they are folded again."""
    connection.execute(update(MachineTimeRow).where(MachineTimeRow.folded.is_not(None)).values(folded=None))
    connection.execute(delete(UseSumRow))


def _change(connection: Connection, job_ids: Sequence[str], sign: int) -> None:
    """Add the jobs to the sums (``sign`` 1) and mark them, or the reverse (-1)."""
    sums: dict[tuple[int, str], dict[str, Any]] = {}
    marks = []
    for job_id, parts, slots in _jobs(connection, job_ids):
        marks.append({"job": job_id, "folded": slots[0] if sign > 0 else None})
        signature = _hash(sorted(map(json.dumps, parts)))
        for place, added in parts.items():
            part = _hash([signature, *place])
            for slot in slots:
                row = sums.setdefault(
                    (slot, part),
                    {"slot": slot, "part": part, "signature": signature}
                    | dict(zip(_PLACE, place, strict=True))
                    | dict.fromkeys(_ADDED, 0),
                )
                for name, amount in added.items():
                    row[name] += sign * amount
    if marks:
        keys = sorted(sums)  # always in the same order, against deadlocks
        connection.execute(_ADD, [sums[key] for key in keys])
        if sign < 0:
            connection.execute(_DELETE_EMPTY, [{"in_slot": slot, "of_part": part} for slot, part in keys])
        connection.execute(_MARK.values(folded=bindparam("folded", type_=BigInteger)), marks)


def _jobs(
    connection: Connection, job_ids: Sequence[str]
) -> Iterator[tuple[str, dict[Place, dict[str, int]], list[int]]]:
    """Each job with its use and spend by place, and its slots.

    Slots are empty for a job with a machine that still exists.
    """
    if not job_ids:
        return
    moved: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for row in connection.execute(_MOVED, {"jobs": job_ids}):
        moved[row.job_id, row.attempt].append(row)
    attempts: dict[str, list[Any]] = defaultdict(list)
    for row in connection.execute(_TIMES, {"jobs": job_ids}):
        attempts[row.job_id].append(row)
    for job_id, times in attempts.items():
        parts: dict[Place, dict[str, int]] = {}
        first, last = min(row.since for row in times), max(row.until for row in times)
        if last == STILL_THERE:
            continue
        for row in times:
            added = parts.setdefault(tuple(getattr(row, name) for name in _PLACE), dict.fromkeys(_ADDED, 0))
            ran = max(row.until - row.since, 0) * row.nodes
            added["jobs"] = 1
            added["attempts"] += 1
            added["machine_time"] += ran
            added["gpu_time"] += ran * row.count
            for one in moved[job_id, row.attempt]:
                added[one.money] += -one.micros if one.movement in GIVES_BACK else one.micros
                first, last = min(first, one.covers_from), max(last, one.covers_to)
        yield job_id, parts, use_slots.slots_of(first, last)


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]
