"""Old events and prices may move to files; an event may be deleted only once its job is on record as archived."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add two empty tables, and let the trigger against deletions look at one of them."""
    op.create_table(
        "archive_file",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("kind", "path", "digest")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("rows", "size", "since", "until")),
        *(sa.Column(name, sa.BigInteger(), nullable=True) for name in ("first_series", "last_series")),
        sa.Column("at", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "archived_job",
        sa.Column("job_id", sa.String(), primary_key=True),
        sa.Column("file", sa.BigInteger(), sa.ForeignKey("archive_file.number"), nullable=False),
    )
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TRIGGER attempt_event_no_delete")
        op.execute(
            "CREATE TRIGGER attempt_event_no_delete BEFORE DELETE ON attempt_event "
            "WHEN NOT EXISTS (SELECT 1 FROM archived_job WHERE job_id = OLD.job_id) "
            "BEGIN SELECT RAISE(ABORT, 'attempt_event is append-only'); END"
        )
        return
    op.execute("DROP TRIGGER attempt_event_append_only ON attempt_event")
    op.execute(
        "CREATE TRIGGER attempt_event_append_only BEFORE UPDATE OR TRUNCATE ON attempt_event "
        "FOR EACH STATEMENT EXECUTE FUNCTION attempt_event_append_only()"
    )
    op.execute(
        "CREATE OR REPLACE FUNCTION attempt_event_archived_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN "
        "IF EXISTS (SELECT 1 FROM archived_job WHERE job_id = OLD.job_id) THEN RETURN OLD; END IF; "
        "RAISE EXCEPTION 'attempt_event is append-only'; END $$"
    )
    op.execute(
        "CREATE TRIGGER attempt_event_archived_only BEFORE DELETE ON attempt_event "
        "FOR EACH ROW EXECUTE FUNCTION attempt_event_archived_only()"
    )
