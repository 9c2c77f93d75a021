"""The tables of policies: versions, decisions, and standing approvals with their use."""

from __future__ import annotations

from broker.store.tables.plain import plain

DECISION = plain("decision")
POLICY = plain("policy_set")
STANDING_GRANT = plain("standing_grant")
STANDING_USE = plain("standing_use")
