"""Authentication and authorization: from a request's token to the permissions of its owner."""

import base64
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from broker.app.access.callers import Caller, missing_permission
from broker.app.access.tokens import authenticate
from broker.app.wiring import Broker
from broker.core.access.people import Permission
from broker.core.actors import EntryPoint, network_of
from broker.core.errors import AskAPerson, Throttled
from broker.server.api.limits import RequestRate, WrongTokens
from broker.server.api.paths import ADMISSION

log = logging.getLogger(__name__)

_BEARER, _BASIC = "bearer ", "basic "
T = TypeVar("T")


class SignInNeeded(AskAPerson):
    """The request has no token or an invalid one. The message does not say which of the two."""

    def __init__(self) -> None:
        super().__init__(
            "a valid API token is needed", hint="send `Authorization: Bearer gpb_…`; an administrator makes tokens"
        )


class TooManyWrongTokens(Throttled):
    """An address has sent too many wrong tokens and has to wait."""

    def __init__(self, after: float) -> None:
        super().__init__("too many wrong tokens from this address", after=after, hint="wait, and check the token")


@dataclass(frozen=True)
class EntryControl:
    """What is needed to check callers, in ``app.state.entry``. ``rate``: limits the requests of a token."""

    broker: Broker
    wrong: WrongTokens
    rate: RequestRate


def gate(permission: Permission | None, *, counted: bool) -> Callable[[Request], None]:
    """The check before a route: a valid token, and a role and scope with ``permission`` in some team (None: any valid
    token). The endpoint checks the team concerned. ``counted``: the request counts for the token's rate.
    Raises `SignInNeeded`, `TooManyWrongTokens`, `TooManyRequests`, `RoleMissing`."""

    def check(request: Request) -> None:
        entry: EntryControl = request.app.state.entry
        request.state.caller = caller = _authenticate(entry.broker, entry.wrong, request)
        if counted:
            entry.rate.take(caller.token)
        if permission is not None and not caller.access.anywhere(permission):
            raise missing_permission(caller.access, permission, "")

    return check


def caller_of(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


def _authenticate(broker: Broker, wrong_tokens: WrongTokens, request: Request) -> Caller:
    text = bearer_of(request)
    entrant = authenticate_token(wrong_tokens, request, text, lambda: authenticate(broker, text))
    actor = replace(entrant.access.actor(EntryPoint.API), address=address_of(request), token=entrant.token.id)
    return Caller(broker, entrant.access, actor, request.state.request_id)


def bearer_of(request: Request) -> str:
    """The request's token; empty if it has none."""
    header = request.headers.get("authorization", "")
    if header[: len(_BASIC)].lower() == _BASIC and request.url.path.startswith(ADMISSION):
        return _password(header[len(_BASIC) :])
    return header[len(_BEARER) :].strip() if header[: len(_BEARER)].lower() == _BEARER else ""


def _password(encoded: str) -> str:
    """The password of HTTP basic authentication, in which some tools send their token."""
    try:
        return base64.b64decode(encoded.strip(), validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def address_of(request: Request) -> str:
    return request.client.host if request.client else "unknown"


def authenticate_token(wrong_tokens: WrongTokens, request: Request, token: str, enters: Callable[[], T | None]) -> T:
    """The result of ``enters`` for the token. Raises `SignInNeeded` without a token or if ``enters`` returns None, and
    `TooManyWrongTokens` if the address has sent too many wrong ones."""
    if not token:
        raise SignInNeeded
    address = network_of(address_of(request))
    if wait := wrong_tokens.wait(address, token):
        raise TooManyWrongTokens(wait)
    result = enters()
    if result is None:
        wrong_tokens.wrong(address, token)
        log.warning("a wrong token from %s (request %s)", address, request.state.request_id)
        raise SignInNeeded
    wrong_tokens.right(token)
    return result


By = Annotated[Caller, Depends(caller_of)]
"""The caller, as a parameter of an endpoint."""
