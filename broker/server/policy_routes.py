"""The routes about policies: files are checked, and a change is previewed and applied; a verdict is explained, and past
decisions are judged again."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import Query
from fastapi.responses import Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from broker.app.jobs.received import received
from broker.app.policy import changing, policies, trials
from broker.app.results.trials import RecordedDecisions
from broker.core.access.permissions import Permission
from broker.core.documents import MAX_BYTES
from broker.server import shown_money, shown_policies
from broker.server.changing import Key, told
from broker.server.looking import By, answer
from broker.server.shown_policies import check_names
from broker.server.submitting import PlanBody, permitted


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


class ExplainBody(PlanBody):
    """``files``: judge by these instead of the active policy, which needs the right to change policies."""

    files: dict[str, Annotated[str, Field(max_length=MAX_BYTES)]] | None = None


def preview_policy(by: By, body: PolicyBody) -> Response:
    """The effect of applying these files on jobs, budgets, and decisions of the last 30 days. Changes nothing."""
    return answer(shown_policies.seen_before(by, body.files))


def preview_rollback(by: By, body: RollbackBody) -> Response:
    """The effect of returning to an earlier version. Changes nothing."""
    return answer(shown_policies.seen_before(by, policies.version_before(by.broker, body.version).files))


def apply_policy(by: By, key: Key, body: ApplyBody) -> Response:
    """Make these files the active policy, as a new version."""
    return told(shown_policies.apply(by, body.files, body.reason, key, body.base))


def rollback_policy(by: By, key: Key, body: RollbackBody) -> Response:
    """Make an earlier version active again, as a new version."""
    version = policies.version_before(by.broker, body.version)
    note = policies.rollback_note(version, body.reason)
    # Not the files and the note: if the request is repeated, another version is the previous one.
    request = json.dumps(["policy.rollback", body.version, body.reason, body.base])
    return told(shown_policies.apply(by, version.files, note, key, body.base, request))


def check_policy(by: By, body: PolicyBody) -> Response:
    """Whether the files are valid, with likely mistakes. Changes nothing."""
    check_names(body.files)
    return answer(changing.check(by.broker, body.files))


def explain_policy(by: By, body: ExplainBody) -> Response:
    """Every rule's verdict on a job; for those who see all teams, also the facts that the rules see."""
    job = permitted(by, received(by.broker, body.job_file))
    if body.files is not None:
        by.require(Permission.CHANGE_POLICIES, None)
        check_names(body.files)
    found = trials.explain(by.broker, job, body.files, by=by.actor)
    return answer(found if _sees_all(by) else found.model_copy(update={"facts": None, "inputs": {}}))


def job_decisions(by: By, id: str) -> Response:
    """The recorded decisions about a job, oldest first; for those who see all teams, with what the rules saw."""
    found = trials.decisions_about(by.broker, by.job(id).id)
    if not _sees_all(by):
        found = RecordedDecisions(decisions=[one.model_copy(update={"seen": {}}) for one in found.decisions])
    return answer(found)


def policy_findings(
    by: By,
    since: Annotated[AwareDatetime | None, Query(description="Start of the period; default: 90 days ago.")] = None,
) -> Response:
    """Recorded use against owned, reserved and rented capacity, and what rules that only warn would have stopped."""
    return answer(shown_money.capacity_use(by, since))


def _sees_all(by: By) -> bool:
    return by.access.teams(Permission.SEE_ALL_TEAMS) is None
