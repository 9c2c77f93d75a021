"""The rows of `broker.store.tables.policy`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, false, text
from sqlmodel import Field

from broker.store.rows.row import ID, Row


class DecisionRow(Row, table=True):
    """One judgement at the gate; ``body`` has verdicts and inputs. Append-only."""

    __table_args__ = (Index("decision_job", "job_id"), Index("decision_at", "at"))

    id: int = Field(sa_column=Column(ID, primary_key=True, autoincrement=True))
    at: int = Field(sa_type=BigInteger)
    action: str
    user_name: str
    job_name: str
    job_id: str | None
    attempt: int | None
    pool: str | None
    answer: str
    policy_version: str
    facts_hash: str
    body: str


class PolicySetRow(Row, table=True):
    """One activation of a policy set; the highest number is active. Append-only."""

    number: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    activated_at: int = Field(sa_type=BigInteger)
    activated_by: str
    sha256: str
    files: str
    note: str


class StandingGrantRow(Row, table=True):
    """One standing grant. ``whom``: its rules, users, teams and projects as JSON; ``total``: micro-dollars;
    ``closed_use``: the spend of closed jobs under it, in micro-dollars."""

    number: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    granted_by: str
    at: int = Field(sa_type=BigInteger)
    until: int = Field(sa_type=BigInteger)
    total: int = Field(sa_type=BigInteger)
    whom: str
    note: str
    revoked_at: int | None = Field(sa_type=BigInteger)
    revoked_by: str
    closed_use: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": "0"})


class StandingUseRow(Row, table=True):
    """One job approved by a standing grant, which counts its money. ``closed``: it is included in the grant's
    ``closed_use``."""

    __table_args__ = (
        Index("standing_use_job", "job_id"),
        Index("standing_use_open", "number", sqlite_where=text("NOT closed")),
    )

    number: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    job_id: str = Field(primary_key=True)
    closed: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
