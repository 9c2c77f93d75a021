"""Changes that were asked over the network, so that asking twice changes once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table; what is stored stays as it is."""
    op.create_table(
        "api_request",
        sa.Column("person", sa.String(), primary_key=True),
        sa.Column("key", sa.String(), primary_key=True),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("body", sa.String(), nullable=False),
    )
    op.create_index("api_request_at", "api_request", ["at"])
