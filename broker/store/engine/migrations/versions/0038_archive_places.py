"""A file of the archive is announced before it is written, and its record says in which run store it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

_LEAST_HISTORY = timedelta(days=30)  # no cut-off was ever later than this before its archiving


def upgrade() -> None:
    """Add two columns and a table. Where the files are that there are: unknown; up to when the store needs them: the
    latest cut-off that was possible."""
    op.add_column("archive_file", sa.Column("runs", sa.String(), nullable=False, server_default=""))
    op.add_column("archive_file", sa.Column("before", sa.BigInteger(), nullable=True))
    op.create_table(
        "archive_intent",
        sa.Column("path", sa.String(), primary_key=True),
        sa.Column("runs", sa.String(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("abandoned", sa.Boolean(), nullable=False),
    )
    bind = op.get_bind()
    files = sa.table("archive_file", *(sa.column(name) for name in ("number", "kind", "at", "before")))
    for number, at in bind.execute(sa.select(files.c.number, files.c.at).where(files.c.kind != "events")).all():
        latest = datetime.fromtimestamp(at / 1e6, UTC) - _LEAST_HISTORY
        month = latest.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        before = int(month.timestamp()) * 1_000_000
        bind.execute(sa.update(files).where(files.c.number == number).values(before=before))
