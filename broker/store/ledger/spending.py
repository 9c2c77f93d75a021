"""Spend and machine time in a period, summed by the database. Every function works inside the caller's transaction.

The spend of an attempt is stored as one sum per movement. A sum whose time lies within the period is added whole. If
the period begins or ends within that time, its entries are added one by one, those across the edge in part. Of jobs
that were closed long ago, only the sums by slot of time are read (`broker.store.ledger.use_sums`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from typing import Any

from sqlalchemy import ColumnElement, Connection, Float, Table, and_, case, cast, func, literal, not_, or_, select

from broker.core.market.offers import BOUGHT, CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import Account, Balance
from broker.ledger.sums import amount_before
from broker.store.engine.times import from_micros, to_micros
from broker.store.ledger import use_slots
from broker.store.ledger.ledger import balance_of
from broker.store.ledger.use_sums import GIVES_BACK, SPENDS
from broker.store.schema.ledger import WITHOUT_ATTEMPT
from broker.store.tables.jobs import MACHINE_TIME, STILL_THERE
from broker.store.tables.ledger import BALANCE, ENTRY, MOVED, STILL_HELD, USE

_HOUR = 3_600_000_000.0
NONE = "(none)"
SEPARATOR = "\x1f"  # between the values of several dimensions; no name contains it
_T = MACHINE_TIME.c


def _bought(table: Table) -> ColumnElement[int]:
    return case((table.c.capacity_type.in_([kind.value for kind in BOUGHT]), 1), else_=0)


def _dimensions(table: Table) -> dict[str, ColumnElement[Any]]:
    """The dimensions common to machine time and its sums; `broker.app.billing.report` explains each."""
    c = table.c
    return {
        "team": c.team,
        "project": c.project,
        "user": c.user_name,
        "workload": c.workload,
        "environment": c.environment,
        "provider": c.provider,
        "region": c.region,
        "capacity_type": c.capacity_type,
        "accelerator": func.coalesce(c.accelerator, "cpu"),
        "instance_type": c.instance_type,
    }


_JOB = "job"
# Cash spent by an attempt on bought machines is for its machines outside bought capacity, at the on-demand price.
_RENTED = CapacityType.ON_DEMAND.value
DIMENSIONS: Mapping[str, ColumnElement[Any]] = {**_dimensions(MACHINE_TIME), _JOB: _T.job_id}
"""The dimensions of machine time."""
_OF_SUMS = _dimensions(USE)


@dataclass(frozen=True, slots=True)
class SpendingPeriod:
    """A half-open period (UTC; None: no limit), as of ``now``.

    ``sandbox``: only simulated machines; otherwise only real ones.
    """

    since: datetime | None
    until: datetime | None
    now: datetime
    sandbox: bool = False


@dataclass(slots=True)
class Spent:
    """The spend of a group by kind of money, the part of it on owned and reserved machines (``bought``, USD), its
    machine time in hours, and the number of attempts and jobs with machines in the period.
    """

    money: dict[MoneyKind, Money] = field(default_factory=dict)
    gpu_hours: float = 0.0
    machine_hours: float = 0.0
    attempts: int = 0
    jobs: int = 0
    bought: Money = Money.ZERO

    def use(self, gpu_hours: float, machine_hours: float, attempts: int, jobs: int) -> None:
        """Add machine time in hours, and the attempts and jobs that used it."""
        self.gpu_hours += gpu_hours
        self.machine_hours += machine_hours
        self.attempts += attempts
        self.jobs += jobs

    def add(self, kind: MoneyKind, amount: Money, *, bought: bool) -> None:
        self.money[kind] = self.money.get(kind, Money.ZERO) + amount
        if bought:
            self.bought += amount


def spent_by(connection: Connection, dimension: str, period: SpendingPeriod) -> dict[str, Spent]:
    """Spend and machine time of attempts with machines in the period, by the values of one of `DIMENSIONS` or of
    several (`_group`)."""
    left, right = _edges(period)
    by_job = _JOB in dimension.split(",")
    found = {} if by_job else _folded(connection, dimension, period)
    group, within = _group(dimension), _within(period, left, right)
    if not by_job:
        within = and_(within, or_(_T.folded.is_(None), _T.folded.in_(use_slots.cut(left, right))))
    now = to_micros(period.now)
    known = case((_T.until == STILL_THERE, now), else_=_T.until)
    last = case((known > right, right), else_=known)
    first = case((_T.since < left, left), else_=_T.since)
    hours = case((last > first, cast(last - first, Float) / _HOUR), else_=0.0)
    rows = connection.execute(
        select(
            group,
            func.sum(hours * _T.count * _T.nodes),
            func.sum(hours * _T.nodes),
            func.count(),
            func.count(_T.job_id.distinct()),
        )
        .where(within)
        .group_by(group)
    )
    for name, gpu_hours, machine_hours, attempts, jobs in rows:
        found.setdefault(name, Spent()).use(float(gpu_hours), float(machine_hours), attempts, jobs)
    moved = MACHINE_TIME.join(MOVED, and_(MOVED.c.job_id == _T.job_id, MOVED.c.attempt == _T.attempt))
    spent = (within, MOVED.c.movement.in_(SPENDS))
    whole = and_(MOVED.c.covers_from >= left, MOVED.c.covers_to < right)
    signed = case((MOVED.c.movement.in_(GIVES_BACK), -MOVED.c.micros), else_=MOVED.c.micros)
    outside = and_(MOVED.c.money == MoneyKind.CASH.value, _T.money == MoneyKind.AMORTISED.value)
    group = _group(dimension, {**DIMENSIONS, "capacity_type": case((outside, _RENTED), else_=_T.capacity_type)})
    bought = case((outside, 0), else_=_bought(MACHINE_TIME))
    sums = select(group, MOVED.c.money, bought, func.sum(signed)).select_from(moved).where(*spent, whole)
    for name, kind, own_machines, micros in connection.execute(sums.group_by(group, MOVED.c.money, bought)):
        found.setdefault(name, Spent()).add(MoneyKind(kind), Money(int(micros)), bought=bool(own_machines))
    c = ENTRY.c
    own = and_(
        c.job_id == _T.job_id, c.attempt == _T.attempt, c.movement == MOVED.c.movement, c.money == MOVED.c.money,
        c.account == Account.SPENT.value, c.covers_to >= left, c.covers_from < right,
    )  # fmt: skip
    entries = (
        select(group, c.money, bought, c.micros, c.covers_from, c.covers_to)
        # An outer join, so that SQLite reads the entries of the few sums at an edge, not those of all jobs.
        .select_from(moved.outerjoin(ENTRY, own))
        .where(*spent, not_(whole), func.coalesce(c.movement_id, "") != "")
    )
    for name, kind, own_machines, micros, start, end in connection.execute(entries):
        part = amount_before(micros, start, end, right) - amount_before(micros, start, end, left)
        found.setdefault(name, Spent()).add(MoneyKind(kind), Money(part), bought=bool(own_machines))
    return found


def _folded(connection: Connection, dimension: str, period: SpendingPeriod) -> dict[str, Spent]:
    """Use and spend of closed jobs, from the slots within the period."""
    ranges = use_slots.covered(*_edges(period))
    if not ranges:
        return {}
    c, group = USE.c, _group(dimension, _OF_SUMS)
    slots = or_(*(and_(c.slot >= first, c.slot < before) for first, before in ranges))
    within = and_(slots, _of_machines(USE, period))
    bought, found = _bought(USE), dict[str, Spent]()
    sums = (cast(func.sum(cast(c[name], Float)) / _HOUR, Float) for name in ("gpu_time", "machine_time"))
    outside = and_(c.money == MoneyKind.AMORTISED.value, c.cash != 0)
    moneys = [
        func.sum(case((outside, 0), else_=c.cash) if kind is MoneyKind.CASH else c[kind.value]) for kind in MoneyKind
    ]
    query = select(group, bought, *sums, func.sum(c.attempts), *moneys).where(within).group_by(group, bought)
    for name, own_machines, gpu_hours, machine_hours, attempts, *micros in connection.execute(query):
        spent = found.setdefault(name, Spent())
        spent.use(float(gpu_hours), float(machine_hours), int(attempts), 0)
        for kind, amount in zip(MoneyKind, micros, strict=True):
            if amount:
                spent.add(kind, Money(int(amount)), bought=bool(own_machines))
    rented = _group(dimension, {**_OF_SUMS, "capacity_type": literal(_RENTED)})
    for name, micros in connection.execute(select(rented, func.sum(c.cash)).where(within, outside).group_by(rented)):
        found.setdefault(name, Spent()).add(MoneyKind.CASH, Money(int(micros)), bought=False)
    once = select(c.slot, c.signature, group.label("name"), c.jobs).distinct().where(within).subquery()
    for name, jobs in connection.execute(select(once.c.name, func.sum(once.c.jobs)).group_by(once.c.name)):
        found[name].jobs += int(jobs)
    return found


def bought_in_advance(connection: Connection, period: SpendingPeriod) -> Money:
    """The payments in the period for capacity that is used later, if at all (USD); they are not spend of a machine."""
    if period.sandbox:
        return Money.ZERO
    c, (left, right) = ENTRY.c, _edges(period)
    query = select(c.micros, c.covers_from, c.covers_to).where(
        WITHOUT_ATTEMPT, c.money == MoneyKind.CASH.value, c.capacity_type == CapacityType.RESERVED.value,
        c.covers_to >= left, c.covers_from < right,
    )  # fmt: skip
    return Money(sum(amount_before(*row, right) - amount_before(*row, left) for row in connection.execute(query)))


def first_machine_time(connection: Connection) -> datetime | None:
    """When the first machine, real or simulated, came up (UTC), or the beginning of that month; None without any."""
    one_by_one = or_(_T.folded.is_(None), _T.folded >= use_slots.YEARS_FROM)
    since = connection.scalar(select(func.min(_T.since)).where(one_by_one))
    day = connection.scalar(select(func.min(USE.c.slot)).where(USE.c.slot < use_slots.MONTHS_FROM))
    months = USE.c.slot.between(use_slots.MONTHS_FROM, use_slots.YEARS_FROM - 1)
    month = connection.scalar(select(func.min(USE.c.slot)).where(months))
    slots = [use_slots.starts_at(slot) for slot in (day, month) if slot is not None]
    first = min([*slots, *([] if since is None else [since])], default=None)
    return None if first is None else from_micros(first)


def groups_of(
    connection: Connection, dimension: str, period: SpendingPeriod, job_ids: list[str]
) -> set[tuple[str, str]]:
    """The pairs of job and group in which `spent_by` counts these jobs."""
    query = select(_T.job_id, _group(dimension)).where(_within(period, *_edges(period)), _T.job_id.in_(job_ids))
    return {(job_id, name) for job_id, name in connection.execute(query.distinct())}


def holding(connection: Connection) -> dict[str, dict[MoneyKind, Balance]]:
    """The balances of the jobs that hold money."""
    found: dict[str, dict[MoneyKind, Balance]] = {}
    for row in connection.execute(select(BALANCE).where(STILL_HELD)):
        found.setdefault(row.job_id, {})[MoneyKind(row.money)] = balance_of(row)
    return found


def _group(dimension: str, of: Mapping[str, ColumnElement[Any]] = DIMENSIONS) -> ColumnElement[str]:
    """The value of a dimension, or the values of several (``team,user``) with `SEPARATOR` between."""
    if not dimension:
        return literal("")  # a single group
    first, *others = (func.coalesce(func.nullif(of[name], ""), NONE) for name in dimension.split(","))
    return reduce(lambda joined, column: joined.concat(SEPARATOR).concat(column), others, first)


def _edges(period: SpendingPeriod) -> tuple[int, int]:
    """The period in microseconds; a missing limit becomes a number beyond all times."""
    left = -STILL_THERE if period.since is None else to_micros(period.since)
    return left, STILL_THERE if period.until is None else to_micros(period.until)


def _within(period: SpendingPeriod, left: int, right: int) -> ColumnElement[bool]:
    return and_(_T.until >= literal(left), _T.since < literal(right), _of_machines(MACHINE_TIME, period))


def _of_machines(table: Table, period: SpendingPeriod) -> ColumnElement[bool]:
    money = table.c.money
    return money == MoneyKind.SANDBOX.value if period.sandbox else money != MoneyKind.SANDBOX.value
