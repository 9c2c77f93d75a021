"""Where people have signed in with their passwords."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add an empty table."""
    op.create_table(
        "password_origin",
        sa.Column("person", sa.String(), primary_key=True),
        sa.Column("origin", sa.String(), primary_key=True),
        sa.Column("right_at", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("waits_until", sa.BigInteger(), nullable=True),
    )
