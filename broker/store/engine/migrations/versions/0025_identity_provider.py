"""Sign-ins at an identity provider, and the people behind its identities."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add tables; what is stored stays as it is."""
    op.create_table(
        "provider_sign_in",
        sa.Column("state", sa.String(), primary_key=True),
        sa.Column("browser", sa.String(), nullable=False),
        sa.Column("nonce", sa.String(), nullable=False),
        sa.Column("verifier", sa.String(), nullable=False),
        sa.Column("after", sa.String(), nullable=False),
        sa.Column("ends_at", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "identity",
        sa.Column("issuer", sa.String(), primary_key=True),
        sa.Column("subject", sa.String(), primary_key=True),
        sa.Column("person", sa.String(), nullable=False),
        sa.Column("linked_at", sa.BigInteger(), nullable=False),
    )
