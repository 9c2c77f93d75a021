"""The machine time of attempts, stored next to the events so that reports read only their own period.

Every function works inside the caller's transaction.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    select,
    update,
)

from broker.core.events.views import AttemptView, JobView
from broker.core.job.placements import Placement
from broker.core.market.accelerators import card_share
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.policy.policy import RentedHours
from broker.core.values.money import Money
from broker.ledger.entries import Tags
from broker.store.engine.fields import from_micros, to_micros
from broker.store.schema.jobs import STILL_RUNNING, MachineTimeRow
from broker.store.schema.row import columns_of

_HOUR = 3_600_000_000
_KEY = ("job_id", "attempt")
_CHANGE = (
    update(MachineTimeRow)
    .where(*(getattr(MachineTimeRow, name) == bindparam(f"new_{name}") for name in _KEY))
    .values({name: bindparam(f"new_{name}") for name in ("since", "until")})
)


@dataclass(frozen=True, slots=True)
class MachineTime:
    """The machines of one attempt: ``nodes`` machines with ``count`` accelerators each, from ``since`` until ``until``
    (UTC; None: not known to be gone). ``price``: of one machine at the placement (USD per hour)."""

    job_id: str
    attempt: int
    team: str | None
    money: MoneyKind
    provider: str
    capacity_type: CapacityType
    accelerator: str | None
    count: int
    nodes: int
    price: Money | None
    since: datetime
    until: datetime | None

    @property
    def card(self) -> str | None:
        """The accelerator, or the card that it is a part of."""
        return self.accelerator and card_share(self.accelerator)[0]

    @property
    def gpus(self) -> float:
        """How many cards they are together: a part counts as its share of the card's memory."""
        return float(self.count * self.nodes * card_share(self.accelerator)[1])

    @property
    def price_per_gpu(self) -> Money | None:
        """USD per hour and card; None if unknown or without accelerators."""
        share = self.count * card_share(self.accelerator)[1]
        return self.price.share(share.denominator, share.numerator) if self.price is not None and share else None


def keep(connection: Connection, changes: Iterable[tuple[JobView | None, JobView]]) -> None:
    """Store the changes of machine time between two views of each of these jobs."""
    new, changed = list[dict[str, Any]](), list[dict[str, Any]]()
    for previous_view, view in changes:
        previous_attempts = {attempt.number: attempt for attempt in previous_view.attempts} if previous_view else {}
        for attempt in view.attempts:
            previous = previous_attempts.get(attempt.number)
            if attempt is previous or attempt.up_since is None:
                continue
            if previous is None or previous.up_since is None:
                new.append(_row(view, attempt))
            elif (previous.up_since, previous.gone_at) != (attempt.up_since, attempt.gone_at):
                changed.append(_row(view, attempt))
    if new:
        connection.execute(insert(MachineTimeRow), new)
    if changed:
        connection.execute(
            _CHANGE, [{f"new_{name}": row[name] for name in (*_KEY, "since", "until")} for row in changed]
        )


def _row(view: JobView, attempt: AttemptView) -> dict[str, Any]:
    job, placement, offer = view.job, attempt.placement, attempt.placement.offer
    value = offer.amortised
    assert attempt.up_since is not None, "only machines that came up have a time"
    return {
        "job_id": view.id,
        "attempt": attempt.number,
        "since": to_micros(attempt.up_since),
        "until": STILL_RUNNING if attempt.gone_at is None else to_micros(attempt.gone_at),
        "user_name": view.user,
        "team": job.team,
        "project": job.project,
        "workload": job.workload.value,
        "environment": job.environment,
        "can_use_spot": job.can_use_spot,
        "money": placement.money.value,
        "provider": offer.provider,
        "region": offer.region,
        "capacity_type": offer.capacity_type.value,
        "instance_type": offer.instance_type,
        "accelerator": offer.accelerator,
        "count": offer.count,
        "nodes": placement.nodes,
        "micros": None if offer.price is None else offer.price.micros,
        "depreciation": value.micros if value and offer.capacity_type is CapacityType.OWNED else None,
    }


def keep_outside(
    connection: Connection, tags: Tags, placement: Placement | None, kind: MoneyKind, since: datetime, until: datetime
) -> None:
    """Store the machine time of a launch outside gpubroker, as the attempt of its tags. ``placement``: as judged; None
    if that is not on record."""
    key = {"job_id": tags.job_id, "attempt": tags.attempt or 1}
    times = {"since": to_micros(since), "until": to_micros(until)}
    is_same = and_(*(getattr(MachineTimeRow, name) == value for name, value in key.items()))
    if connection.execute(update(MachineTimeRow).where(is_same).values(times)).rowcount:
        return
    nodes, offer = (1, None) if placement is None else (placement.nodes, placement.offer)
    row = {
        **key,
        **times,
        "user_name": tags.user,
        "team": tags.team,
        "project": tags.project,
        "workload": tags.workload or "",
        "environment": tags.environment,
        "can_use_spot": False,  # whether it saves checkpoints is unknown
        "money": kind.value,
        "provider": tags.provider or "",
        "region": tags.region or "",
        "capacity_type": (tags.capacity_type or CapacityType.ON_DEMAND).value,
        "instance_type": offer.instance_type if offer else "",
        "accelerator": tags.accelerator,
        "count": tags.gpus // nodes,
        "nodes": nodes,
        "micros": offer.price.micros if offer and offer.price else None,
    }
    connection.execute(insert(MachineTimeRow), row)


def time_within(left: int, right: int, now: int) -> ColumnElement[int]:
    """The time of an attempt's machines in that period (microseconds); of machines that still exist, up to ``now``."""
    until = case((MachineTimeRow.until == STILL_RUNNING, now), else_=MachineTimeRow.until)
    last = case((until > right, right), else_=until)
    first = case((MachineTimeRow.since < left, left), else_=MachineTimeRow.since)
    return case((last > first, last - first), else_=0)


def depreciation(connection: Connection, since: datetime, until: datetime) -> Mapping[str | None, Money]:
    """The depreciation of owned machines while jobs used them within that time (UTC), by team."""
    left, right, row = to_micros(since), to_micros(until), MachineTimeRow
    cost = cast(time_within(left, right, right), Float) * row.depreciation * row.nodes
    used = row.until > left, row.since < right, row.depreciation.is_not(None)
    query = select(row.team, func.sum(cost)).where(*used).group_by(row.team)
    return {team: Money(round(micros / _HOUR)) for team, micros in connection.execute(query)}


def rented_hours(connection: Connection, since: datetime, until: datetime) -> Sequence[RentedHours]:
    """The GPU-hours on spot and on-demand machines within that time (UTC) of jobs whose files allow spot."""
    left, right, row = to_micros(since), to_micros(until), MachineTimeRow
    columns = (row.user_name, row.team, row.project, row.workload, row.environment, row.money, row.capacity_type)
    query = (
        select(
            *columns, row.accelerator, func.sum(cast(time_within(left, right, right), Float) * row.count * row.nodes)
        )
        .where(row.until > left, row.since < right, row.can_use_spot, row.accelerator.is_not(None))
        .where(row.capacity_type.in_((CapacityType.SPOT.value, CapacityType.ON_DEMAND.value)))
        .group_by(*columns, row.accelerator)
    )
    return [
        RentedHours(
            user,
            team,
            project,
            workload,
            environment,
            money == MoneyKind.SANDBOX,
            on_spot=kind == CapacityType.SPOT,
            hours=micros / _HOUR * float(card_share(accelerator)[1]),
        )
        for user, team, project, workload, environment, money, kind, accelerator, micros in connection.execute(query)
    ]


def forget(connection: Connection, job_id: str) -> None:
    connection.execute(delete(MachineTimeRow).where(MachineTimeRow.job_id == job_id))


def read(
    connection: Connection, *, since: datetime | None = None, job_ids: Sequence[str] | None = None
) -> Iterator[MachineTime]:
    """The machine time of real machines that existed at ``since`` (UTC) or later, or that of some jobs;
    oldest first.
    """
    query = (
        select(*_READ)
        .where(MachineTimeRow.money != MoneyKind.SANDBOX.value)
        .order_by(MachineTimeRow.since, MachineTimeRow.job_id, MachineTimeRow.attempt)
    )
    if since is not None:
        query = query.where(MachineTimeRow.until >= to_micros(since))
    if job_ids is not None:
        query = query.where(MachineTimeRow.job_id.in_(job_ids))
    return map(_time, connection.execute(query))


_READ = columns_of(
    MachineTimeRow,
    "job_id",
    "attempt",
    "team",
    "money",
    "provider",
    "capacity_type",
    "accelerator",
    "count",
    "nodes",
    "micros",
    "since",
    "until",
)
# A month has tens of thousands of rows: a dictionary is faster than a call of the enumeration.
_MONEY = {kind.value: kind for kind in MoneyKind}
_TYPES = {kind.value: kind for kind in CapacityType}


def _time(row: Sequence[Any]) -> MachineTime:
    """Converts a row of `_READ`."""
    job_id, attempt, team, money, provider, capacity_type, accelerator, count, nodes, micros, since, until = row
    return MachineTime(
        job_id,
        attempt,
        team,
        _MONEY[money],
        provider,
        _TYPES[capacity_type],
        accelerator,
        count,
        nodes,
        None if micros is None else Money(micros),
        from_micros(since),
        None if until == STILL_RUNNING else from_micros(until),
    )
