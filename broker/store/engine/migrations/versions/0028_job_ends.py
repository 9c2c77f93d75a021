"""Jobs found by their end: the time of what is kept of them begins there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add an index; what is stored stays as it is."""
    ended = sa.text("kind = 'job_ended'")
    op.create_index("attempt_event_ended", "attempt_event", ["at"], sqlite_where=ended, postgresql_where=ended)
