"""The one table of who may do what on a team server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from broker.core.access.people import Person, TeamRole
from broker.core.actors import Actor, EntryPoint, Role


class Permission(StrEnum):
    """One kind of thing to do. Those of jobs and money hold for a team; the market is everybody's who has a role."""

    SEE_MARKET = "see_market"
    SEE_JOBS = "see_jobs"  # with their costs and requests for approval
    SEE_OUTPUT = "see_output"  # what a job printed
    SEE_BUDGETS = "see_budgets"
    SUBMIT = "submit"
    CHANGE_OWN_JOBS = "change_own_jobs"  # cancel and extend
    CHANGE_TEAM_JOBS = "change_team_jobs"
    APPROVE = "approve"  # what policies ask this person; never their own request
    SEE_PEOPLE = "see_people"  # people, roles, tokens without their text, the audit log
    ADMINISTER = "administer"  # change people, roles, tokens


class TokenScope(StrEnum):
    """What a token is good for, at most; never more than its owner may."""

    READ = "read"
    JOBS = "jobs"
    APPROVALS = "approvals"


_LOOKS = frozenset({Permission.SEE_MARKET, Permission.SEE_JOBS, Permission.SEE_BUDGETS})
_VIEWER = _LOOKS | {Permission.SEE_OUTPUT}
_MEMBER = _VIEWER | {Permission.SUBMIT, Permission.CHANGE_OWN_JOBS}
_APPROVER = _MEMBER | {Permission.APPROVE}

OF_TEAM_ROLES: Mapping[TeamRole, frozenset[Permission]] = {
    TeamRole.VIEWER: _VIEWER,
    TeamRole.MEMBER: _MEMBER,
    TeamRole.APPROVER: _APPROVER,
    TeamRole.TEAM_ADMINISTRATOR: _APPROVER | {Permission.CHANGE_TEAM_JOBS},
}
"""In the team of the role."""

OF_ROLES: Mapping[Role, frozenset[Permission]] = {
    Role.FINOPS: _LOOKS,  # all money, nobody's output, no change
    Role.ADMINISTRATOR: frozenset(Permission),
}
"""In every team, and for jobs without one."""

SCOPES: Mapping[Permission, TokenScope | None] = {
    Permission.SEE_MARKET: TokenScope.READ,
    Permission.SEE_JOBS: TokenScope.READ,
    Permission.SEE_OUTPUT: TokenScope.READ,
    Permission.SEE_BUDGETS: TokenScope.READ,
    Permission.SUBMIT: TokenScope.JOBS,
    Permission.CHANGE_OWN_JOBS: TokenScope.JOBS,
    Permission.CHANGE_TEAM_JOBS: TokenScope.JOBS,
    Permission.APPROVE: TokenScope.APPROVALS,
    Permission.SEE_PEOPLE: TokenScope.READ,
    Permission.ADMINISTER: None,  # on the server alone: a stolen token must not make others
}
"""The scope that a token needs for it; None: no token will do."""

_NOT_FOR_MACHINES = frozenset({Permission.APPROVE, Permission.ADMINISTER})


@dataclass(frozen=True, slots=True)
class Access:
    """A person as a token or a session lets them in: what they may, cut down to ``scopes``."""

    person: Person
    scopes: frozenset[TokenScope]

    def may(self, permission: Permission, team: str | None) -> bool:
        """Whether they may do that in a team; None: with what belongs to no team."""
        teams = self.teams(permission)
        return teams is None or (team is not None and team in teams)

    def anywhere(self, permission: Permission) -> bool:
        """Whether there is anything at all that they may do that with."""
        return self.teams(permission) != frozenset()

    def teams(self, permission: Permission) -> frozenset[str] | None:
        """The teams in which they may do that; None: all, and with what belongs to no team."""
        person = self.person
        barred = person.disabled_at is not None or (person.service and permission in _NOT_FOR_MACHINES)
        if barred or SCOPES[permission] not in self.scopes:
            return frozenset()
        if any(permission in OF_ROLES[role] for role in person.roles):
            return None
        return frozenset(team for team, role in person.teams.items() if permission in OF_TEAM_ROLES[role])

    def actor(self, origin: EntryPoint) -> Actor:
        """The person for a use case. Roles come along as far as the scopes let them act."""
        teams = self.teams(Permission.CHANGE_TEAM_JOBS)
        everywhere = frozenset({Role.ADMINISTRATOR}) if teams is None else frozenset[Role]()
        return Actor(self.person.name, everywhere, origin, teams or frozenset())
