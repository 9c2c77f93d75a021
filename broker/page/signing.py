"""Signing in with an API token or a one-time link, signing out, and letting a program log in by its code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import RedirectResponse, Response

from broker.app.access import device_logins, sessions
from broker.app.wiring import Broker
from broker.core.access.sessions import LINK_PATH, DeviceLogin
from broker.core.actors import EntryPoint
from broker.core.errors import InvalidInput
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


Code = Annotated[str, Query(max_length=20, description="The path with the code that the program shows.")]


def asking_code(by: By, request: Request, user_code: Code = "") -> Response:
    """The form for a code. With ``user_code``: the program that shows it, and the scopes that it would get."""
    if not user_code:
        return _drawn(by, None)
    found = _found(by, request, user_code)
    return _drawn(by, found) if found else _drawn(by, None, "No program is waiting with this code.", 404)


def deciding_code(by: By, request: Request, form: Form) -> Response:
    """Grant or refuse a program's login as the person signed in."""
    code, grant = form.get("user_code", ""), form.get("decision") == "grant"
    if _found(by, request, code) is None:
        return _drawn(by, None, "No program is waiting with this code any more.", 404)
    try:
        decided = device_logins.decide(
            by.caller.broker, code, by.caller.access, grant=grant, by=by.caller.actor, origin=by.caller.origin
        )
    except InvalidInput as error:
        return _drawn(by, None, f"{error.message.capitalize()}.", 409)
    return drawn("device_done.html", by, {"login": decided}, title="Program logged in" if grant else "Refused")


def _found(by: By, request: Request, code: str) -> DeviceLogin | None:
    """The login that waits. Raises `TooManyWrongTokens` after too many wrong codes of one person."""
    person, wrong = by.caller.actor.identity, request.app.state.wrong_codes
    if wait := wrong.wait(person, code):
        raise TooManyWrongTokens(wait)
    found = device_logins.pending(by.caller.broker, code)
    if found is None:
        wrong.wrong(person, code)
    return found


def _drawn(by: By, login: DeviceLogin | None, trouble: str = "", status: int = 200) -> Response:
    scopes = sorted(device_logins.offered(login, by.caller.access)) if login else []
    values = {"login": login, "scopes": scopes, "trouble": trouble}
    return drawn("device.html", by, values, title="Log a program in", status=status)
