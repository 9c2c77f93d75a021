"""Passwords, and the invitations by which people choose them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add tables; what is stored stays as it is."""
    op.create_table(
        "password",
        sa.Column("person", sa.String(), primary_key=True),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("set_at", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("waits_until", sa.BigInteger(), nullable=True),
    )
    op.create_table(
        "invitation",
        sa.Column("digest", sa.String(), primary_key=True),
        sa.Column("person", sa.String(), nullable=False),
        sa.Column("made_by", sa.String(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("ends_at", sa.BigInteger(), nullable=False),
    )
