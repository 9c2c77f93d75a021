"""The users and service accounts of a team server, and their roles."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from broker.core.actors import Role
from broker.core.errors import InvalidInput

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
_TEAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class TeamRole(StrEnum):
    """A role in one team. Each role includes the permissions of the roles before it."""

    VIEWER = "viewer"
    MEMBER = "member"
    APPROVER = "approver"
    TEAM_ADMINISTRATOR = "team_administrator"


ROLES: Mapping[str, Role | TeamRole] = {one.value: one for one in (*TeamRole, *Role)}
"""The roles in a team and the global ones by name."""


@dataclass(frozen=True, slots=True)
class Person:
    """A user who may sign in, or a service account. Times are UTC.

    ``name``: the name in events, ledger entries and policies; the same as the account name on the command line.
    ``roles``: roles for all teams; ``teams``: the role in each team. There is no default role. ``disabled_at``: none of
    the user's tokens is valid from then on.
    """

    name: str
    added_at: datetime
    service: bool = False
    roles: frozenset[Role] = frozenset()
    teams: Mapping[str, TeamRole] = field(default_factory=dict)
    disabled_at: datetime | None = None

    @property
    def in_words(self) -> str:
        """The roles as the audit log prints them: ``administrator, nlp:member``."""
        return roles_in_words(self.roles, self.teams, disabled=self.disabled_at is not None)


def roles_in_words(roles: Iterable[Role], teams: Mapping[str, TeamRole], *, disabled: bool) -> str:
    """``administrator, nlp:member``; ``no role``."""
    words = [*sorted(roles), *(f"{team}:{role}" for team, role in sorted(teams.items()))]
    return ", ".join([*words, *(["disabled"] if disabled else [])]) or "no role"


def check_name(name: str) -> str:
    """The name of a person, unchanged. Raises `InvalidInput` for a name that would be ambiguous in print."""
    return _check(name, _NAME, "person", "1 to 64 letters, digits and . _ @ + -")


def check_team(team: str) -> str:
    """The name of a team, unchanged. Raises `InvalidInput` for any other form, patterns included."""
    return _check(team, _TEAM, "team", "1 to 63 letters, digits and . _ -")


def _check(name: str, form: re.Pattern[str], kind: str, expected: str) -> str:
    if not form.fullmatch(name):
        raise InvalidInput(
            f"{name!r} is not a valid name of a {kind}", hint=f"expected {expected}, first a letter or a digit"
        )
    return name
