"""Documents of providers that polls need not read again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add an empty table."""
    op.create_table(
        "kept_answer",
        sa.Column("provider", sa.String(), primary_key=True),
        sa.Column("address", sa.String(), primary_key=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("version", "etag", "last_modified", "digest")),
        sa.Column("content", sa.LargeBinary(), nullable=False),
    )
