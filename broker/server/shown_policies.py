"""The policies that a caller may see, and their changes, first previewed, then applied once and recorded: for the API
and the page."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from broker.agent.names import is_one_line
from broker.app.access.once import ChangeAnswer, once
from broker.app.policy import active, changing, trials
from broker.app.results.policies import PolicyInForce
from broker.app.results.policy_preview import PolicyPreviewResult
from broker.core.access.permissions import Permission
from broker.core.errors import InvalidInput
from broker.core.ports import PolicySet
from broker.server.callers import Caller
from broker.server.changes import one_line, request_of

MOST_FILES = 40
_NAME = 300  # characters
_BUDGET = "budget"


def in_force(by: Caller, *, files: bool = False) -> PolicyInForce:
    """The active policy; null if there is none. A caller whose roles are only in teams sees the rules that name no
    other team: no budgets over several teams, no names or texts of files, no note of the change. ``files``: include the
    texts of the files, for callers with roles in all teams."""
    teams = by.access.teams(Permission.SEE_POLICIES)
    found = active.in_force(by.broker, files=files and teams is None)
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


def seen_before(by: Caller, files: Mapping[str, str]) -> PolicyPreviewResult:
    """As `trials.seen_before`, for files with valid names."""
    check_names(files)
    return trials.seen_before(by.broker, files)


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
        lambda: changing.apply(broker, files, note, by=by.actor, base=base),
        lambda done: ChangeAnswer.of(done, f"version {done.number}"),
    )


def check_names(files: Mapping[str, str]) -> None:
    """Raises `InvalidInput` for more files than a policy may have, and for invalid names of files."""
    if not files or len(files) > MOST_FILES:
        raise InvalidInput(f"expected 1 to {MOST_FILES} files, found {len(files)}", where="files")
    for name in files:
        if not is_one_line(name) or not 0 < len(name) <= _NAME:  # the name is only displayed; no such file is opened
            raise InvalidInput(f"{name!r} is not the name of a file", where="files", hint="such as team.yaml")
