"""What providers charged, beside what was metered."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table; what is stored stays as it is."""
    op.create_table(
        "charge",
        sa.Column("provider", sa.String(), primary_key=True),
        sa.Column("key", sa.String(), primary_key=True),
        sa.Column("starts", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("ends", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("line", sa.String(), primary_key=True),
        sa.Column("micros", sa.BigInteger(), nullable=False),
        sa.Column("estimated", sa.Boolean(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("read_at", sa.BigInteger(), nullable=False),
    )
    op.create_index("charge_period", "charge", ["provider", "ends"])
