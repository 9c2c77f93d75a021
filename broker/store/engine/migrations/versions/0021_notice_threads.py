"""The incident that a notice belongs to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column; earlier notices belong to no incident."""
    op.add_column("notice", sa.Column("thread", sa.String(), nullable=False, server_default=""))
