"""For which time, and at which hourly rate, the money that a job holds was judged."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_HOUR = 3_600_000_000


def upgrade() -> None:
    """Add columns, and fill them for what is held now; entries stay as they are."""
    op.add_column("ledger_entry", sa.Column("rate", sa.BigInteger(), nullable=True))
    for name in ("holds_from", "burns"):
        op.add_column("ledger_balance", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    _fill()


def _fill() -> None:
    """As `broker.ledger.entries.dates_after` reads entries of before: each amount spread evenly over its own time."""
    connection = op.get_bind()
    held = sa.text("SELECT job_id, money FROM ledger_balance WHERE held <> 0")
    entries = sa.text(
        "SELECT movement, micros, covers_from, covers_to FROM ledger_entry"
        " WHERE job_id = :job AND money = :money AND account = 'held' ORDER BY id"
    )
    keep = sa.text(
        "UPDATE ledger_balance SET holds_from = :start, holds_to = :end, burns = :rate"
        " WHERE job_id = :job AND money = :money"
    )
    for job, money in connection.execute(held).all():
        key = {"job": job, "money": money}
        connection.execute(keep, {**key, **_dates(connection.execute(entries, key).all())})


def _dates(entries: Any) -> dict[str, int]:
    nothing = {"start": 0, "end": 0, "rate": 0}
    dates, held = nothing, 0
    for movement, micros, start, end in entries:
        held += micros
        if not held:
            dates = nothing
        elif movement in ("hold", "top_up"):
            rate = -(-micros * _HOUR // (end - start)) if end > start else 0
            first = {"start": start, "end": max(start, end), "rate": rate}
            later = {**dates, "end": max(dates["end"], first["end"]), "rate": max(dates["rate"], rate)}
            dates = first if dates is nothing else later
    return dates
