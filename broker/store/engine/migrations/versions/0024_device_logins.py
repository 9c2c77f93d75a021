"""Logins of programs with a code that a person enters at the page."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a table; what is stored stays as it is."""
    op.create_table(
        "device_login",
        sa.Column("digest", sa.String(), primary_key=True),
        sa.Column("user_code", sa.String(), nullable=False),
        sa.Column("client", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("scopes", sa.String(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("ends_at", sa.BigInteger(), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=True),
        sa.Column("person", sa.String(), nullable=False),
        sa.Column("granted", sa.Boolean(), nullable=True),
    )
    op.create_index("device_login_user_code", "device_login", ["user_code"], unique=True)
