"""The policies that a caller may see, for the API and the page."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from broker.app.policy import answers
from broker.app.results.policies import PolicyInForce
from broker.core.access.permissions import Permission
from broker.core.ports import PolicySet
from broker.server.callers import Caller

_BUDGET = "budget"


def in_force(by: Caller, *, files: bool = False) -> PolicyInForce:
    """The active policy; null if there is none. A caller whose roles are only in teams sees the rules that name no
    other team: no budgets over several teams, no names or texts of files, no note of the change. ``files``: include the
    texts of the files, for callers with roles in all teams."""
    teams = by.access.teams(Permission.SEE_POLICIES)
    found = answers.in_force(by.broker, files=files and teams is None)
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
