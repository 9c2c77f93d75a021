"""What each job's movements come to, kept as sums, and how far each attempt's machine time is settled."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add tables and fill the sums from the entries; what is stored stays as it is.

    `metering` stays empty: the next settlement of each running attempt finds out from its entries how far it is.
    """
    op.create_table(
        "movement_sum",
        sa.Column("job_id", sa.String(), primary_key=True),
        sa.Column("attempt", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("money", sa.String(), primary_key=True),
        sa.Column("movement", sa.String(), primary_key=True),
        sa.Column("micros", sa.BigInteger(), nullable=False),
        sa.Column("movements", sa.BigInteger(), nullable=False),
        sa.Column("covers_from", sa.BigInteger(), nullable=False),
        sa.Column("covers_to", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("user_name", sa.String(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "metering",
        sa.Column("job_id", sa.String(), primary_key=True),
        sa.Column("attempt", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("settled", sa.BigInteger(), nullable=False),
        sa.Column("settled_to", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("rate", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.Column("cost_rest", sa.BigInteger(), nullable=False),
        sa.Column("moved", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sqlite_with_rowid=False,
    )
    # Of the two entries of a movement, the one on the account that receives, as `broker.store.ledger.movement_sums`
    # counts.
    op.execute(
        "INSERT INTO movement_sum SELECT job_id, coalesce(attempt, 0), money, movement, sum(micros), count(*),"
        " min(covers_from), max(covers_to), max(at), max(user_name) FROM ledger_entry"
        " WHERE account = CASE WHEN movement IN ('hold', 'top_up', 'restore') THEN 'held'"
        " WHEN movement = 'release' THEN 'available' ELSE 'spent' END"
        " GROUP BY job_id, coalesce(attempt, 0), money, movement"
    )
