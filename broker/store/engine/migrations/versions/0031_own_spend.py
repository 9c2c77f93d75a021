"""Spend on owned and reserved machines, and without an attempt, found without reading all that was spent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

_OWN = "account = 'spent' AND capacity_type IN ('owned', 'reserved')"
_WITHOUT_ATTEMPT = "account = 'spent' AND attempt IS NULL"


def upgrade() -> None:
    """Add indexes; what is stored stays as it is."""
    for name, column, where in (
        ("ledger_entry_own", "capacity_type", sa.text(_OWN)),
        ("ledger_entry_unattempted", "attempt", sa.text(_WITHOUT_ATTEMPT)),
    ):
        op.create_index(name, "ledger_entry", [column, "covers_to"], sqlite_where=where, postgresql_where=where)
