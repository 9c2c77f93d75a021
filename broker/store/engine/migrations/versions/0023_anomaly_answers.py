"""What people said of anomalies in spending."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table; what is stored stays as it is."""
    op.create_table(
        "anomaly_answer",
        sa.Column("team", sa.String(), primary_key=True),
        sa.Column("day", sa.String(), primary_key=True),
        sa.Column("answer", sa.String(), nullable=False),
        sa.Column("answered_at", sa.BigInteger(), nullable=False),
        sa.Column("answered_by", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
    )
