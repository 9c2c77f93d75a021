"""Recorded holdings: paid or committed capacity, with the use of each accelerator, for rules. Removed ones stay in the
table.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, func, insert, or_, select, update

from broker.core.errors import UnknownName
from broker.core.market.offers import BOUGHT, MoneyKind
from broker.core.policy.policy import CapacityInHand
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind, RecordedHolding
from broker.store.engine.fields import columns_of, from_micros, to_micros, value_of
from broker.store.ledger.machine_time import time_within
from broker.store.schema.jobs import STILL_RUNNING, MachineTimeRow
from broker.store.schema.market import HoldingProofRow, HoldingRow


def holdings(connection: Connection) -> list[RecordedHolding]:
    """Recorded owned machines, reservations and commitments that were not removed, in the order of addition."""
    rows = connection.execute(select(HoldingRow).where(HoldingRow.removed_at.is_(None)).order_by(HoldingRow.number))
    return [_recorded_holding(row) for row in rows]


def held_as_of(connection: Connection, at: datetime) -> list[RecordedHolding]:
    """The recorded capacity held at that time (UTC): without later additions, including later removals."""
    moment = to_micros(at)
    is_held = (HoldingRow.added_at < moment, or_(HoldingRow.removed_at.is_(None), HoldingRow.removed_at >= moment))
    return [
        _recorded_holding(row)
        for row in connection.execute(select(HoldingRow).where(*is_held).order_by(HoldingRow.number))
    ]


def add(connection: Connection, holding: Holding, *, by: str, at: datetime) -> RecordedHolding:
    """Record a holding. Numbers increase and are never reused."""
    number = (connection.scalar(select(func.max(HoldingRow.number))) or 0) + 1
    record = {"number": number, "added_at": at, "added_by": by, "removed_at": None, "removed_by": ""}
    connection.execute(insert(HoldingRow).values(columns_of(HoldingRow, holding, **record)))
    return RecordedHolding(number, holding, from_micros(to_micros(at)), by)


def keep_proof(connection: Connection, name: str, content: bytes) -> str:
    """Store a document; returns its SHA-256 (hex). Idempotent: equal content is stored once."""
    digest = sha256(content).hexdigest()
    if connection.scalar(select(HoldingProofRow.sha256).where(HoldingProofRow.sha256 == digest)) is None:
        connection.execute(insert(HoldingProofRow).values(sha256=digest, name=name, content=content))
    return digest


def proof(connection: Connection, digest: str) -> tuple[str, bytes]:
    """Name and content of a document that proves a holding. Raises `UnknownName` if it is not stored."""
    row = connection.execute(select(HoldingProofRow).where(HoldingProofRow.sha256 == digest)).first()
    if row is None:
        raise UnknownName("proof of a holding", digest or "none", [])
    return str(row.name), bytes(row.content)


def remove(connection: Connection, number: int, *, by: str, at: datetime) -> RecordedHolding:
    """Remove a holding and return it. Raises `UnknownName` if the number does not exist."""
    by_number = {recorded.number: recorded for recorded in holdings(connection)}
    if number not in by_number:
        raise UnknownName("holding", str(number), [str(known_number) for known_number in by_number])
    change = update(HoldingRow).where(HoldingRow.number == number)
    connection.execute(change.values(removed_at=to_micros(at), removed_by=by))
    return by_number[number]


def remove_if_present(connection: Connection, number: int, *, by: str, at: datetime) -> None:
    """Remove a holding of capacity. Idempotent: does nothing if there is none with that number."""
    change = update(HoldingRow).where(HoldingRow.number == number, HoldingRow.removed_at.is_(None))
    connection.execute(change.values(removed_at=to_micros(at), removed_by=by))


def _recorded_holding(row: Any) -> RecordedHolding:
    return RecordedHolding(row.number, value_of(Holding, row), from_micros(row.added_at), row.added_by)


LOOKS_BACK = timedelta(days=7)


_ON_HELD = (
    MachineTimeRow.capacity_type.in_([kind.value for kind in BOUGHT]),
    MachineTimeRow.accelerator.is_not(None),
    MachineTimeRow.money != MoneyKind.SANDBOX.value,
)
_MICROSECOND, _MILLI = timedelta(microseconds=1), 1_000


class HeldWork:
    """Accelerator milliseconds of attempts on owned and reserved machines in any half-open period (microseconds) after
    its start. Reads the attempts once, for queries about many periods.
    """

    def __init__(self, connection: Connection, since: datetime) -> None:
        """Reads the attempts with machines at ``since`` (UTC) or later, once."""
        changes: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        query = select(
            MachineTimeRow.accelerator,
            MachineTimeRow.since,
            MachineTimeRow.until,
            MachineTimeRow.count * MachineTimeRow.nodes,
        )
        for name, first, last, gpus in connection.execute(
            query.where(MachineTimeRow.until >= to_micros(since), *_ON_HELD)
        ):
            changes[str(name)].append((first, gpus))
            if last != STILL_RUNNING:
                changes[str(name)].append((last, -gpus))
        self._of = {name: _WorkCurve.of(sorted(deltas)) for name, deltas in changes.items()}

    def __call__(self, left: int, right: int) -> Mapping[str, int]:
        return {name: (curve.until(right) - curve.until(left)) // _MILLI for name, curve in self._of.items()}


@dataclass(frozen=True, slots=True)
class _WorkCurve:
    """The number of accelerators at work from each of the ``times`` on (microseconds, ascending), and the work
    (accelerator microseconds) done by then.
    """

    times: Sequence[int]
    gpus: Sequence[int]
    work: Sequence[int]

    @classmethod
    def of(cls, changes: Iterable[tuple[int, int]]) -> _WorkCurve:
        times, gpus, work = [0], [0], [0]
        for at, change in changes:
            work.append(work[-1] + gpus[-1] * (at - times[-1]))
            gpus.append(gpus[-1] + change)
            times.append(at)
        return cls(times, gpus, work)

    def until(self, at: int) -> int:
        """All work before that time (accelerator microseconds)."""
        n = bisect_right(self.times, at) - 1
        return self.work[n] + self.gpus[n] * (at - self.times[n])


def in_hand(connection: Connection, now: datetime, work: HeldWork | None = None) -> Mapping[str, CapacityInHand]:
    """Recorded owned and reserved capacity at that time (UTC), by accelerator, and its use in the `LOOKS_BACK` before;
    if it was held for less time, its use in that time. Commitments are not capacity. ``work``: starts `LOOKS_BACK`
    before that time or earlier.
    """
    since = now - LOOKS_BACK
    holdings_by_gpu: defaultdict[str, list[Holding]] = defaultdict(list)
    for recorded in held_as_of(connection, now):
        if recorded.holding.kind is not HoldingKind.COMMITMENT and recorded.holding.active(now):
            holdings_by_gpu[recorded.holding.accelerator].append(recorded.holding)
    if not holdings_by_gpu:
        return {}
    used_millis = (work or partial(_used_milliseconds, connection))(to_micros(since), to_micros(now))
    result = {}
    for name, holdings in holdings_by_gpu.items():
        gpus = sum(holding.gpus for holding in holdings)
        held_millis = sum(
            (now - max(since, holding.starts)) // _MICROSECOND // _MILLI * holding.gpus for holding in holdings
        )
        paid = sum(holding.usd_per_gpu_hour * holding.gpus for holding in holdings) / gpus
        used = min(used_millis.get(name, 0) / held_millis, 1.0) if held_millis else 0.0
        result[name] = CapacityInHand(gpus, used, Money.usd(f"{paid:.6f}"))
    return result


def _used_milliseconds(connection: Connection, left: int, right: int) -> Mapping[str, int]:
    """Accelerator milliseconds of attempts on owned and reserved machines in the half-open period (microseconds)."""
    time = time_within(left, right, right) // _MILLI * MachineTimeRow.count * MachineTimeRow.nodes
    query = select(MachineTimeRow.accelerator, func.sum(time)).where(
        MachineTimeRow.until >= left, MachineTimeRow.since < right, *_ON_HELD
    )  # fmt: skip
    return {str(name): int(total) for name, total in connection.execute(query.group_by(MachineTimeRow.accelerator))}
