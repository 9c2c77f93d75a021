"""Signing in with an API token or a one-time link, and signing out."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from broker.app.access import sessions
from broker.app.wiring import Broker
from broker.core.access.sessions import LINK_PATH
from broker.core.actors import EntryPoint
from broker.page.drawing import drawn
from broker.page.visitors import At, By, Form, SignInState, from_here
from broker.server.callers import SignInNeeded, TooManyWrongTokens, address_of, admitted

SIGN_IN, LINK = "/sign-in", f"{LINK_PATH}/{{secret}}"
_TOO_OFTEN = "Too many wrong tries from this address. Try again in a minute."
_NOBODY = "This token is not valid. It may be mistyped, expired or revoked."
_NO_LINK = "This link is not valid. It may be used, replaced or expired: an administrator can make another."


def asking(at: At, request: Request) -> Response:
    """The sign-in form."""
    return sign_in_form(at.broker, request.query_params.get("next", "/"))


def signing_in(at: At, request: Request, form: Form) -> Response:
    """Begin a session for a valid token; the form again for an invalid one."""
    after, token = form.get("next", "/"), form.get("token", "").strip()
    return _entering(at, request, token, sessions.sign_in, after, _NOBODY)


def link_asking() -> Response:
    """The button of a one-time link, valid or not: programs that look at links in messages do not use one up."""
    return drawn("link.html", None, {}, title="Sign in")


def link_signing_in(at: At, request: Request, secret: str) -> Response:
    """Begin a session for a valid link, which it uses up. The answer is the same for one that is used, replaced,
    expired or made up."""
    return _entering(at, request, secret, sessions.sign_in_by_link, "/", _NO_LINK)


def _entering(
    at: SignInState, request: Request, secret: str, begin: Callable[..., str | None], after: str, refusal: str
) -> Response:
    """Begin a session for a valid secret, by ``begin``; the sign-in form for an invalid one, with ``refusal``."""
    from_here(request)
    origin = f"{EntryPoint.PAGE} {address_of(request)}"
    try:
        id = admitted(at.wrong, request, secret, lambda: begin(at.broker, secret, origin=origin))
    except SignInNeeded:
        return sign_in_form(at.broker, after, refusal, 401)
    except TooManyWrongTokens:
        return sign_in_form(at.broker, after, _TOO_OFTEN, 429)
    if earlier := request.cookies.get(at.cookie.name):
        sessions.sign_out(at.broker, earlier, origin=origin)
    return at.cookie.given(id, inside(after))


def signing_out(by: By, at: At, form: Form) -> Response:
    """End the session, or all sessions of the person."""
    sessions.sign_out(at.broker, by.session, origin=by.caller.origin, everywhere=form.get("everywhere") == "yes")
    answer = RedirectResponse(SIGN_IN, 303)
    answer.delete_cookie(at.cookie.name, **at.cookie.kind)
    return answer


def sign_in_form(broker: Broker, after: str, trouble: str = "", status: int = 200) -> Response:
    """The form for signing in, with a link to the identity provider if there is one. ``after``: the page to continue
    at."""
    values = {"after": inside(after), "trouble": trouble, "provider": broker.settings.sign_in is not None}
    return drawn("sign_in.html", None, values, title="Sign in", status=status)


def inside(path: str) -> str:
    """A path of this page to continue at; never an address of another site."""
    safe = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isascii() and path.isprintable()
    return path if safe else "/"
