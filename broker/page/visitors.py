"""Who looks at the page: from the session of a request to what its person may; and whether a form is our own."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends, Request

from broker.app.access import sessions
from broker.app.wiring import Broker
from broker.core.access.permissions import Permission
from broker.core.actors import EntryPoint
from broker.core.errors import InvalidInput, NotAllowed
from broker.server.callers import Caller, SignInNeeded, address_of, refused

_MOST_FIELDS = 50


class ForeignForm(NotAllowed):
    """A request that changes something and does not come from a form of this page."""

    def __init__(self) -> None:
        super().__init__("this did not come from a form of this page", hint="open the page again, and send its form")


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who has signed in. ``session``: the id of their session, which nobody else may learn."""

    caller: Caller
    session: str

    @property
    def form_token(self) -> str:
        """What forms of this session carry, so that no other site can make one."""
        return hmac.new(self.session.encode(), b"form", sha256).hexdigest()

    def may(self, permission: Permission) -> bool:
        """Whether there is anything that they may do that with."""
        return self.caller.access.anywhere(permission)


@dataclass(frozen=True, slots=True)
class Cookie:
    """The cookie of a session. ``secure``: only over TLS; then its name keeps other hosts from setting it."""

    secure: bool

    @property
    def name(self) -> str:
        return "__Host-gpubroker" if self.secure else "gpubroker_session"


async def read_form(request: Request) -> None:
    """Put the fields of a form on ``request.state.form``: each once, the last of several. Raises `InvalidInput`."""
    try:
        text = (await request.body()).decode()
        found = parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError as error:
        raise InvalidInput("not a form", hint="open the page again, and send its form") from error
    request.state.form = dict(found)


def form_of(request: Request) -> dict[str, str]:
    """The fields that `read_form` found."""
    form: dict[str, str] = request.state.form
    return form


def from_here(request: Request) -> None:
    """Raises `ForeignForm` for a request that another site made. Each browser says where it comes from: newer ones in
    ``Sec-Fetch-Site``, which no page can forge, older ones in ``Origin``."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin", "")
    ours = site == "same-origin" if site is not None else urlsplit(origin).netloc == request.headers.get("host")
    if not ours or (not origin and site is None):
        raise ForeignForm


def gate(broker: Broker, cookie: Cookie, permission: Permission | None) -> Callable[[Request], None]:
    """What stands before a page: a session, and a role that allows ``permission`` somewhere (None: any). What changes
    something comes from a form of that session. Raises `SignInNeeded`, `RoleMissing`, `ForeignForm`."""

    def check(request: Request) -> None:
        request.state.visitor = visitor = _entered(broker, cookie, request)
        if request.method != "GET":
            from_here(request)
            if not hmac.compare_digest(form_of(request).get("form_token", "").encode(), visitor.form_token.encode()):
                raise ForeignForm
        if permission is not None and not visitor.may(permission):
            raise refused(visitor.caller.access, permission, "")

    return check


def visitor_of(request: Request) -> Visitor:
    """The visitor whom the gate let in."""
    visitor: Visitor = request.state.visitor
    return visitor


By = Annotated[Visitor, Depends(visitor_of)]
Form = Annotated[dict[str, str], Depends(form_of)]


def request_key(form: dict[str, str]) -> str:
    """The idempotency key that a form was made with. Raises `ForeignForm`."""
    key = form.get("key", "")
    if not (key.isalnum() and key.isascii() and len(key) == 2 * _KEY_BYTES):
        raise ForeignForm
    return key


_KEY_BYTES = 16


def new_key() -> str:
    """A key for a form: sent twice, what it asks for is done once."""
    return secrets.token_hex(_KEY_BYTES)


def _entered(broker: Broker, cookie: Cookie, request: Request) -> Visitor:
    id = request.cookies.get(cookie.name, "")
    entrant = sessions.resume(broker, id) if id else None
    if entrant is None:
        raise SignInNeeded
    at = request.state.request_id
    caller = Caller(broker, entrant.access, entrant.token.id, address_of(request), at, EntryPoint.PAGE)
    return Visitor(caller, id)
