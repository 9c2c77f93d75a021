"""People of a team server, their API tokens, and the audit log, which nobody may change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_LOG = "audit_log"


def upgrade() -> None:
    """Add tables; what is stored stays as it is."""
    op.create_table(
        "person",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("service", sa.Boolean(), nullable=False),
        sa.Column("roles", sa.String(), nullable=False),
        sa.Column("teams", sa.String(), nullable=False),
        sa.Column("added_at", sa.BigInteger(), nullable=False),
        sa.Column("disabled_at", sa.BigInteger(), nullable=True),
    )
    op.create_table(
        "api_token",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("person", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("scopes", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("made_by", sa.String(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_by", sa.String(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
    )
    op.create_index("api_token_person", "api_token", ["person", "made_at"])
    op.create_table(
        _LOG,
        sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("person", "origin", "token", "action", "subject")),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("outcome", "before", "after", "reason")),
    )
    op.create_index("audit_log_person", _LOG, ["person", "number"])
    op.create_index("audit_log_subject", _LOG, ["subject", "number"])
    if op.get_bind().dialect.name == "sqlite":
        refuse = f"BEGIN SELECT RAISE(ABORT, '{_LOG} is append-only'); END"
        same = f"SELECT 1 FROM {_LOG} WHERE number = NEW.number"  # noqa: S608 - a constant
        op.execute(f"CREATE TRIGGER {_LOG}_no_update BEFORE UPDATE ON {_LOG} {refuse}")
        op.execute(f"CREATE TRIGGER {_LOG}_no_delete BEFORE DELETE ON {_LOG} {refuse}")
        op.execute(f"CREATE TRIGGER {_LOG}_no_replace BEFORE INSERT ON {_LOG} WHEN EXISTS ({same}) {refuse}")
    else:
        op.execute(
            f"CREATE OR REPLACE FUNCTION {_LOG}_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{_LOG} is append-only'; END $$"
        )
        op.execute(
            f"CREATE TRIGGER {_LOG}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {_LOG} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {_LOG}_append_only()"
        )
