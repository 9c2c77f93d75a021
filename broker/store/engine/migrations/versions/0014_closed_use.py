"""What closed jobs have spent under standing grants, kept as one sum for each grant."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns and indexes, and fill them from the balances of closed jobs."""
    op.add_column("standing_grant", sa.Column("closed_use", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("standing_use", sa.Column("closed", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.execute("UPDATE standing_use SET closed = true WHERE job_id IN (SELECT id FROM job WHERE closed)")
    op.execute(
        "UPDATE standing_grant SET closed_use = coalesce((SELECT sum(balance.held + balance.spent) FROM standing_use"
        " JOIN ledger_balance AS balance ON balance.job_id = standing_use.job_id WHERE standing_use.closed"
        " AND standing_use.number = standing_grant.number AND balance.money <> 'amortised'), 0)"
    )
    op.create_index("standing_use_job", "standing_use", ["job_id"])
    still_open = sa.text("NOT closed")
    op.create_index(
        "standing_use_open", "standing_use", ["number"], sqlite_where=still_open, postgresql_where=still_open
    )
