"""On whose behalf a use case runs, and what that person may see and change: by a token, by a session of the web UI, or
as a user of the machine that has the store."""

from dataclasses import dataclass

from broker.app.wiring import Broker
from broker.core.access.people import PERMISSION_TEXTS, SCOPES, Access, Permission, Person, TokenScope
from broker.core.actors import Actor
from broker.core.errors import NotAllowed, UnknownName, UnreadableJob
from broker.core.events.views import JobView

_NOT_BY_LOGIN = (TokenScope.STATEMENTS, TokenScope.ADMISSION)  # `gpubroker login` does not request them


class RoleMissing(NotAllowed):
    """The caller's roles, or the token's scopes, do not allow it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who runs a use case, and on which broker. ``request_id`` and idempotency
    ``key``: of a request to the server; the id is that in the log and in every answer."""

    broker: Broker
    access: Access
    actor: Actor
    request_id: str = ""
    key: str = ""

    @property
    def token(self) -> str:
        """The id of the token or session of a request to the server."""
        return self.actor.token

    def require(self, permission: Permission, team: str | None) -> None:
        """Raises `RoleMissing` if the caller lacks the permission in the team (None: for things without a team)."""
        if not self.access.may(permission, team):
            raise missing_permission(
                self.access, permission, f" in team {team}" if team else " with what belongs to no team"
            )

    def job(self, id: str, permission: Permission = Permission.SEE_JOBS) -> JobView:
        """The job, if the caller has the permission for it. Raises `UnknownName` if it does not exist or the caller may
        not see it, and `RoleMissing` if the caller may see it but lacks the permission."""
        view = self._load_job(id)
        if view is None or not self.access.may(Permission.SEE_JOBS, view.job.team):
            raise UnknownName("job", id, ())
        self.require(permission, view.job.team)
        return view

    def _load_job(self, id: str) -> JobView | None:
        with self.broker.store.reading() as snapshot:
            try:
                return snapshot.job(id)
            except UnreadableJob:  # its team is unknown here
                if self.access.teams(Permission.SEE_JOBS) is None:
                    raise
                return None


class _OwnMachine(Access):
    """The access of people whose process opens the store itself: all teams. What they may change, the use cases decide
    by their name and role."""

    __slots__ = ()

    def teams(self, permission: Permission) -> frozenset[str] | None:  # no permission is limited
        return None


def local_caller(broker: Broker, actor: Actor) -> Caller:
    """A person of the machine that has the store."""
    person = Person(actor.identity, broker.clock.now(), roles=actor.roles)
    return Caller(broker, _OwnMachine(person, frozenset(TokenScope)), actor)


def missing_permission(access: Access, permission: Permission, where: str) -> RoleMissing:
    """The error for a missing permission. It does not reveal what the caller may not see."""
    scope = SCOPES[permission]
    if scope not in access.scopes:
        held = ", ".join(sorted(access.scopes))
        return RoleMissing(
            f"the login or token has only {held}; {PERMISSION_TEXTS[permission]} needs the scope {scope}",
            hint=_scope_advice(access, scope),
        )
    return RoleMissing(
        f"{access.person.name} has no role that allows {PERMISSION_TEXTS[permission]}{where}",
        hint="an administrator gives roles",
    )


def _scope_advice(access: Access, scope: TokenScope) -> str:
    options = " ".join(f"--scope {name}" for name in dict.fromkeys((TokenScope.READ, scope)))
    advice = (
        "an administrator makes a token where the server runs: "
        f"`gpubroker tokens create {access.person.name} {options}`; set GPUBROKER_SERVER and GPUBROKER_TOKEN to use it"
    )
    return advice if scope in _NOT_BY_LOGIN else f"log in with it: `gpubroker login URL {options}`; or {advice}"
