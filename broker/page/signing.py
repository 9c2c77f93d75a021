"""Signing in with an API token, and signing out."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from broker.app.access import sessions
from broker.app.wiring import Broker
from broker.core.actors import EntryPoint
from broker.page.drawing import drawn
from broker.page.visitors import By, Cookie, Form, from_here
from broker.server.callers import SignInNeeded, TooManyWrongTokens, address_of, admitted
from broker.server.forms import form_of
from broker.server.wrong_tokens import WrongTokens

SIGN_IN = "/sign-in"
TOO_OFTEN = "Too many wrong tries from this address. Try again in a minute."
_NOBODY = "This token is not valid. It may be mistyped, expired or revoked."


def asking(broker: Broker) -> Callable[[Request], Response]:
    """The endpoint that shows the sign-in form."""

    def ask(request: Request) -> Response:
        return sign_in_form(broker, request.query_params.get("next", "/"))

    return ask


def signing_in(broker: Broker, cookie: Cookie, wrong: WrongTokens) -> Callable[[Request], Response]:
    """The endpoint of the sign-in form: a new session for a valid token, the form again for an invalid one."""

    def sign_in(request: Request) -> Response:
        from_here(request)
        form = form_of(request)
        after = form.get("next", "/")
        token, origin = form.get("token", "").strip(), f"{EntryPoint.PAGE} {address_of(request)}"
        try:
            id = admitted(wrong, request, token, lambda: sessions.sign_in(broker, token, origin=origin))
        except SignInNeeded:
            return sign_in_form(broker, after, _NOBODY, 401)
        except TooManyWrongTokens:
            return sign_in_form(broker, after, TOO_OFTEN, 429)
        if earlier := request.cookies.get(cookie.name):
            sessions.sign_out(broker, earlier, origin=origin)
        return cookie.given(id, inside(after))

    return sign_in


def signing_out(broker: Broker, cookie: Cookie) -> Callable[[By, Form], Response]:
    """The endpoint that ends a session, or all sessions of the person."""

    def sign_out(by: By, form: Form) -> Response:
        sessions.sign_out(broker, by.session, origin=by.caller.origin, everywhere=form.get("everywhere") == "yes")
        answer = RedirectResponse(SIGN_IN, 303)
        answer.delete_cookie(cookie.name, **cookie.kind)
        return answer

    return sign_out


def sign_in_form(broker: Broker, after: str, trouble: str = "", status: int = 200) -> Response:
    """The form for signing in, with a link to the identity provider if there is one. ``after``: the page to continue
    at."""
    values = {"after": inside(after), "trouble": trouble, "provider": broker.settings.sign_in is not None}
    return drawn("sign_in.html", None, values, title="Sign in", status=status)


def inside(path: str) -> str:
    """A path of this page to continue at; never an address of another site."""
    safe = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isascii() and path.isprintable()
    return path if safe else "/"
