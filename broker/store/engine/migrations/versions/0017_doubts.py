"""Doubts about offers: polls that are suspect, prices out of line, and what people accepted of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns and a table; what is stored stays as it is, and is believed."""
    op.add_column("offer", sa.Column("doubt", sa.String(), nullable=True))
    op.add_column("offer", sa.Column("doubt_detail", sa.String(), nullable=False, server_default=""))
    op.add_column("offer", sa.Column("trusted", sa.BigInteger(), nullable=True))
    op.add_column("poll_run", sa.Column("gone", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("poll_run", sa.Column("samples", sa.String(), nullable=False, server_default="{}"))
    op.create_table(
        "price_acceptance",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("accepted_by", sa.String(), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("ended", sa.Integer(), nullable=False),
        sa.Column("what", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=False),
    )
