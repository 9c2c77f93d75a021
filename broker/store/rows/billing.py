"""The rows of `broker.store.tables.billing`."""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from broker.store.rows.row import Row


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
    """The charge of each team for a closed month (``2026-10``), as a `broker.finops.statements.Statement` in JSON.
    Append-only."""

    __tablename__: ClassVar[str] = "statement"

    month: str = Field(primary_key=True)
    frozen_at: int = Field(sa_type=BigInteger)
    frozen_by: str
    body: str


class AnomalyAnswerRow(Row, table=True):
    """A person's answer to an incident of a team (empty: of jobs without one), which began on a ``day``
    (``2026-11-20``). The last word counts."""

    __tablename__: ClassVar[str] = "anomaly_answer"

    team: str = Field(primary_key=True)
    day: str = Field(primary_key=True)
    answer: str
    answered_at: int = Field(sa_type=BigInteger)
    answered_by: str
    reason: str
