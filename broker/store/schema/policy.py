"""Policies: versions, decisions, and standing approvals with their use."""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from broker.store.schema.row import ID, STORE_NUMBERED, BigInt, Column, OptionalBigInt, Row, append_only, partial_index


class DecisionRow(Row, table=True):
    """One judgment at the gate; ``body`` has verdicts and inputs. Append-only."""

    __table_args__ = (Index("decision_job", "job_id"), Index("decision_at", "at"))

    id: Column[int] = Field(primary_key=True, sa_type=ID)
    at: BigInt
    action: Column[str]
    user_name: Column[str]
    job_name: Column[str]
    job_id: Column[str | None]
    attempt: Column[int | None]
    pool: Column[str | None]
    answer: Column[str]
    policy_version: Column[str]
    facts_hash: Column[str]
    body: Column[str]


append_only(DecisionRow)


class PolicySetRow(Row, table=True):
    """One activation of a policy set; the highest number is active. Append-only."""

    number: Column[int] = Field(primary_key=True, sa_column_kwargs=STORE_NUMBERED)
    activated_at: BigInt
    activated_by: Column[str]
    sha256: Column[str]
    files: Column[str]
    note: Column[str]


append_only(PolicySetRow)


class StandingGrantRow(Row, table=True):
    """One standing grant. ``whom``: its rules, users, teams and projects as JSON; ``total``: micro-dollars;
    ``closed_use``: the spend of closed jobs under it, in micro-dollars."""

    number: Column[int] = Field(primary_key=True, sa_column_kwargs=STORE_NUMBERED)
    granted_by: Column[str]
    at: BigInt
    until: BigInt
    total: BigInt
    whom: Column[str]
    note: Column[str]
    revoked_at: OptionalBigInt
    revoked_by: Column[str]
    closed_use: Column[int] = Field(default=0, sa_type=BigInteger)


class StandingUseRow(Row, table=True):
    """One job approved by a standing grant, which counts its money. ``closed``: it is included in the grant's
    ``closed_use``. ``total``: of an array, the most that all its tasks may cost, in micro-dollars; it counts until the
    array is closed."""

    __table_args__ = (Index("standing_use_job", "job_id"),)

    number: Column[int] = Field(primary_key=True)
    job_id: Column[str] = Field(primary_key=True)
    closed: Column[bool] = Field(default=False)
    total: Column[int] = Field(default=0, sa_type=BigInteger)


OPEN_USE = ~StandingUseRow.closed
partial_index("standing_use_open", StandingUseRow.number, where=OPEN_USE)
