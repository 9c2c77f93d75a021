"""Spend and machine time in a period, summed by the database. Every function works inside the caller's transaction.

The spend of an attempt is stored as one sum per movement. A sum whose time lies within the period is added whole. If
the period begins or ends within that time, its entries are added one by one, those across the edge in part.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    SQLColumnExpression,
    and_,
    case,
    cast,
    func,
    literal,
    not_,
    select,
)
from sqlalchemy.orm import join

from broker.core.market.accelerators import card_share
from broker.core.market.offers import BOUGHT, CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import ROUTES, Account, Balance, amount_within
from broker.store.engine.fields import from_micros, to_micros
from broker.store.ledger.ledger import balance_of
from broker.store.ledger.machine_time import time_within
from broker.store.schema.jobs import STILL_RUNNING, MachineTimeRow
from broker.store.schema.ledger import (
    STILL_HELD,
    WITHOUT_ATTEMPT,
    LedgerBalanceRow,
    LedgerEntryRow,
    MovementSumRow,
)

_SPENDS = [movement.value for movement, route in ROUTES.items() if Account.SPENT in route]
_GIVES_BACK = [movement.value for movement, (source, _) in ROUTES.items() if source is Account.SPENT]
_HOUR = 3_600_000_000.0
NONE = "(none)"
SEPARATOR = "\x1f"  # between the values of several dimensions; no name contains it


# Cash spent by an attempt on bought machines is for its machines outside bought capacity, at the on-demand price.
_RENTED = CapacityType.ON_DEMAND.value
DIMENSIONS: Mapping[str, SQLColumnExpression[Any]] = {
    "team": MachineTimeRow.team,
    "project": MachineTimeRow.project,
    "user": MachineTimeRow.user_name,
    "workload": MachineTimeRow.workload,
    "environment": MachineTimeRow.environment,
    "provider": MachineTimeRow.provider,
    "region": MachineTimeRow.region,
    "capacity_type": MachineTimeRow.capacity_type,
    "accelerator": func.coalesce(MachineTimeRow.accelerator, "cpu"),
    "instance_type": MachineTimeRow.instance_type,
    "job": MachineTimeRow.job_id,
}
"""The dimensions of machine time; `broker.app.billing.report` explains each."""


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
class GroupSpending:
    """The spend of a group by kind of money, the part of it on owned and reserved machines (``bought``, USD), its
    machine time in hours, and the number of attempts and jobs with machines in the period.
    """

    money: dict[MoneyKind, Money] = field(default_factory=dict)
    gpu_hours: float = 0.0
    machine_hours: float = 0.0
    attempts: int = 0
    jobs: int = 0
    bought: Money = Money.ZERO

    def add(self, kind: MoneyKind, amount: Money, *, bought: bool) -> None:
        self.money[kind] = self.money.get(kind, Money.ZERO) + amount
        if bought:
            self.bought += amount


def spent_by(connection: Connection, dimension: str, period: SpendingPeriod) -> dict[str, GroupSpending]:
    """Spend and machine time of attempts with machines in the period, by the values of one of `DIMENSIONS` or of
    several (`_group`)."""
    left, right = _edges(period)
    group, within = _group(dimension), _within(period, left, right)
    hours = cast(time_within(left, right, to_micros(period.now)), Float) / _HOUR
    rows = connection.execute(
        select(
            group,
            func.sum(hours * MachineTimeRow.count * MachineTimeRow.nodes),
            func.sum(hours * MachineTimeRow.nodes),
            func.count(),
            func.count(MachineTimeRow.job_id.distinct()),
        )
        .where(within)
        .group_by(group)
    )
    groups = {
        name: GroupSpending({}, float(gpu_hours), float(machine_hours), attempts, jobs)
        for name, gpu_hours, machine_hours, attempts, jobs in rows
    }
    parts = (
        select(group, MachineTimeRow.accelerator, func.sum(hours * MachineTimeRow.count * MachineTimeRow.nodes))
        .where(within, MachineTimeRow.accelerator.is_not(None))
        .group_by(group, MachineTimeRow.accelerator)
    )
    for name, accelerator, part_hours in connection.execute(parts):  # a part counts as its share of the card
        groups[name].gpu_hours -= float(part_hours) * float(1 - card_share(accelerator)[1])
    movements = join(
        MachineTimeRow,
        MovementSumRow,
        and_(MovementSumRow.job_id == MachineTimeRow.job_id, MovementSumRow.attempt == MachineTimeRow.attempt),
    )
    # Money may be dated outside the time of its machines (a minimum charge, a correction, egress), so it is found by
    # its own dates.
    conditions = (
        _money_condition(period),
        MovementSumRow.movement.in_(_SPENDS),
        MovementSumRow.covers_to >= left,
        MovementSumRow.covers_from < right,
    )
    is_within = and_(MovementSumRow.covers_from >= left, MovementSumRow.covers_to < right)
    signed = case((MovementSumRow.movement.in_(_GIVES_BACK), -MovementSumRow.micros), else_=MovementSumRow.micros)
    outside = and_(MovementSumRow.money == MoneyKind.CASH.value, MachineTimeRow.money == MoneyKind.AMORTISED.value)
    group = _group(
        dimension, {**DIMENSIONS, "capacity_type": case((outside, _RENTED), else_=MachineTimeRow.capacity_type)}
    )
    bought = case((outside, 0), (MachineTimeRow.capacity_type.in_([kind.value for kind in BOUGHT]), 1), else_=0)
    sums = (
        select(group, MovementSumRow.money, bought, func.sum(signed))
        .select_from(movements)
        .where(*conditions, is_within)
    )
    for name, kind, own_machines, micros in connection.execute(sums.group_by(group, MovementSumRow.money, bought)):
        groups.setdefault(name, GroupSpending()).add(MoneyKind(kind), Money(int(micros)), bought=bool(own_machines))

    own_entries = and_(
        LedgerEntryRow.job_id == MachineTimeRow.job_id,
        LedgerEntryRow.attempt == MachineTimeRow.attempt,
        LedgerEntryRow.movement == MovementSumRow.movement,
        LedgerEntryRow.money == MovementSumRow.money,
        LedgerEntryRow.account == Account.SPENT.value,
        LedgerEntryRow.covers_to >= left,
        LedgerEntryRow.covers_from < right,
    )
    entries = (
        select(
            group,
            LedgerEntryRow.money,
            bought,
            LedgerEntryRow.micros,
            LedgerEntryRow.covers_from,
            LedgerEntryRow.covers_to,
        )
        # An outer join, so that SQLite reads the entries of the few sums at an edge, not those of all jobs.
        .select_from(movements.outerjoin(LedgerEntryRow, own_entries))
        .where(*conditions, not_(is_within), func.coalesce(LedgerEntryRow.movement_id, "") != "")
    )
    for name, kind, own_machines, micros, start, end in connection.execute(entries):
        part = amount_within(micros, start, end, left, right)
        groups.setdefault(name, GroupSpending()).add(MoneyKind(kind), Money(part), bought=bool(own_machines))
    return groups


def bought_in_advance(connection: Connection, period: SpendingPeriod) -> Money:
    """The payments in the period for capacity that is used later, if at all (USD); they are not spend of a machine."""
    if period.sandbox:
        return Money.ZERO
    (left, right) = _edges(period)
    query = select(LedgerEntryRow.micros, LedgerEntryRow.covers_from, LedgerEntryRow.covers_to).where(
        WITHOUT_ATTEMPT,
        LedgerEntryRow.money == MoneyKind.CASH.value,
        LedgerEntryRow.capacity_type == CapacityType.RESERVED.value,
        LedgerEntryRow.covers_to >= left,
        LedgerEntryRow.covers_from < right,
    )
    return Money(sum(amount_within(*row, left, right) for row in connection.execute(query)))


def first_machine_time(connection: Connection) -> datetime | None:
    """When the first machine, real or simulated, came up (UTC); None without any."""
    first = connection.scalar(select(func.min(MachineTimeRow.since)))
    return None if first is None else from_micros(first)


def groups_of(
    connection: Connection, dimension: str, period: SpendingPeriod, job_ids: list[str]
) -> set[tuple[str, str]]:
    """The pairs of job and group in which `spent_by` counts these jobs."""
    query = select(MachineTimeRow.job_id, _group(dimension)).where(
        _within(period, *_edges(period)), MachineTimeRow.job_id.in_(job_ids)
    )
    return {(job_id, name) for job_id, name in connection.execute(query.distinct())}


def holding(connection: Connection) -> dict[str, dict[MoneyKind, Balance]]:
    result: dict[str, dict[MoneyKind, Balance]] = {}
    for row in connection.execute(select(LedgerBalanceRow).where(STILL_HELD)):
        result.setdefault(row.job_id, {})[MoneyKind(row.money)] = balance_of(row)
    return result


def _group(dimension: str, columns: Mapping[str, SQLColumnExpression[Any]] = DIMENSIONS) -> ColumnElement[str]:
    """The value of a dimension, or the values of several (``team,user``) with `SEPARATOR` between."""
    if not dimension:
        return literal("")  # a single group
    first, *others = (func.coalesce(func.nullif(columns[name], ""), NONE) for name in dimension.split(","))
    return reduce(lambda joined, column: joined.concat(SEPARATOR).concat(column), others, first)


def _edges(period: SpendingPeriod) -> tuple[int, int]:
    """The period in microseconds; a missing limit becomes a number beyond all times."""
    left = -STILL_RUNNING if period.since is None else to_micros(period.since)
    return left, STILL_RUNNING if period.until is None else to_micros(period.until)


def _within(period: SpendingPeriod, left: int, right: int) -> ColumnElement[bool]:
    return and_(
        MachineTimeRow.until >= literal(left),
        MachineTimeRow.since < literal(right),
        _money_condition(period),
    )


def _money_condition(period: SpendingPeriod) -> ColumnElement[bool]:
    money = MachineTimeRow.money
    return money == MoneyKind.SANDBOX.value if period.sandbox else money != MoneyKind.SANDBOX.value
