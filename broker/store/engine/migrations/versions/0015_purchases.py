"""Purchases of capacity: their events, which nobody may change, and the quotes that people were shown."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_TABLE = "purchase_event"


def upgrade() -> None:
    """Add tables; what is stored stays as it is."""
    op.create_table(
        _TABLE,
        sa.Column("purchase_id", sa.String(), primary_key=True),
        sa.Column("seq", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("body", sa.String(), nullable=False),
    )
    op.create_table(
        "purchase",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("intended_at", sa.BigInteger(), nullable=False),
        sa.Column("closed", sa.Boolean(), nullable=False),
        sa.Column("view", sa.String(), nullable=False),
    )
    still_open = sa.text("NOT closed")
    op.create_index("purchase_open", "purchase", ["intended_at"], sqlite_where=still_open, postgresql_where=still_open)
    op.create_table(
        "purchase_quote",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.String(), nullable=False),
    )
    if op.get_bind().dialect.name == "sqlite":
        refuse = f"BEGIN SELECT RAISE(ABORT, '{_TABLE} is append-only'); END"
        same = f"SELECT 1 FROM {_TABLE} WHERE purchase_id = NEW.purchase_id AND seq = NEW.seq"  # noqa: S608 - a constant
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
