"""The routes that change policies, and the one that shows what a change would do."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from broker.app.policy import policies
from broker.core.documents import MAX_BYTES
from broker.server import policy_changes
from broker.server.changing import Key, told
from broker.server.looking import By, answer


class PolicyBody(BaseModel):
    """``files``: the texts of all policy files by name; those that are not among them no longer apply."""

    model_config = ConfigDict(extra="forbid")

    files: dict[str, Annotated[str, Field(max_length=MAX_BYTES)]]


class ApplyBody(PolicyBody):
    """``reason``: for the record; ``base``: the version whose change was looked at; null: whatever is active."""

    reason: str = Field(default="", max_length=500)
    base: int | None = Field(default=None, ge=0)


class RollbackBody(BaseModel):
    """``version``: to go back to; null: the last one that differs from the active one."""

    model_config = ConfigDict(extra="forbid")

    version: int | None = Field(default=None, ge=1)
    reason: str = Field(default="", max_length=400)
    base: int | None = Field(default=None, ge=0)


def preview_policy(
    by: By, body: PolicyBody, past: Annotated[bool, Query(description="Also judge the last 30 days.")] = True
) -> Response:
    """The effect of applying these files on jobs, budgets, and decisions of the last 30 days. Changes nothing."""
    return answer(policy_changes.seen_before(by, body.files, past=past))


def preview_rollback(
    by: By, body: RollbackBody, past: Annotated[bool, Query(description="Also judge the last 30 days.")] = True
) -> Response:
    """The effect of returning to an earlier version. Changes nothing."""
    return answer(policy_changes.seen_before(by, policy_changes.earlier(by, body.version).files, past=past))


def apply_policy(by: By, key: Key, body: ApplyBody) -> Response:
    """Make these files the active policy, as a new version."""
    return told(policy_changes.apply(by, body.files, body.reason, key, body.base))


def rollback_policy(by: By, key: Key, body: RollbackBody) -> Response:
    """Make an earlier version active again, as a new version."""
    version = policy_changes.earlier(by, body.version)
    note = policies.rollback_note(version, body.reason)
    return told(policy_changes.apply(by, version.files, note, key, body.base))
