"""Statements of what each team is charged for a closed month, which nobody may change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_TABLE = "statement"


def upgrade() -> None:
    """Add a table; what is stored stays as it is."""
    op.create_table(
        _TABLE,
        sa.Column("month", sa.String(), primary_key=True),
        sa.Column("frozen_at", sa.BigInteger(), nullable=False),
        sa.Column("frozen_by", sa.String(), nullable=False),
        sa.Column("body", sa.String(), nullable=False),
    )
    if op.get_bind().dialect.name == "sqlite":
        refuse = f"BEGIN SELECT RAISE(ABORT, '{_TABLE} is append-only'); END"
        same = f"SELECT 1 FROM {_TABLE} WHERE month = NEW.month"  # noqa: S608 - a constant
        op.execute(f"CREATE TRIGGER {_TABLE}_no_update BEFORE UPDATE ON {_TABLE} {refuse}")
        op.execute(f"CREATE TRIGGER {_TABLE}_no_delete BEFORE DELETE ON {_TABLE} {refuse}")
        op.execute(f"CREATE TRIGGER {_TABLE}_no_replace BEFORE INSERT ON {_TABLE} WHEN EXISTS ({same}) {refuse}")
    else:
        op.execute(
            f"CREATE OR REPLACE FUNCTION {_TABLE}_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{_TABLE} is append-only'; END $$"
        )
        op.execute(
            f"CREATE TRIGGER {_TABLE}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {_TABLE} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {_TABLE}_append_only()"
        )
