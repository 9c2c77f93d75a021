"""The tables of policies: versions, decisions, and standing approvals with their use."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, String, Table, false, text

from broker.store.tables.rows import ID, METADATA

# One judgement at the gate; ``body`` has verdicts and inputs. Append-only.
DECISION = Table(
    "decision",
    METADATA,
    Column("id", ID, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("action", String, nullable=False),
    Column("user_name", String, nullable=False),
    Column("job_name", String, nullable=False),
    Column("job_id", String),
    Column("attempt", Integer),
    Column("pool", String),
    Column("answer", String, nullable=False),
    Column("policy_version", String, nullable=False),
    Column("facts_hash", String, nullable=False),
    Column("body", String, nullable=False),
    Index("decision_job", "job_id"),
    Index("decision_at", "at"),
)


# One activation of a policy set; the highest number is active. Append-only.
POLICY = Table(
    "policy_set",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("activated_at", BigInteger, nullable=False),
    Column("activated_by", String, nullable=False),
    Column("sha256", String, nullable=False),
    Column("files", String, nullable=False),
    Column("note", String, nullable=False),
)


# One standing grant. ``whom``: its rules, users, teams and projects as JSON; ``total``: micro-dollars; ``closed_use``:
# the spend of closed jobs under it, in micro-dollars.
STANDING_GRANT = Table(
    "standing_grant",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("granted_by", String, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("whom", String, nullable=False),
    Column("note", String, nullable=False),
    Column("revoked_at", BigInteger),
    Column("revoked_by", String, nullable=False),
    Column("closed_use", BigInteger, nullable=False, default=0, server_default="0"),
)


# One job approved by a standing grant, which counts its money. ``closed``: it is included in the grant's
# ``closed_use``.
STANDING_USE = Table(
    "standing_use",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("job_id", String, primary_key=True),
    Column("closed", Boolean, nullable=False, default=False, server_default=false()),
    Index("standing_use_job", "job_id"),
    Index("standing_use_open", "number", sqlite_where=text("NOT closed")),
)
