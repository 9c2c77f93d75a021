"""Market history: how polls ended and what to do about it, and scores and interruption rates over time."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add to the tables of 0001; what is stored stays as it is."""
    op.add_column("poll_run", sa.Column("status", sa.String(), nullable=False, server_default="ok"))
    op.add_column("poll_run", sa.Column("hint", sa.String(), nullable=False, server_default=""))
    op.execute("UPDATE poll_run SET status = 'failed' WHERE error <> ''")
    op.add_column("offer", sa.Column("signalled_at", sa.BigInteger(), nullable=True))
    op.create_table(
        "signal_change",
        sa.Column("series", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("score", sa.Float(), nullable=True),
        sa.Column("interruption_rate", sa.Float(), nullable=True),
        sqlite_with_rowid=False,
    )
