"""Standing grants, which jobs use them, and finding what was asked and answered."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two tables and an index; what is stored stays as it is."""
    op.create_table(
        "standing_grant",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("granted_by", sa.String(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("whom", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_by", sa.String(), nullable=False),
    )
    op.create_table(
        "standing_use",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("job_id", sa.String(), primary_key=True),
    )
    kinds = sa.text("kind IN ('approval_asked', 'approval_given', 'approval_refused')")
    op.create_index("attempt_event_approval", "attempt_event", ["at"], sqlite_where=kinds, postgresql_where=kinds)
