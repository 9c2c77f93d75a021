"""Policies: the rules in force with file and line, their versions, and a change with its preview."""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Path, Query
from fastapi.responses import RedirectResponse, Response

from broker.app.policy import policies, preview_tasks
from broker.app.policy.documents import Activation
from broker.app.policy.preview_tasks import RunningPreview
from broker.app.use_cases import policies as use_cases
from broker.app.use_cases.changes import change, single_line
from broker.app.use_cases.policies import MAX_FILES, check_names
from broker.core.access.people import Permission
from broker.core.errors import BrokerError, InvalidInput, RetryLater
from broker.server.api.problems import status_of
from broker.server.page.render import render_page
from broker.server.page.visitors import By, Form, request_key

POLICIES_PATH = "/policies"
PREVIEW_PATH = f"{POLICIES_PATH}/preview"
_MAX_REASON = 400  # characters
_PATIENCE = 1.0  # seconds of the wall clock for which a request waits for a preview
Number = Annotated[int, Path(ge=1)]


def policy_list(by: By) -> Response:
    """The rules in force, their approvers, and file and line of each; for those who see all teams, also files and
    versions."""
    policy = use_cases.policy_in_force(by.caller, files=True).active
    values = {
        "active": policy,
        "versions": use_cases.policy_versions(by.caller).versions if by.may(Permission.SEE_ALL_TEAMS) else None,
        "changes": by.may(Permission.CHANGE_POLICIES),
    }
    return render_page("policies.html", by, values, title="Policies", at=POLICIES_PATH)


def policy_version(by: By, number: Number) -> Response:
    """One version: its difference from the one before, and its files."""
    history = list(by.caller.broker.store.policy_history())
    version = policies.find_version(by.caller.broker, number)
    earlier_files = next((other_version.files for other_version in history if other_version.number == number - 1), {})
    values = {
        "version": Activation.of(version),
        "files": dict(version.files),
        "difference": policies.difference(earlier_files, version.files),
        "active": history[0].number == number,
        "changes": by.may(Permission.CHANGE_POLICIES),
    }
    return render_page("policy_version.html", by, values, title=f"Policy version {number}", at=POLICIES_PATH)


def change_form(by: By, version: int | None = None) -> Response:
    """The form with the texts of a version (default: the active one), to be edited."""
    broker = by.caller.broker
    active = broker.store.active_policy()
    edited = policies.find_version(broker, version) if version is not None else active
    note = policies.rollback_note(edited, "") if version is not None and edited else ""
    return _form(by, dict(edited.files) if edited else {"policy.yaml": ""}, note, active.number if active else 0)


def _form(by: By, files: Mapping[str, str], reason: str, base: int, problem: BrokerError | None = None) -> Response:
    if len(files) > MAX_FILES:  # files that do not fit into the form would no longer apply
        message = f"the policy has {len(files)} files, and this form at most {MAX_FILES}"
        raise InvalidInput(message, where="files", hint="`gpubroker policy apply` on the server takes any number")
    values = {"files": dict(files), "reason": reason, "base": base, "problem": problem, "most": MAX_FILES}
    status = status_of(problem).value if problem else 200
    return render_page("policy_change.html", by, values, title="Change the policy", at=POLICIES_PATH, status=status)


def preview_change(by: By, form: Form) -> Response:
    """Begin to compute the effect that the texts of the form would have. Changes nothing."""
    files, reason, base = _files(form), form.get("reason", "").strip()[:_MAX_REASON], _base_version(form)
    try:
        check_names(files)
        begun = preview_tasks.start_preview(by.caller.broker, files, by.caller.actor.identity)
    except (InvalidInput, RetryLater) as problem:  # the form keeps the texts
        return _form(by, files, reason, base, problem)
    if begun.ended.wait(_PATIENCE):
        return _preview(by, begun, reason, base)
    return RedirectResponse(f"{PREVIEW_PATH}/{begun.task.id}?{urlencode({'base': base, 'reason': reason})}", 303)


def show_preview(
    by: By,
    preview: str,
    base: Annotated[int, Query(ge=0, lt=10**9)],
    reason: Annotated[str, Query(max_length=_MAX_REASON)] = "",
) -> Response:
    """How far a preview is, which the browser asks again each second, or its effect."""
    return _preview(by, preview_tasks.find_preview(by.caller.broker, preview, by.caller.actor.identity), reason, base)


def _preview(by: By, begun: RunningPreview, reason: str, base: int) -> Response:
    """The effect, with the form that applies it."""
    task = begun.task
    if task.result is None:
        title = "The effect cannot be shown" if task.problem else "Computing the effect"
        answer = render_page("policy_progress.html", by, {"task": task}, title=title, at=POLICIES_PATH)
        if not task.problem:
            answer.headers["Refresh"] = "1"
        return answer
    values: dict[str, Any] = {"seen": task.result, "files": dict(begun.files), "reason": reason, "base": base}
    return render_page("policy_preview.html", by, values, title="Effect of the change", at=POLICIES_PATH)


def apply_change(by: By, form: Form) -> Response:
    """Apply the texts that were previewed, unless another version is active meanwhile."""
    files, reason = check_names(_files(form)), single_line(form.get("reason", "").strip())
    key, base = request_key(form), _base_version(form)
    change(by.caller, key, use_cases.apply_policy, files=files, reason=reason, base=base)
    return RedirectResponse(POLICIES_PATH, 303)


def _files(form: Mapping[str, str]) -> dict[str, str]:
    """The files of the form that have a name. Browsers send line breaks as CR LF."""
    files: dict[str, str] = {}
    for index in range(MAX_FILES):
        name, text = form.get(f"name{index}", "").strip(), form.get(f"text{index}", "")
        if not name:
            continue
        if name in files:
            raise InvalidInput(f"two files are called {name}", where="files")
        files[name] = text.replace("\r\n", "\n")
    return files


def _base_version(form: Mapping[str, str]) -> int:
    base = form.get("base", "")
    if not base.isdecimal() or len(base) > 9:
        raise InvalidInput("the form does not say which version it is about", hint="open the page again")
    return int(base)
