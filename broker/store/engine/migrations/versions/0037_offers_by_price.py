"""Current offers found by accelerator and price: the cheapest one without a look at all others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two columns, filled from the pools, and an index."""
    op.add_column("offer", sa.Column("accelerator", sa.String(), nullable=False, server_default=""))
    op.add_column("offer", sa.Column("count", sa.Integer(), nullable=False, server_default="0"))
    for name in ("accelerator", "count"):  # S608: these names stand here, nobody's input does
        op.execute(f"UPDATE offer SET {name} = (SELECT pool.{name} FROM pool WHERE pool.id = offer.pool_id)")  # noqa: S608
    current = sa.text("ended_at IS NULL")
    op.create_index(
        "offer_by_price",
        "offer",
        ["accelerator", "count", "micros", "id"],
        sqlite_where=current,
        postgresql_where=current,
    )
