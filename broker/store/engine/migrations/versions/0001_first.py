"""The first migration: a new store has what the classes of `broker.store.schema` say."""

from alembic import op
from sqlmodel import SQLModel

from broker.store.schema import access, jobs, ledger, market, policy

revision = "v1"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (access, jobs, ledger, market, policy)


def upgrade() -> None:
    """Create all tables, with their indexes and triggers."""
    SQLModel.metadata.create_all(op.get_bind())
