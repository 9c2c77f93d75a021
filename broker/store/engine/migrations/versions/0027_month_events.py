"""Attempts that ended badly, and reports of programs, found without reading what else happened to their jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add indexes; what is stored stays as it is."""
    lost = sa.text("""kind = 'attempt_ended' AND body NOT LIKE '%"cause":"completed"%'""")
    op.create_index(
        "attempt_event_lost", "attempt_event", ["job_id", "attempt"], sqlite_where=lost, postgresql_where=lost
    )
    told = sa.text("kind = 'metrics_reported'")
    op.create_index(
        "attempt_event_metrics", "attempt_event", ["job_id", "seq"], sqlite_where=told, postgresql_where=told
    )
