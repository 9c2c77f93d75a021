"""Policies: the rules that a caller may see; files are checked, and a change is previewed and applied; a verdict is
explained."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from broker.agent.names import is_one_line
from broker.app.access.callers import Caller
from broker.app.policy import documents, policies
from broker.app.results.policies import (
    AppliedPolicy,
    CheckedPolicy,
    PolicyExplanation,
    PolicyInForce,
    PolicyVersionList,
)
from broker.app.results.trials import PolicyPreviewResult
from broker.app.use_cases.changes import Reason
from broker.app.use_cases.submission import JobText, submittable_job
from broker.core.access.permissions import Permission
from broker.core.documents import MAX_BYTES
from broker.core.errors import InvalidInput
from broker.core.ports import PolicySet

MAX_FILES = 40
_NAME = 300  # characters
_BUDGET = "budget"


def check_names(files: dict[str, str]) -> dict[str, str]:
    """The files. Raises `InvalidInput` for more than a policy may have, and for invalid names."""
    if not files or len(files) > MAX_FILES:
        raise InvalidInput(f"expected 1 to {MAX_FILES} files, found {len(files)}", where="files")
    for name in files:
        if not is_one_line(name) or not 0 < len(name) <= _NAME:  # the name is only displayed; no such file is opened
            raise InvalidInput(f"{name!r} is not the name of a file", where="files", hint="such as team.yaml")
    return files


Files = Annotated[
    dict[str, Annotated[str, Field(max_length=MAX_BYTES)]],
    AfterValidator(check_names),
    Field(description="The texts of all policy files by name; those that are not among them no longer apply."),
]
Base = Annotated[
    int | None, Field(ge=0, description="The version whose change was looked at; null: whatever is active.")
]
Version = Annotated[
    int | None, Field(ge=1, description="To go back to; null: the last one that differs from the active one.")
]


def policy_in_force(
    by: Caller,
    files: Annotated[bool, Field(description="Also the texts of the files, for those who see all.")] = False,
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


def policy_versions(by: Caller) -> PolicyVersionList:
    """Every version of the policy: when it was applied, by whom, and why."""
    return documents.policy_versions(by.broker)


def check_policy(by: Caller, files: Files) -> CheckedPolicy:
    """Whether the files are valid, with likely mistakes. Changes nothing."""
    return documents.check_policy(by.broker, files)


def preview_policy(by: Caller, files: Files) -> PolicyPreviewResult:
    """The effect of applying these files on jobs, budgets, and decisions of the last 30 days. Changes nothing."""
    return documents.preview_policy(by.broker, files)


def preview_rollback(
    by: Caller, version: Version = None, reason: Reason = "", base: Base = None
) -> PolicyPreviewResult:
    """The effect of returning to an earlier version. Changes nothing."""
    return documents.preview_policy(by.broker, policies.find_version(by.broker, version).files)


def apply_policy(by: Caller, files: Files, reason: Reason = "", base: Base = None) -> AppliedPolicy:
    """Make these files the active policy, as a new version."""
    return documents.apply_policy(by.broker, files, reason, by=by.actor, base=base)


def rollback_policy(by: Caller, version: Version = None, reason: Reason = "", base: Base = None) -> AppliedPolicy:
    """Make an earlier version active again, as a new version."""
    earlier_version = policies.find_version(by.broker, version)
    note = policies.rollback_note(earlier_version, reason)
    return documents.apply_policy(by.broker, earlier_version.files, note, by=by.actor, base=base)


def explain_policy(
    by: Caller,
    job_file: JobText,
    files: Annotated[
        Files | None,
        Field(description="Judge by these instead of the active policy, which needs the right to change policies."),
    ] = None,
) -> PolicyExplanation:
    """Every rule's verdict on a job; for those who see all teams, also the facts that the rules see."""
    job = submittable_job(by, job_file)
    if files is not None:
        by.require(Permission.CHANGE_POLICIES, None)
    explanation = documents.explain_job(by.broker, job, files, by=by.actor)
    sees_all = by.access.teams(Permission.SEE_ALL_TEAMS) is None
    return explanation if sees_all else explanation.model_copy(update={"facts": None, "inputs": {}})
