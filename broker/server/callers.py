"""Who calls: from the token of a request to what its owner may."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from fastapi import Request

from broker.app.access.tokens import enter
from broker.app.wiring import Broker
from broker.core.access.permissions import SCOPES, Access, Permission
from broker.core.actors import Actor, EntryPoint
from broker.core.errors import AskAPerson, NotAllowed, Throttled, UnknownName, UnreadableJob
from broker.core.events.views import JobView
from broker.server.wrong_tokens import WrongTokens

log = logging.getLogger(__name__)

_BEARER = "bearer "
T = TypeVar("T")


class SignInNeeded(AskAPerson):
    """The request has no token, or one that is good for nothing. Which of it is not said."""

    def __init__(self) -> None:
        super().__init__(
            "a valid API token is needed", hint="send `Authorization: Bearer gpb_…`; an administrator makes tokens"
        )


class RoleMissing(NotAllowed):
    """No role of who asks allows it, or the token's scopes do not."""


class TooManyWrongTokens(Throttled):
    """An address has brought so many wrong tokens that it has to wait."""

    def __init__(self, after: float) -> None:
        super().__init__("too many wrong tokens from this address", after=after, hint="wait, and check the token")


@dataclass(frozen=True)
class Caller:
    """Who asks, from which address, through which entry, and the broker that answers. ``request_id``: in the log and in
    every answer."""

    broker: Broker
    access: Access
    token: str
    address: str
    request_id: str
    entry: EntryPoint = EntryPoint.API

    @cached_property
    def actor(self) -> Actor:
        """The person for use cases."""
        return self.access.actor(self.entry)

    @property
    def origin(self) -> str:
        """As the audit log tells it."""
        return f"{self.entry} {self.address}"

    def require(self, permission: Permission, team: str | None) -> None:
        """Raises `RoleMissing` where they may not do that in the team (None: with what belongs to none)."""
        if not self.access.may(permission, team):
            raise refused(self.access, permission, f" in team {team}" if team else " with what belongs to no team")

    def job(self, id: str, permission: Permission = Permission.SEE_JOBS) -> JobView:
        """The job of that id, to do that with. Raises `UnknownName` for one that they may not see, just as for one that
        is not there, and `RoleMissing` where they see it and may do no more."""
        view = self._found(id)
        if view is None or not self.access.may(Permission.SEE_JOBS, view.job.team):
            raise UnknownName("job", id, ())
        self.require(permission, view.job.team)
        return view

    def _found(self, id: str) -> JobView | None:
        with self.broker.store.reading() as look:
            try:
                return look.job(id)
            except UnreadableJob:  # nobody can say here whose team it belongs to
                if self.access.teams(Permission.SEE_JOBS) is None:
                    raise
                return None


def refused(access: Access, permission: Permission, where: str) -> RoleMissing:
    """Why they may not, without telling what there is that they may not see."""
    scope = SCOPES[permission]
    if scope not in access.scopes:
        has = ", ".join(sorted(access.scopes))
        return RoleMissing(
            f"the token is good for {has} alone; `{permission}` needs the scope {scope}",
            hint="an administrator makes one with that scope: `gpubroker tokens create`",
        )
    return RoleMissing(
        f"{access.person.name} has no role that allows `{permission}`{where}", hint="an administrator gives roles"
    )


def gate(broker: Broker, wrong: WrongTokens, permission: Permission | None) -> Callable[[Request], None]:
    """What stands before a route: a good token, and a role and scope that allow ``permission`` somewhere (None: any
    good token). The endpoint asks for the team at hand. Raises `SignInNeeded`, `TooManyWrongTokens`, `RoleMissing`."""

    def check(request: Request) -> None:
        request.state.caller = caller = _entered(broker, wrong, request)
        if permission is not None and not caller.access.anywhere(permission):
            raise refused(caller.access, permission, "")

    return check


def caller_of(request: Request) -> Caller:
    """The caller whom the gate let in."""
    caller: Caller = request.state.caller
    return caller


def _entered(broker: Broker, wrong: WrongTokens, request: Request) -> Caller:
    said = request.headers.get("authorization", "")
    text = said[len(_BEARER) :].strip() if said[: len(_BEARER)].lower() == _BEARER else ""
    entrant = admitted(wrong, request, text, lambda: enter(broker, text))
    return Caller(broker, entrant.access, entrant.token.id, address_of(request), request.state.request_id)


def address_of(request: Request) -> str:
    """Where a request comes from."""
    return request.client.host if request.client else "unknown"


def admitted(wrong: WrongTokens, request: Request, token: str, enters: Callable[[], T | None]) -> T:
    """What ``enters`` makes of a token, unless its address has brought too many wrong ones. Raises `SignInNeeded` for
    no token or where it gives None, and `TooManyWrongTokens`."""
    if not token:
        raise SignInNeeded
    address = address_of(request)
    if wait := wrong.wait(address, token):
        raise TooManyWrongTokens(wait)
    found = enters()
    if found is None:
        wrong.wrong(address, token)
        log.warning("a wrong token from %s (request %s)", address, request.state.request_id)
        raise SignInNeeded
    wrong.right(token)
    return found
