"""Policies: the rules that a caller may see; files are checked, and a change is previewed and applied; a verdict is
explained."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from broker.agent.names import is_one_line
from broker.app.access.callers import Caller
from broker.app.jobs.preview import NothingToJudge
from broker.app.policy import policies, preview_tasks
from broker.app.policy.documents import (
    ActivePolicy,
    AppliedPolicy,
    CheckedPolicy,
    PolicyExplanation,
    PolicyInForce,
    PolicyVersionList,
)
from broker.app.policy.preview_tasks import PreviewTask
from broker.app.policy.trial_documents import PolicyPreviewResult, RecordedDecisions, preview
from broker.app.use_cases.changes import Reason
from broker.app.use_cases.submission import JobText
from broker.app.use_cases.visible import submittable_job
from broker.app.wiring import Broker
from broker.core.access.people import Permission
from broker.core.documents import MAX_BYTES
from broker.core.errors import InvalidInput
from broker.core.job.jobs import Job
from broker.core.policy.policy import Answer
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
    version = by.broker.store.active_policy()
    active = version and ActivePolicy.of_set(version, by.broker.policy(), files=files and teams is None)
    result = PolicyInForce(active=active)
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
    return PolicyVersionList.from_parts(versions=by.broker.store.policy_history())


def check_policy(by: Caller, files: Files) -> CheckedPolicy:
    """Whether the files are valid, with likely mistakes. Changes nothing."""
    policy_set = policies.load_policy(by.broker, files)
    return CheckedPolicy.of(policy_set, policies.policy_warnings(by.broker, policy_set))


def preview_policy(by: Caller, files: Files) -> PolicyPreviewResult:
    """The effect of applying these files on jobs, budgets, and decisions of the last 30 days. Changes nothing."""
    return preview(by.broker, files)


def start_preview(by: Caller, files: Files) -> PreviewTask:
    """Begin to compute the same as `preview_policy`, which may take half a minute."""
    return preview_tasks.start_preview(by.broker, files, by.actor.identity).task


def show_preview(by: Caller, preview: str) -> PreviewTask:
    """The progress of a preview that the caller began in the last hour at this server, and its result."""
    return preview_tasks.find_preview(by.broker, preview, by.actor.identity).task


def preview_rollback(
    by: Caller, version: Version = None, reason: Reason = "", base: Base = None
) -> PolicyPreviewResult:
    """The effect of returning to an earlier version. Changes nothing."""
    return preview_policy(by, dict(policies.find_version(by.broker, version).files))


def apply_policy(by: Caller, files: Files, reason: Reason = "", base: Base = None) -> AppliedPolicy:
    """Make these files the active policy, as a new version."""
    broker = by.broker
    previous, old, new = broker.store.active_policy(), _readable(broker), policies.load_policy(broker, files)
    version, difference = policies.activate(broker, files, reason, by=by.actor, base=base)
    return AppliedPolicy.of_change(
        version,
        old,
        new,
        changed=previous is None or previous.number != version.number,
        difference=difference,
        warnings=policies.policy_warnings(broker, new),
    )


def _readable(broker: Broker) -> PolicySet | None:
    """The active set; None if there is none, or if this version cannot read it (applying another set fixes that)."""
    try:
        return broker.policy()
    except InvalidInput:
        return None


def rollback_policy(by: Caller, version: Version = None, reason: Reason = "", base: Base = None) -> AppliedPolicy:
    """Make an earlier version active again, as a new version."""
    earlier_version = policies.find_version(by.broker, version)
    note = policies.rollback_note(earlier_version, reason)
    return apply_policy(by, dict(earlier_version.files), note, base)


def explain_policy(
    by: Caller,
    job_file: JobText,
    files: Annotated[
        Files | None,
        Field(description="Judge by these instead of the active policy, which needs the right to change policies."),
    ] = None,
) -> PolicyExplanation:
    """What every rule decides on a job; for those who see all teams, also the facts that the rules see."""
    job = submittable_job(by, job_file)
    if files is not None:
        by.require(Permission.CHANGE_POLICIES, None)
    explanation = explain_job(by, job, files)
    sees_all = by.access.teams(Permission.SEE_ALL_TEAMS) is None
    return explanation if sees_all else explanation.model_copy(update={"facts": None, "inputs": {}})


def explain_job(by: Caller, job: Job, files: Mapping[str, str] | None = None) -> PolicyExplanation:
    """Every rule's verdict on a job of this machine; ``files``: judge by these instead of the active policy. Raises
    `InvalidInput`, and `NothingToJudge` if no offer can serve the job."""
    policy_set = None if files is None else policies.load_policy(by.broker, files)
    explanation = policies.explain(by.broker, job, policy_set, by=by.actor)
    if explanation is None:
        raise NothingToJudge("no placement is feasible, so there is none to judge", hint="see `gpubroker plan`")
    return PolicyExplanation.of(explanation, (policy_set or by.broker.policy()).version)


def recent_decisions(broker: Broker, since: datetime, *, denied: bool, limit: int) -> RecordedDecisions:
    """The newest decisions of all jobs since then (UTC), or only those that denied."""
    with broker.store.reading() as reader:
        found = reader.decisions(since=since, answer=Answer.DENY if denied else None, limit=limit)
    listed = RecordedDecisions.from_parts(decisions=found).decisions
    return RecordedDecisions(decisions=[decision.model_copy(update={"seen": {}}) for decision in listed])
