"""Sums of what closed jobs used and spent, so that reports of all time do not read every job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

_WORDS = (
    "money", "user_name", "team", "project", "workload", "environment", "provider", "region", "capacity_type",
    "instance_type", "accelerator",
)  # fmt: skip
_MISSING = {"team", "project", "environment", "accelerator"}
_NUMBERS = ("jobs", "attempts", "gpu_time", "machine_time", "cash", "amortised", "sandbox")


def upgrade() -> None:
    """Add an empty table and a mark: until jobs are folded, they are counted one by one as before."""
    op.create_table(
        "use_sum",
        sa.Column("slot", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("part", sa.String(), primary_key=True),
        sa.Column("signature", sa.String(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=name in _MISSING) for name in _WORDS),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _NUMBERS),
        sqlite_with_rowid=False,
    )
    op.add_column("machine_time", sa.Column("folded", sa.BigInteger(), nullable=True))
    op.create_index("machine_time_folded", "machine_time", ["folded", "until"])
