"""Signing in with an API token, and signing out."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from broker.app.access import sessions
from broker.app.wiring import Broker
from broker.core.actors import EntryPoint
from broker.page.drawing import drawn
from broker.page.visitors import At, By, Form, from_here
from broker.server.callers import SignInNeeded, TooManyWrongTokens, address_of, admitted

SIGN_IN = "/sign-in"
TOO_OFTEN = "Too many wrong tries from this address. Try again in a minute."
_NOBODY = "This token is not valid. It may be mistyped, expired or revoked."


def asking(at: At, request: Request) -> Response:
    """The sign-in form."""
    return sign_in_form(at.broker, request.query_params.get("next", "/"))


def signing_in(at: At, request: Request, form: Form) -> Response:
    """Begin a session for a valid token; the form again for an invalid one."""
    from_here(request)
    after, token = form.get("next", "/"), form.get("token", "").strip()
    origin = f"{EntryPoint.PAGE} {address_of(request)}"
    try:
        id = admitted(at.wrong, request, token, lambda: sessions.sign_in(at.broker, token, origin=origin))
    except SignInNeeded:
        return sign_in_form(at.broker, after, _NOBODY, 401)
    except TooManyWrongTokens:
        return sign_in_form(at.broker, after, TOO_OFTEN, 429)
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
