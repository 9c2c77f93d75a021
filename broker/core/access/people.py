"""The users and service accounts of a team server; their permissions, one table by role and one by token scope."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from broker.core.actors import Actor, EntryPoint, Role
from broker.core.errors import InvalidInput

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
_TEAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class TeamRole(StrEnum):
    """A role in one team. Each role includes the permissions of the roles before it."""

    VIEWER = "viewer"
    MEMBER = "member"
    APPROVER = "approver"
    TEAM_ADMINISTRATOR = "team_administrator"


ROLES: Mapping[str, Role | TeamRole] = {role.value: role for role in (*TeamRole, *Role)}
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


class Permission(StrEnum):
    """One kind of action. Permissions about jobs and money apply to a team; everybody with a role may see the
    market."""

    SEE_MARKET = "see_market"
    SEE_JOBS = "see_jobs"  # with their costs and requests for approval
    SEE_OUTPUT = "see_output"  # what a job printed
    SEE_BUDGETS = "see_budgets"  # and what is spent
    SEE_ALL_TEAMS = "see_all_teams"  # reports on all teams, charges of providers, held capacity, policy files
    SEE_POLICIES = "see_policies"  # the rules in force; in a team, those that may concern it
    SUBMIT = "submit"
    JUDGE_LAUNCHES = "judge_launches"  # ask, for SkyPilot or Slurm, about the launches of their users
    CHANGE_OWN_JOBS = "change_own_jobs"  # cancel and extend
    CHANGE_TEAM_JOBS = "change_team_jobs"
    BUY = "buy"  # ask for quotes, start purchases, undo own purchases; policies say who may buy what
    APPROVE = "approve"  # requests that policies send to this person; never the person's own
    SEE_PEOPLE = "see_people"  # people, roles, tokens without their text, the audit log
    CHANGE_POLICIES = "change_policies"  # preview, apply and roll back policies
    ANSWER_ADVICE = "answer_advice"  # of a month's review: it applies, it does not, it is done
    FREEZE_STATEMENTS = "freeze_statements"  # fix what teams are charged for a closed month, permanently
    WATCH_PRICES = "watch_prices"  # add and change watches on prices
    MAKE_OWN_TOKENS = "make_own_tokens"  # and revoke them
    ADMINISTER = "administer"  # change people, roles, tokens


class TokenScope(StrEnum):
    """The most that a token permits. A token never permits more than its owner's roles do."""

    READ = "read"
    JOBS = "jobs"
    APPROVALS = "approvals"
    POLICIES = "policies"
    ADMISSION = "admission"
    STATEMENTS = "statements"
    PURCHASES = "purchases"
    PEOPLE = "people"


_LOOKS = frozenset({Permission.SEE_MARKET, Permission.SEE_JOBS, Permission.SEE_BUDGETS, Permission.SEE_POLICIES})
_VIEWER = _LOOKS | {Permission.SEE_OUTPUT, Permission.MAKE_OWN_TOKENS}
_MEMBER = _VIEWER | {Permission.SUBMIT, Permission.CHANGE_OWN_JOBS, Permission.BUY, Permission.WATCH_PRICES}
_APPROVER = _MEMBER | {Permission.APPROVE}

TEAM_ROLE_PERMISSIONS: Mapping[TeamRole, frozenset[Permission]] = {
    TeamRole.VIEWER: _VIEWER,
    TeamRole.MEMBER: _MEMBER,
    TeamRole.APPROVER: _APPROVER,
    TeamRole.TEAM_ADMINISTRATOR: _APPROVER | {Permission.CHANGE_TEAM_JOBS},
}
"""The permissions of each team role, in that team."""

ROLE_PERMISSIONS: Mapping[Role, frozenset[Permission]] = {
    Role.FINOPS: _LOOKS  # all costs; no output of jobs
    | {Permission.SEE_ALL_TEAMS, Permission.ANSWER_ADVICE, Permission.WATCH_PRICES, Permission.MAKE_OWN_TOKENS},
    Role.GATE: frozenset({Permission.JUDGE_LAUNCHES}),  # of another scheduler; sees nothing, approves nothing
    Role.ADMINISTRATOR: frozenset(Permission),
}
"""The permissions of each role, in every team and for jobs without a team."""

SCOPES: Mapping[Permission, TokenScope] = {
    Permission.SEE_MARKET: TokenScope.READ,
    Permission.SEE_JOBS: TokenScope.READ,
    Permission.SEE_OUTPUT: TokenScope.READ,
    Permission.SEE_BUDGETS: TokenScope.READ,
    Permission.SEE_ALL_TEAMS: TokenScope.READ,
    Permission.SEE_POLICIES: TokenScope.READ,
    Permission.SUBMIT: TokenScope.JOBS,
    Permission.JUDGE_LAUNCHES: TokenScope.ADMISSION,
    Permission.CHANGE_OWN_JOBS: TokenScope.JOBS,
    Permission.CHANGE_TEAM_JOBS: TokenScope.JOBS,
    Permission.BUY: TokenScope.PURCHASES,
    Permission.APPROVE: TokenScope.APPROVALS,
    Permission.SEE_PEOPLE: TokenScope.READ,
    Permission.CHANGE_POLICIES: TokenScope.POLICIES,
    Permission.ANSWER_ADVICE: TokenScope.APPROVALS,
    Permission.FREEZE_STATEMENTS: TokenScope.STATEMENTS,  # a separate scope: freezing is permanent
    Permission.WATCH_PRICES: TokenScope.JOBS,
    Permission.MAKE_OWN_TOKENS: TokenScope.PEOPLE,
    Permission.ADMINISTER: TokenScope.PEOPLE,  # a separate scope: who steals such a token can make others
}
"""The scope that each permission requires of a token."""

PERMISSION_TEXTS: Mapping[Permission, str] = {
    Permission.SEE_MARKET: "seeing prices and offers",
    Permission.SEE_JOBS: "seeing jobs",
    Permission.SEE_OUTPUT: "seeing the output of jobs",
    Permission.SEE_BUDGETS: "seeing budgets",
    Permission.SEE_ALL_TEAMS: "seeing all teams",
    Permission.SEE_POLICIES: "seeing policies",
    Permission.SUBMIT: "submitting jobs",
    Permission.JUDGE_LAUNCHES: "judging launches of another scheduler",
    Permission.CHANGE_OWN_JOBS: "changing one's own jobs",
    Permission.CHANGE_TEAM_JOBS: "changing the jobs of the team",
    Permission.BUY: "buying capacity or asking for quotes",
    Permission.APPROVE: "approving",
    Permission.SEE_PEOPLE: "seeing people and the audit log",
    Permission.CHANGE_POLICIES: "changing policies",
    Permission.ANSWER_ADVICE: "answering advice",
    Permission.FREEZE_STATEMENTS: "freezing statements",
    Permission.WATCH_PRICES: "watching prices",
    Permission.MAKE_OWN_TOKENS: "making one's own tokens",
    Permission.ADMINISTER: "administering people, roles and tokens",
}
"""Each permission as a message names it."""

NOT_FOR_SERVICES = frozenset(
    {TokenScope.APPROVALS, TokenScope.POLICIES, TokenScope.STATEMENTS, TokenScope.PURCHASES, TokenScope.PEOPLE}
)
"""Scopes that a token of a service account cannot have."""

_NOT_FOR_MACHINES = frozenset(
    {
        Permission.BUY,
        Permission.APPROVE,
        Permission.CHANGE_POLICIES,
        Permission.FREEZE_STATEMENTS,
        Permission.MAKE_OWN_TOKENS,
        Permission.ADMINISTER,
    }
)


def has_everywhere(person: Person, permission: Permission) -> bool:
    """Whether a role of the person has the permission in every team, regardless of token scopes. False for a disabled
    person."""
    return not _is_barred(person, permission) and any(permission in ROLE_PERMISSIONS[role] for role in person.roles)


def _is_barred(person: Person, permission: Permission) -> bool:
    return person.disabled_at is not None or (person.service and permission in _NOT_FOR_MACHINES)


@dataclass(frozen=True, slots=True)
class Access:
    """A person who signed in by a token or a session: the person's permissions, limited to ``scopes``."""

    person: Person
    scopes: frozenset[TokenScope]

    def may(self, permission: Permission, team: str | None) -> bool:
        """Whether the permission applies in a team; None: to what belongs to no team."""
        teams = self.teams(permission)
        return teams is None or (team is not None and team in teams)

    def anywhere(self, permission: Permission) -> bool:
        return self.teams(permission) != frozenset()

    def teams(self, permission: Permission) -> frozenset[str] | None:
        """The teams in which the permission applies; None: in all, and to what belongs to no team."""
        person = self.person
        if _is_barred(person, permission) or SCOPES[permission] not in self.scopes:
            return frozenset()
        if has_everywhere(person, permission):
            return None
        return frozenset(team for team, role in person.teams.items() if permission in TEAM_ROLE_PERMISSIONS[role])

    def actor(self, origin: EntryPoint) -> Actor:
        """The actor for use cases, with the roles that the scopes permit."""
        teams = self.teams(Permission.CHANGE_TEAM_JOBS)
        everywhere = frozenset({Role.ADMINISTRATOR}) if teams is None else frozenset[Role]()
        return Actor(self.person.name, everywhere, origin, teams or frozenset())
