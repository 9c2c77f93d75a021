"""Documents that prove recorded capacity, such as invoices."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table and an empty column; what is stored stays as it is."""
    op.create_table(
        "holding_proof",
        sa.Column("sha256", sa.String(), primary_key=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
    )
    op.add_column("holding", sa.Column("proof", sa.String(), nullable=False, server_default=""))
