"""Watches on prices, and notices on their way to people."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two tables; what is stored stays as it is."""
    op.create_table(
        "price_watch",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("body", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
    )
    op.create_table(
        "notice",
        sa.Column("key", sa.String(), primary_key=True),
        sa.Column("target", sa.String(), primary_key=True),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("body", sa.String(), nullable=False),
        sa.Column("severity", sa.String(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("next_try", sa.BigInteger(), nullable=True),
        sa.Column("delivered_at", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.String(), nullable=False),
    )
    waiting = sa.text("next_try IS NOT NULL")
    op.create_index("notice_waiting", "notice", ["next_try"], sqlite_where=waiting, postgresql_where=waiting)
