"""The newest poll of a provider, and the charges of a period, found by indexes."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add indexes; what is stored stays as it is."""
    op.create_index("poll_run_started", "poll_run", ["provider", "started"])
    op.create_index("poll_run_newest", "poll_run", ["provider", "id"])
    op.create_index("charge_ends", "charge", ["ends"])
