"""The first schema: jobs, money, decisions, policies, and the market."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
APPEND_ONLY = ("attempt_event", "ledger_entry", "decision", "policy_set")


def upgrade() -> None:
    """Make every table, then forbid changing the append-only ones."""
    _jobs()
    _ledger()
    _governance()
    _market()
    for table in APPEND_ONLY:
        if op.get_bind().dialect.name == "sqlite":
            _append_only_sqlite(table)
        else:
            _append_only_postgres(table)


def _text(name: str, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(), nullable=nullable)


def _big(name: str, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=nullable)


def _int(name: str, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), nullable=nullable)


def _flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean(), nullable=False)


def _real(name: str) -> sa.Column[float]:
    return sa.Column(name, sa.Float(), nullable=True)


def _counted_id() -> sa.Column[int]:
    return sa.Column("id", ROW_ID, primary_key=True, autoincrement=True)


def _partial_index(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def _jobs() -> None:
    op.create_table(
        "job",
        sa.Column("id", sa.String(), primary_key=True),
        _text("name"),
        _text("user_name"),
        _text("team", True),
        _text("project", True),
        _text("state"),
        _flag("closed"),
        _big("submitted_at"),
        _text("view"),
    )
    _partial_index("job_unclosed", "job", ["submitted_at"], "NOT closed")
    op.create_index("job_submitted", "job", ["submitted_at"])
    op.create_table(
        "attempt_event",
        sa.Column("job_id", sa.String(), primary_key=True),
        sa.Column("seq", sa.Integer(), primary_key=True, autoincrement=False),
        _int("attempt", True),
        _big("at"),
        _text("kind"),
        _text("body"),
    )


def _ledger() -> None:
    op.create_table(
        "ledger_entry",
        _counted_id(),
        _text("movement_id"),
        _text("movement"),
        _text("account"),
        _big("micros"),
        _text("money"),
        _big("at"),
        _big("covers_from"),
        _big("covers_to"),
        _text("job_id"),
        _text("user_name"),
        _text("team", True),
        _text("project", True),
        _text("workload", True),
        _text("environment", True),
        _int("attempt", True),
        _text("provider", True),
        _text("region", True),
        _text("capacity_type", True),
        _text("accelerator", True),
        _int("gpus"),
        _text("note"),
        sa.UniqueConstraint("movement_id", "account", name="ledger_entry_movement"),
    )
    op.create_index("ledger_entry_job", "ledger_entry", ["job_id"])
    _partial_index("ledger_entry_spent", "ledger_entry", ["covers_to"], "account = 'spent'")
    op.create_table(
        "ledger_balance",
        sa.Column("job_id", sa.String(), primary_key=True),
        sa.Column("money", sa.String(), primary_key=True),
        _big("available"),
        _big("held"),
        _big("spent"),
        _big("holds_to"),
        _text("user_name"),
        _text("team", True),
        _text("project", True),
        _text("workload", True),
        _text("environment", True),
    )
    _partial_index("ledger_balance_open", "ledger_balance", ["held"], "held <> 0")


def _governance() -> None:
    op.create_table(
        "decision",
        _counted_id(),
        _big("at"),
        _text("action"),
        _text("user_name"),
        _text("job_name"),
        _text("job_id", True),
        _int("attempt", True),
        _text("pool", True),
        _text("answer"),
        _text("policy_version"),
        _text("facts_hash"),
        _text("body"),
    )
    op.create_index("decision_job", "decision", ["job_id"])
    op.create_index("decision_at", "decision", ["at"])
    op.create_table(
        "policy_set",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        _big("activated_at"),
        _text("activated_by"),
        _text("sha256"),
        _text("files"),
        _text("note"),
    )
    op.create_table("setting", sa.Column("key", sa.String(), primary_key=True), _text("value"))


def _market() -> None:
    op.create_table(
        "poll_run",
        _counted_id(),
        _text("provider"),
        _big("started"),
        _big("finished"),
        _int("seen"),
        _int("changed"),
        _flag("complete"),
        _text("skipped"),
        _text("error"),
    )
    op.create_index("poll_run_provider", "poll_run", ["provider", "finished"])
    op.create_table(
        "pool",
        sa.Column("id", ROW_ID, primary_key=True, autoincrement=False),
        _text("key"),
        _text("provider"),
        _text("region"),
        _text("zone", True),
        _text("instance_type"),
        _text("accelerator"),
        _int("count"),
        _text("capacity_type"),
        _int("term_months", True),
        sa.UniqueConstraint("key", name="pool_key"),
    )
    op.create_index("pool_machine", "pool", ["accelerator", "count"])
    op.create_index("pool_place", "pool", ["provider", "region", "instance_type"])
    op.create_table(
        "offer",
        sa.Column("id", ROW_ID, primary_key=True, autoincrement=False),
        sa.Column("pool_id", sa.BigInteger(), sa.ForeignKey("pool.id"), nullable=False),
        _text("source"),
        _text("polled_by"),
        _big("run"),
        _big("as_of"),
        _big("changed_at"),
        _big("ended_at", True),
        _flag("superseded"),
        _big("micros", True),
        _text("availability"),
        _text("unavailable_because"),
        _real("score"),
        _real("interruption_rate"),
        _int("slots", True),
        _big("amortised", True),
        _real("cpus"),
        _real("memory_gib"),
        _text("interconnect", True),
        _text("engine", True),
        _text("money"),
        _flag("reference"),
        _big("bill_minimum"),
        _big("bill_granularity"),
        _big("bill_free_within"),
        _big("max_age", True),
        sa.UniqueConstraint("pool_id", "source", name="offer_source"),
    )
    op.create_index("offer_polled_by", "offer", ["polled_by"])
    op.create_table(
        "price_change",
        sa.Column("series", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger(), primary_key=True, autoincrement=False),
        _big("micros", True),
        sa.Column("availability", sa.SmallInteger(), nullable=False),
        _big("learned", True),
        sqlite_with_rowid=False,
    )


# What makes two rows of a table the same row, for the trigger against INSERT OR REPLACE.
_SAME = {
    "attempt_event": "job_id = NEW.job_id AND seq = NEW.seq",
    "ledger_entry": "id = NEW.id OR (movement_id = NEW.movement_id AND account = NEW.account)",
    "decision": "id = NEW.id",
    "policy_set": "number = NEW.number",
}


def _append_only_sqlite(table: str) -> None:
    refuse = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
    op.execute(f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} {refuse}")
    op.execute(f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} {refuse}")
    # INSERT OR REPLACE deletes without firing delete triggers, unless the connection asked for recursive ones.
    same = f"SELECT 1 FROM {table} WHERE {_SAME[table]}"  # noqa: S608 - both are constants of this file
    op.execute(f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} WHEN EXISTS ({same}) {refuse}")


def _append_only_postgres(table: str) -> None:
    op.execute(
        f"CREATE FUNCTION {table}_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{table} is append-only'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_append_only()"
    )
