"""Tasks of arrays: found by their array, and left out of lists of jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column and two indexes; what is stored stays as it is, and is no task."""
    op.add_column("job", sa.Column("array_id", sa.String(), nullable=True))
    tasks, others = sa.text("array_id IS NOT NULL"), sa.text("array_id IS NULL")
    op.create_index("job_array", "job", ["array_id", "closed", "state"], sqlite_where=tasks, postgresql_where=tasks)
    op.create_index("job_top", "job", ["submitted_at"], sqlite_where=others, postgresql_where=others)
