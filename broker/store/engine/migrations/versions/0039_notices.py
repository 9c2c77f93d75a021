"""Notices found by the beginning of their key, the newest ones, and those that are not delivered."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add indexes; what is stored stays as it is. SQLite finds beginnings by the primary key."""
    op.create_index(
        "notice_begins", "notice", ["key"], postgresql_ops={"key": "text_pattern_ops"}, sqlite_where=sa.text("0")
    )
    op.create_index("notice_newest", "notice", ["made_at", "key"])
    waiting = sa.text("delivered_at IS NULL")
    op.create_index("notice_undelivered", "notice", ["made_at", "key"], sqlite_where=waiting, postgresql_where=waiting)
