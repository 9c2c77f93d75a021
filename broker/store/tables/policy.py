"""The tables of policies: versions, decisions, and standing approvals with their use."""

from __future__ import annotations

from sqlmodel import SQLModel

import broker.store.schema.policy  # noqa: F401

DECISION = SQLModel.metadata.tables["decision"]
POLICY = SQLModel.metadata.tables["policy_set"]
STANDING_GRANT = SQLModel.metadata.tables["standing_grant"]
STANDING_USE = SQLModel.metadata.tables["standing_use"]
