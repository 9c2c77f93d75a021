"""The routes about policies, also for the page: the rules that a caller may see; files are checked, and a change is
previewed and applied once; a verdict is explained."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from broker.agent.names import is_one_line
from broker.app.access.once import ChangeAnswer, once
from broker.app.jobs.received import received
from broker.app.policy import documents, policies
from broker.app.results.capacity_plan import CapacityFindingList
from broker.app.results.policies import CheckedPolicy, PolicyExplanation, PolicyInForce, PolicyVersionList
from broker.app.results.trials import PolicyPreviewResult, RecordedDecisions
from broker.core.access.permissions import Permission
from broker.core.documents import MAX_BYTES
from broker.core.errors import InvalidInput
from broker.core.ports import PolicySet
from broker.server import routes_money
from broker.server.callers import By, Caller
from broker.server.changes import Key, one_line, request_of
from broker.server.submitting import PlanBody, permitted

MOST_FILES = 40
_NAME = 300  # characters
_BUDGET = "budget"


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


def policy_in_force(
    by: By, files: Annotated[bool, Query(description="Also the texts of the files, for those who see all.")] = False
) -> PolicyInForce:
    """The active policy: its rules with file and line; in a team, the rules that name no other team."""
    # In a team: no budgets over several teams, no names or texts of files, no note of the change.
    teams = by.access.teams(Permission.SEE_POLICIES)
    found = documents.in_force(by.broker, files=files and teams is None)
    if found.active is None or teams is None:
        return found
    seen = _concerning(by.broker.policy(), teams)
    left_out: dict[str, Any] = {"capacity_exceptions": [], "note": "", "file_names": [], "files": None}
    rules = [one for one in found.active.rules if one.name in seen]
    return PolicyInForce(active=found.active.model_copy(update={"rules": rules} | left_out))


def _concerning(policy: PolicySet, teams: Collection[str]) -> set[str]:
    """The names of the rules that concern only these teams, or all. Left out are budgets that other teams share, as in
    the list of budgets, and rules whose condition may name another team."""
    seen: set[str] = set()
    for rule in policy.rules:
        scope = getattr(rule, "scope", None)
        scopes = [scope, *getattr(scope, "excepted", ())]
        named = {name for one in scopes for name in getattr(one, "team", ())}
        shares = getattr(getattr(rule, "config", None), "gpus", None)
        named.update(shares if isinstance(shares, Mapping) else ())  # the shares of teams in prepaid capacity
        shared = rule.kind == _BUDGET and not named
        if not shared and named <= set(teams) and "team" not in policy.when(rule.name):
            seen.add(rule.name)
    return seen


def policy_versions(by: By) -> PolicyVersionList:
    """Every version of the policy: when it was applied, by whom, and why."""
    return documents.versions(by.broker)


def preview_policy(by: By, body: PolicyBody) -> PolicyPreviewResult:
    """The effect of applying these files on jobs, budgets, and decisions of the last 30 days. Changes nothing."""
    check_names(body.files)
    return documents.seen_before(by.broker, body.files)


def preview_rollback(by: By, body: RollbackBody) -> PolicyPreviewResult:
    """The effect of returning to an earlier version. Changes nothing."""
    return documents.seen_before(by.broker, policies.version_before(by.broker, body.version).files)


def apply_policy(by: By, key: Key, body: ApplyBody) -> ChangeAnswer:
    """Make these files the active policy, as a new version."""
    return apply(by, body.files, body.reason, key, body.base)


def rollback_policy(by: By, key: Key, body: RollbackBody) -> ChangeAnswer:
    """Make an earlier version active again, as a new version."""
    version = policies.version_before(by.broker, body.version)
    note = policies.rollback_note(version, body.reason)
    # Not the files and the note: if the request is repeated, another version is the previous one.
    request = json.dumps(["policy.rollback", body.version, body.reason, body.base])
    return apply(by, version.files, note, key, body.base, request)


def apply(
    by: Caller, files: Mapping[str, str], note: str, key: str, base: int | None = None, request: str | None = None
) -> ChangeAnswer:
    """Make these files the active policy. ``base``: the version that the caller has seen; None: any. ``request``: the
    whole request as text, where it does not have the files and the note themselves. Raises `InvalidInput` for invalid
    files, and if another version is active."""
    check_names(files)
    broker, note = by.broker, one_line(note)
    before = broker.store.active_policy()
    number = before.number if before else 0
    said = request or json.dumps(["policy.apply", dict(files), note, base], sort_keys=True)
    asked = request_of(by, key, ("policy.apply", "policy"), said, f"version {number}" if before else "no policy")
    return once(
        broker,
        asked,
        lambda: documents.apply(broker, files, note, by=by.actor, base=base),
        lambda done: ChangeAnswer.of(done, f"version {done.number}"),
    )


def check_policy(by: By, body: PolicyBody) -> CheckedPolicy:
    """Whether the files are valid, with likely mistakes. Changes nothing."""
    check_names(body.files)
    return documents.check(by.broker, body.files)


def check_names(files: Mapping[str, str]) -> None:
    """Raises `InvalidInput` for more files than a policy may have, and for invalid names of files."""
    if not files or len(files) > MOST_FILES:
        raise InvalidInput(f"expected 1 to {MOST_FILES} files, found {len(files)}", where="files")
    for name in files:
        if not is_one_line(name) or not 0 < len(name) <= _NAME:  # the name is only displayed; no such file is opened
            raise InvalidInput(f"{name!r} is not the name of a file", where="files", hint="such as team.yaml")


def explain_policy(by: By, body: ExplainBody) -> PolicyExplanation:
    """Every rule's verdict on a job; for those who see all teams, also the facts that the rules see."""
    job = permitted(by, received(by.broker, body.job_file))
    if body.files is not None:
        by.require(Permission.CHANGE_POLICIES, None)
        check_names(body.files)
    found = documents.explain(by.broker, job, body.files, by=by.actor)
    return found if _sees_all(by) else found.model_copy(update={"facts": None, "inputs": {}})


def job_decisions(by: By, id: str) -> RecordedDecisions:
    """The recorded decisions about a job, oldest first; for those who see all teams, with what the rules saw."""
    found = documents.decisions_about(by.broker, by.job(id).id)
    if _sees_all(by):
        return found
    return RecordedDecisions(decisions=[one.model_copy(update={"seen": {}}) for one in found.decisions])


def policy_findings(
    by: By,
    since: Annotated[AwareDatetime | None, Query(description="Start of the period; default: 90 days ago.")] = None,
) -> CapacityFindingList:
    """Recorded use against owned, reserved and rented capacity, and what rules that only warn would have stopped."""
    return routes_money.capacity_use(by, since)


def _sees_all(by: By) -> bool:
    return by.access.teams(Permission.SEE_ALL_TEAMS) is None
