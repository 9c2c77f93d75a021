"""The routes about policies, also for the page: the rules that a caller may see; files are checked, and a change is
previewed and applied once; a verdict is explained."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from broker.agent.names import is_one_line
from broker.app.access.idempotency import ChangeAnswer, run_once
from broker.app.jobs.network_jobs import parse_received_job
from broker.app.policy import documents, policies, preview
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
from broker.server.routes_submission import PlanBody, check_submission

MAX_FILES = 40
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
    result = documents.policy_in_force(by.broker, files=files and teams is None)
    if result.active is None or teams is None:
        return result
    visible = _rules_of_teams(by.broker.policy(), teams)
    hidden: dict[str, Any] = {"capacity_exceptions": [], "note": "", "file_names": [], "files": None}
    rules = [rule for rule in result.active.rules if rule.name in visible]
    return PolicyInForce(active=result.active.model_copy(update={"rules": rules} | hidden))


def _rules_of_teams(policy: PolicySet, teams: Collection[str]) -> set[str]:
    """The names of the rules that concern only these teams, or all. Left out are budgets that other teams share, as in
    the list of budgets, and rules whose condition may name another team."""
    visible: set[str] = set()
    for rule in policy.rules:
        scope = getattr(rule, "scope", None)
        scopes = [scope, *getattr(scope, "excepted", ())]
        teams_named = {name for part in scopes for name in getattr(part, "team", ())}
        shares = getattr(getattr(rule, "config", None), "gpus", None)
        teams_named.update(shares if isinstance(shares, Mapping) else ())  # the shares of teams in prepaid capacity
        shared = rule.kind == _BUDGET and not teams_named
        if not shared and teams_named <= set(teams) and "team" not in policy.when(rule.name):
            visible.add(rule.name)
    return visible


def policy_versions(by: By) -> PolicyVersionList:
    """Every version of the policy: when it was applied, by whom, and why."""
    return documents.policy_versions(by.broker)


def preview_policy(by: By, body: PolicyBody) -> PolicyPreviewResult:
    """The effect of applying these files on jobs, budgets, and decisions of the last 30 days. Changes nothing."""
    check_names(body.files)
    return preview.preview(by.broker, body.files)


def preview_rollback(by: By, body: RollbackBody) -> PolicyPreviewResult:
    """The effect of returning to an earlier version. Changes nothing."""
    return preview.preview(by.broker, policies.find_version(by.broker, body.version).files)


def apply_policy(by: By, key: Key, body: ApplyBody) -> ChangeAnswer:
    """Make these files the active policy, as a new version."""
    return apply(by, body.files, body.reason, key, body.base)


def rollback_policy(by: By, key: Key, body: RollbackBody) -> ChangeAnswer:
    """Make an earlier version active again, as a new version."""
    version = policies.find_version(by.broker, body.version)
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
    active = broker.store.active_policy()
    number = active.number if active else 0
    request_text = request or json.dumps(["policy.apply", dict(files), note, base], sort_keys=True)
    change = request_of(
        by, key, ("policy.apply", "policy"), request_text, f"version {number}" if active else "no policy"
    )
    return run_once(
        broker,
        change,
        lambda: documents.apply_policy(broker, files, note, by=by.actor, base=base),
        lambda applied: ChangeAnswer.of(applied, f"version {applied.number}"),
    )


def check_policy(by: By, body: PolicyBody) -> CheckedPolicy:
    """Whether the files are valid, with likely mistakes. Changes nothing."""
    check_names(body.files)
    return documents.check_policy(by.broker, body.files)


def check_names(files: Mapping[str, str]) -> None:
    """Raises `InvalidInput` for more files than a policy may have, and for invalid names of files."""
    if not files or len(files) > MAX_FILES:
        raise InvalidInput(f"expected 1 to {MAX_FILES} files, found {len(files)}", where="files")
    for name in files:
        if not is_one_line(name) or not 0 < len(name) <= _NAME:  # the name is only displayed; no such file is opened
            raise InvalidInput(f"{name!r} is not the name of a file", where="files", hint="such as team.yaml")


def explain_policy(by: By, body: ExplainBody) -> PolicyExplanation:
    """Every rule's verdict on a job; for those who see all teams, also the facts that the rules see."""
    job = check_submission(by, parse_received_job(by.broker, body.job_file))
    if body.files is not None:
        by.require(Permission.CHANGE_POLICIES, None)
        check_names(body.files)
    explanation = documents.explain_job(by.broker, job, body.files, by=by.actor)
    return explanation if _may_see_all(by) else explanation.model_copy(update={"facts": None, "inputs": {}})


def job_decisions(by: By, id: str) -> RecordedDecisions:
    """The recorded decisions about a job, oldest first; for those who see all teams, with what the rules saw."""
    recorded = documents.recorded_decisions(by.broker, by.job(id).id)
    if _may_see_all(by):
        return recorded
    return RecordedDecisions(decisions=[decision.model_copy(update={"seen": {}}) for decision in recorded.decisions])


def policy_findings(
    by: By,
    since: Annotated[AwareDatetime | None, Query(description="Start of the period; default: 90 days ago.")] = None,
) -> CapacityFindingList:
    """Recorded use against owned, reserved and rented capacity, and what rules that only warn would have stopped."""
    return routes_money.capacity_use(by, since)


def _may_see_all(by: By) -> bool:
    return by.access.teams(Permission.SEE_ALL_TEAMS) is None
