"""What the provider calls a recorded holding, in a column of its own."""

from __future__ import annotations

import re

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

# AWS's ids: of capacity reservations and blocks, and of reserved instances and savings plans.
_ID = re.compile(r"\bcr-[0-9a-z-]+|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


def upgrade() -> None:
    """Earlier versions took the id from the note: the first one that is there."""
    op.add_column("holding", sa.Column("order_id", sa.String(), nullable=False, server_default=""))
    holding = sa.table("holding", sa.column("number"), sa.column("note"), sa.column("order_id"))
    connection = op.get_bind()
    for number, note in connection.execute(sa.select(holding.c.number, holding.c.note)).all():
        if found := _ID.search(note):
            change = holding.update().where(holding.c.number == number)
            connection.execute(change.values(order_id=found[0]))
