"""The tables beside the ledger: sums of spend, meters, marks of budgets, and charges of providers."""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import BigInteger, Column, Index, Integer, UniqueConstraint
from sqlmodel import Field

from broker.store.tables import Row, table_of

_ID = BigInteger().with_variant(Integer, "sqlite")


class SpendGroupRow(Row, table=True):
    """One set of tags by which budgets count. ``key``: the tags as JSON."""

    __tablename__: ClassVar[str] = "spend_group"
    __table_args__ = (UniqueConstraint("key", name="spend_group_key"),)

    id: int = Field(sa_column=Column(_ID, primary_key=True, autoincrement=True))
    key: str
    money: str
    user_name: str
    team: str | None
    project: str | None
    workload: str | None
    environment: str | None


class SpendSumRow(Row, table=True):
    """The spend of a group in one slot of time: ``size`` microseconds, the ``slot``-th since 1970."""

    __tablename__: ClassVar[str] = "spend_sum"
    __table_args__ = ({"sqlite_with_rowid": False},)

    size: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    group_id: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    slot: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    micros: int = Field(sa_type=BigInteger)


class MovementSumRow(Row, table=True):
    """The sum of a job's movements with the same attempt (0: none), kind of money and kind of movement: ``micros`` went
    from the movement's first account to the second, in ``movements`` movements. ``covers_from`` and ``covers_to``
    enclose the times they cover; ``at``: the latest posting."""

    __tablename__: ClassVar[str] = "movement_sum"
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


class MeteringRow(Row, table=True):
    """How far the machine time of an attempt is settled: a `broker.ledger.meter.Meter`. ``cost`` (micro-dollars) and
    ``cost_rest`` (the part of a micro-dollar, times an hour in microseconds) are one exact number."""

    __tablename__: ClassVar[str] = "metering"
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

    __tablename__: ClassVar[str] = "budget_mark"

    budget: str = Field(primary_key=True)
    period_start: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    amount: int = Field(sa_type=BigInteger, primary_key=True, sa_column_kwargs={"autoincrement": False})
    mark: str = Field(primary_key=True)
    at: int = Field(sa_type=BigInteger)


class ChargeRow(Row, table=True):
    """A provider's charge for a time, by attempt's ``key`` (empty: for no known attempt). ``line`` distinguishes
    several for the same time. ``source``: ``api``, or the name of the imported file."""

    __tablename__: ClassVar[str] = "charge"
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
    """What each team is charged for a closed month (``2026-10``), as a `broker.finops.statements.Statement` in JSON.
    Append-only."""

    __tablename__: ClassVar[str] = "statement"

    month: str = Field(primary_key=True)
    frozen_at: int = Field(sa_type=BigInteger)
    frozen_by: str
    body: str


class AnomalyAnswerRow(Row, table=True):
    """What somebody said of an incident of a team (empty: of jobs without one), which began on a ``day``
    (``2026-11-20``). The last word counts."""

    __tablename__: ClassVar[str] = "anomaly_answer"

    team: str = Field(primary_key=True)
    day: str = Field(primary_key=True)
    answer: str
    answered_at: int = Field(sa_type=BigInteger)
    answered_by: str
    reason: str


GROUP = table_of(SpendGroupRow)
SUM = table_of(SpendSumRow)
MOVED = table_of(MovementSumRow)
METERING = table_of(MeteringRow)
MARK = table_of(BudgetMarkRow)
CHARGE = table_of(ChargeRow)
STATEMENT = table_of(StatementRow)
ANSWER = table_of(AnomalyAnswerRow)
