"""Authentication of the page: from a request's session to the person's permissions; protection against forged forms."""

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse

from broker.app.access import sessions
from broker.app.access.callers import Caller, missing_permission
from broker.app.wiring import Broker
from broker.core.access.people import Permission
from broker.core.actors import EntryPoint
from broker.core.errors import NotAllowed
from broker.server.api.callers import SignInNeeded, address_of
from broker.server.api.device_flow import form_of
from broker.server.api.limits import RequestRate, WrongTokens


class ForeignForm(NotAllowed):
    """A change that was not requested by a form of this page."""

    def __init__(self) -> None:
        super().__init__(
            "this request was not sent by a form of this page", hint="open the page again, and send its form"
        )


RENEWAL_SECONDS = 30
"""Seconds after which a browser asks for the figures of a page again."""


class Renewal(StrEnum):
    """How a page whose figures change is renewed: its parameter ``refresh``."""

    IN_PLACE = ""  # by htmx; nothing is renewed where no scripts run
    RELOAD = str(RENEWAL_SECONDS)  # by the browser, through an HTTP header; needs no scripts
    NEVER = "0"


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person signed in. ``session``: the id of their session, which is a secret. ``path``: of the requested page.
    ``recent``: they signed in by a link or at the identity provider a short time ago, so they may change people."""

    caller: Caller
    session: str
    path: str = "/"
    renewal: Renewal = Renewal.IN_PLACE
    recent: bool = False

    @property
    def form_token(self) -> str:
        """The secret token in every form of this session; other sites do not know it."""
        return hmac.new(self.session.encode(), b"form", sha256).hexdigest()

    def may(self, permission: Permission) -> bool:
        return self.caller.access.anywhere(permission)


@dataclass(frozen=True, slots=True)
class Cookie:
    """The cookie of a session. ``secure``: sent over TLS only, with a name that other hosts cannot set."""

    secure: bool

    @property
    def name(self) -> str:
        return "__Host-gpubroker" if self.secure else "gpubroker_session"

    @property
    def kind(self) -> dict[str, Any]:
        """How the browser keeps it, and other cookies of the sign-in."""
        return {"path": "/", "secure": self.secure, "httponly": True, "samesite": "lax"}

    def given(self, id: str, after: str) -> RedirectResponse:
        """The answer that begins the session with this id and continues at the path ``after``."""
        answer = RedirectResponse(after, 303)
        answer.set_cookie(self.name, id, **self.kind)
        return answer


@dataclass(frozen=True, slots=True)
class SignInState:
    """What signing in and out needs, in ``app.state.signing``. ``wrong``: wrong tokens and links by address."""

    broker: Broker
    cookie: Cookie
    wrong: WrongTokens


def sign_in_state(request: Request) -> SignInState:
    state: SignInState = request.app.state.signing
    return state


SignIn = Annotated[SignInState, Depends(sign_in_state)]


def check_same_origin(request: Request) -> None:
    """Raises `ForeignForm` for a request from another site. Browsers state the origin: newer ones in
    ``Sec-Fetch-Site``, which pages cannot forge, older ones in ``Origin``."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin", "")
    is_own = site == "same-origin" if site is not None else origin == request.app.state.transport.own_url(request)
    if not is_own or (not origin and site is None):
        raise ForeignForm


def gate(broker: Broker, cookie: Cookie, permission: Permission | None, rate: RequestRate) -> Callable[[Request], None]:
    """The check before a page: a session, and a role with ``permission`` in some team (None: any role). A request that
    changes something must come from a form of that session. ``rate``: how many requests a session may make. Raises
    `SignInNeeded`, `TooManyRequests`, `RoleMissing`, `ForeignForm`."""

    def check(request: Request) -> None:
        request.state.visitor = visitor = _authenticate(broker, cookie, request)
        request.state.caller = visitor.caller
        rate.take(visitor.caller.token)
        if request.method != "GET":
            check_same_origin(request)
            if not hmac.compare_digest(form_of(request).get("form_token", "").encode(), visitor.form_token.encode()):
                raise ForeignForm
        if permission is not None and not visitor.may(permission):
            raise missing_permission(visitor.caller.access, permission, "")

    return check


def visitor_of(request: Request) -> Visitor:
    visitor: Visitor = request.state.visitor
    return visitor


By = Annotated[Visitor, Depends(visitor_of)]
Form = Annotated[dict[str, str], Depends(form_of)]


def request_key(form: dict[str, str]) -> str:
    """The idempotency key of a form. Raises `ForeignForm`."""
    key = form.get("key", "")
    if not (key.isalnum() and key.isascii() and len(key) == 2 * _KEY_BYTES):
        raise ForeignForm
    return key


_KEY_BYTES = 16


def new_key() -> str:
    """A new idempotency key for a form, so that a form sent twice takes effect once."""
    return secrets.token_hex(_KEY_BYTES)


def _authenticate(broker: Broker, cookie: Cookie, request: Request) -> Visitor:
    id = request.cookies.get(cookie.name, "")
    renewal = next(
        (choice for choice in Renewal if choice == request.query_params.get("refresh", "")), Renewal.IN_PLACE
    )
    is_automatic = request.method == "GET" and (renewal is Renewal.RELOAD or is_scripted(request))
    entrant = sessions.resume(broker, id, used=not is_automatic) if id else None
    if entrant is None:
        raise SignInNeeded
    actor = replace(entrant.access.actor(EntryPoint.PAGE), address=address_of(request), token=entrant.token.id)
    caller = Caller(broker, entrant.access, actor, request.state.request_id)
    return Visitor(caller, id, request.url.path, renewal, sessions.is_recent(broker, entrant.token))


def is_scripted(request: Request) -> bool:
    """Whether a script sent the request, which it does only to renew figures; links of people are followed by the
    browser."""
    headers = request.headers
    return headers.get("hx-request") == "true" or headers.get("accept") == "text/event-stream"
