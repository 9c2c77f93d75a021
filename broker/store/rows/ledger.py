"""The rows of `broker.store.tables.ledger`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, UniqueConstraint, text
from sqlmodel import Field

from broker.store.rows.row import ID, Row
from broker.store.tables.conditions import LONG, ON_OWN, WITHOUT_ATTEMPT


class LedgerEntryRow(Row, table=True):
    """One ledger entry; ``id`` is the posting order. Append-only."""

    __table_args__ = (
        UniqueConstraint("movement_id", "account", name="ledger_entry_movement"),
        Index("ledger_entry_job", "job_id"),
        Index("ledger_entry_spent", "covers_to", sqlite_where=text("account = 'spent'")),
        Index("ledger_entry_long", "covers_to", sqlite_where=LONG),
        Index("ledger_entry_own", "capacity_type", "covers_to", sqlite_where=ON_OWN),
        Index("ledger_entry_unattempted", "attempt", "covers_to", sqlite_where=WITHOUT_ATTEMPT),
    )

    id: int = Field(sa_column=Column(ID, primary_key=True, autoincrement=True))
    movement_id: str
    movement: str
    account: str
    micros: int = Field(sa_type=BigInteger)
    money: str
    at: int = Field(sa_type=BigInteger)
    covers_from: int = Field(sa_type=BigInteger)
    covers_to: int = Field(sa_type=BigInteger)
    job_id: str
    user_name: str
    team: str | None
    project: str | None
    workload: str | None
    environment: str | None
    attempt: int | None
    provider: str | None
    region: str | None
    capacity_type: str | None
    accelerator: str | None
    gpus: int
    note: str
    rate: int | None = Field(sa_type=BigInteger)


class LedgerBalanceRow(Row, table=True):
    """Sums of a job's entries per kind of money, and the tags and dates that count its hold under a budget."""

    __table_args__ = (Index("ledger_balance_open", "held", sqlite_where=text("held <> 0")),)

    job_id: str = Field(primary_key=True)
    money: str = Field(primary_key=True)
    available: int = Field(sa_type=BigInteger)
    held: int = Field(sa_type=BigInteger)
    spent: int = Field(sa_type=BigInteger)
    holds_to: int = Field(sa_type=BigInteger)
    user_name: str
    team: str | None
    project: str | None
    workload: str | None
    environment: str | None
    holds_from: int = Field(sa_type=BigInteger)
    burns: int = Field(sa_type=BigInteger)


class SpendGroupRow(Row, table=True):
    """One set of tags by which budgets count. ``key``: the tags as JSON."""

    __table_args__ = (UniqueConstraint("key", name="spend_group_key"),)

    id: int = Field(sa_column=Column(ID, primary_key=True, autoincrement=True))
    key: str
    money: str
    user_name: str
    team: str | None
    project: str | None
    workload: str | None
    environment: str | None


class SpendSumRow(Row, table=True):
    """The spend of a group in one slot of time: ``size`` microseconds, the ``slot``-th since 1970."""

    __table_args__ = ({"sqlite_with_rowid": False},)

    size: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    group_id: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    slot: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    micros: int = Field(sa_type=BigInteger)


class MovementSumRow(Row, table=True):
    """The sum of a job's movements with the same attempt (0: none), kind of money and kind of movement: ``micros`` went
    from the movement's first account to the second, in ``movements`` movements. ``covers_from`` and ``covers_to``
    enclose the times they cover; ``at``: the latest posting."""

    __table_args__ = ({"sqlite_with_rowid": False},)

    job_id: str = Field(primary_key=True)
    attempt: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    money: str = Field(primary_key=True)
    movement: str = Field(primary_key=True)
    micros: int = Field(sa_type=BigInteger)
    movements: int = Field(sa_type=BigInteger)
    covers_from: int = Field(sa_type=BigInteger)
    covers_to: int = Field(sa_type=BigInteger)
    at: int = Field(sa_type=BigInteger)
    user_name: str


class UseSumRow(Row, table=True):
    """Use and spend of closed jobs in a ``slot`` of time (`broker.store.ledger.use_slots`), by place. ``part``: the
    place and the ``signature`` of its jobs, the set of all their places; ``jobs``: how many have it. ``gpu_time`` and
    ``machine_time`` in microseconds, ``cash``, ``amortised`` and ``sandbox`` in micro-dollars."""

    __table_args__ = ({"sqlite_with_rowid": False},)

    slot: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    part: str = Field(primary_key=True)
    signature: str
    money: str
    user_name: str
    team: str | None
    project: str | None
    workload: str
    environment: str | None
    provider: str
    region: str
    capacity_type: str
    instance_type: str
    accelerator: str | None
    jobs: int = Field(sa_type=BigInteger)
    attempts: int = Field(sa_type=BigInteger)
    gpu_time: int = Field(sa_type=BigInteger)
    machine_time: int = Field(sa_type=BigInteger)
    cash: int = Field(sa_type=BigInteger)
    amortised: int = Field(sa_type=BigInteger)
    sandbox: int = Field(sa_type=BigInteger)


class MeteringRow(Row, table=True):
    """How far the machine time of an attempt is settled: a `broker.ledger.meter.Meter`. ``cost`` (micro-dollars) and
    ``cost_rest`` (the part of a micro-dollar, times an hour in microseconds) are one exact number."""

    __table_args__ = ({"sqlite_with_rowid": False},)

    job_id: str = Field(primary_key=True)
    attempt: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    settled: int = Field(sa_type=BigInteger)
    settled_to: int = Field(sa_type=BigInteger)
    since: int = Field(sa_type=BigInteger)
    rate: int = Field(sa_type=BigInteger)
    cost: int = Field(sa_type=BigInteger)
    cost_rest: int = Field(sa_type=BigInteger)
    moved: int = Field(sa_type=BigInteger)
    ended: bool


class BudgetMarkRow(Row, table=True):
    """When (``at``) a budget of that ``amount`` was first seen past a ``mark`` (``80%``) in a period."""

    budget: str = Field(primary_key=True)
    period_start: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    amount: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    mark: str = Field(primary_key=True)
    at: int = Field(sa_type=BigInteger)


class ChargeRow(Row, table=True):
    """A provider's charge for a time, by attempt's ``key`` (empty: for no known attempt). ``line`` distinguishes
    several for the same time. ``source``: ``api``, or the name of the imported file."""

    __table_args__ = (Index("charge_period", "provider", "ends"), Index("charge_ends", "ends"))

    provider: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    starts: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    ends: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    line: str = Field(primary_key=True)
    micros: int = Field(sa_type=BigInteger)
    estimated: bool
    source: str
    read_at: int = Field(sa_type=BigInteger)


class StatementRow(Row, table=True):
    """The charge of each team for a closed month (``2026-10``), as a `broker.finops.showback.Statement` in JSON.
    Append-only."""

    month: str = Field(primary_key=True)
    frozen_at: int = Field(sa_type=BigInteger)
    frozen_by: str
    body: str


class AnomalyAnswerRow(Row, table=True):
    """A person's answer to an incident of a team (empty: of jobs without one), which began on a ``day``
    (``2026-11-20``). The last word counts."""

    team: str = Field(primary_key=True)
    day: str = Field(primary_key=True)
    answer: str
    answered_at: int = Field(sa_type=BigInteger)
    answered_by: str
    reason: str
