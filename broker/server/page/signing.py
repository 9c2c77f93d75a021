"""Signing in with an API token or a one-time link, signing out, and letting a program log in by its code."""

from collections.abc import Callable
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import RedirectResponse, Response

from broker.app.access import device_logins, sessions
from broker.app.wiring import Broker
from broker.core.access.sessions import LINK_PATH, DeviceLogin
from broker.core.actors import EntryPoint
from broker.core.errors import InvalidInput
from broker.server.api.callers import SignInNeeded, TooManyWrongTokens, address_of, authenticate_token
from broker.server.page.render import render_page
from broker.server.page.visitors import By, Form, SignIn, SignInState, check_same_origin

SIGN_IN, LINK = "/sign-in", f"{LINK_PATH}/{{secret}}"
_TOO_OFTEN = "Too many wrong tries from this address. Try again in a minute."
_REFUSAL_TEXT = "This token is not valid. It may be mistyped, expired or revoked."
_INVALID_LINK = "This link is not valid. It may be used, replaced or expired: an administrator can make another."


def sign_in_page(at: SignIn, request: Request) -> Response:
    return sign_in_form(at.broker, request.query_params.get("next", "/"))


def sign_in(at: SignIn, request: Request, form: Form) -> Response:
    """Begin a session for a valid token; the form again for an invalid one."""
    next_path, token = form.get("next", "/"), form.get("token", "").strip()
    return _begin_session(at, request, token, sessions.sign_in, next_path, _REFUSAL_TEXT)


def link_page() -> Response:
    """The button of a one-time link, valid or not: programs that look at links in messages do not use one up."""
    return render_page("link.html", None, {}, title="Sign in")


def sign_in_by_link(at: SignIn, request: Request, secret: str) -> Response:
    """Begin a session for a valid link, which it uses up. The answer is the same for one that is used, replaced,
    expired or made up."""
    return _begin_session(at, request, secret, sessions.sign_in_by_link, "/", _INVALID_LINK)


def _begin_session(
    at: SignInState, request: Request, secret: str, begin: Callable[..., str | None], next_path: str, refusal: str
) -> Response:
    """Begin a session for a valid secret, by ``begin``; the sign-in form for an invalid one, with ``refusal``."""
    check_same_origin(request)
    origin = f"{EntryPoint.PAGE} {address_of(request)}"
    try:
        id = authenticate_token(at.wrong, request, secret, lambda: begin(at.broker, secret, origin=origin))
    except SignInNeeded:
        return sign_in_form(at.broker, next_path, refusal, 401)
    except TooManyWrongTokens:
        return sign_in_form(at.broker, next_path, _TOO_OFTEN, 429)
    if earlier := request.cookies.get(at.cookie.name):
        sessions.sign_out(at.broker, earlier, origin=origin)
    return at.cookie.given(id, local_path(next_path))


def sign_out(by: By, at: SignIn, form: Form) -> Response:
    """End the session, or all sessions of the person."""
    origin, everywhere = by.caller.actor.audit_origin, form.get("everywhere") == "yes"
    sessions.sign_out(at.broker, by.session, origin=origin, everywhere=everywhere)
    answer = RedirectResponse(SIGN_IN, 303)
    answer.delete_cookie(at.cookie.name, **at.cookie.kind)
    return answer


def sign_in_form(broker: Broker, next_path: str, trouble: str = "", status: int = 200) -> Response:
    """The form for signing in, with a link to the identity provider if there is one. ``next_path``: the page to
    continue at."""
    values = {"after": local_path(next_path), "trouble": trouble, "provider": broker.settings.sign_in is not None}
    return render_page("sign_in.html", None, values, title="Sign in", status=status)


def local_path(path: str) -> str:
    """A path of this page to continue at; never an address of another site."""
    safe = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isascii() and path.isprintable()
    return path if safe else "/"


Code = Annotated[str, Query(max_length=20, description="The path with the code that the program shows.")]


def code_form(by: By, request: Request, user_code: Code = "") -> Response:
    """The form for a code. With ``user_code``: the program that shows it, and the scopes that it would get."""
    if not user_code:
        return _render_login(by, None)
    login = _waiting_login(by, request, user_code)
    return _render_login(by, login) if login else _render_login(by, None, "No program is waiting with this code.", 404)


def decide_login(by: By, request: Request, form: Form) -> Response:
    """Grant or refuse a program's login as the person signed in."""
    code, grant, actor = form.get("user_code", ""), form.get("decision") == "grant", by.caller.actor
    if _waiting_login(by, request, code) is None:
        return _render_login(by, None, "No program is waiting with this code any more.", 404)
    try:
        decided = device_logins.decide_login(by.caller.broker, code, by.caller.access, grant=grant, by=actor)
    except InvalidInput as error:
        return _render_login(by, None, f"{error.message.capitalize()}.", 409)
    return render_page("device_done.html", by, {"login": decided}, title="Program logged in" if grant else "Refused")


def _waiting_login(by: By, request: Request, code: str) -> DeviceLogin | None:
    """The login that waits. Raises `TooManyWrongTokens` after too many wrong codes of one person."""
    person, wrong_codes = by.caller.actor.identity, request.app.state.wrong_codes
    if wait := wrong_codes.wait(person, code):
        raise TooManyWrongTokens(wait)
    login = device_logins.pending_login(by.caller.broker, code)
    if login is None:
        wrong_codes.wrong(person, code)
    return login


def _render_login(by: By, login: DeviceLogin | None, trouble: str = "", status: int = 200) -> Response:
    scopes = sorted(device_logins.grantable_scopes(login, by.caller.access)) if login else []
    values = {"login": login, "scopes": scopes, "trouble": trouble}
    return render_page("device.html", by, values, title="Log a program in", status=status)
