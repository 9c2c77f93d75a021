"""The page where a person lets a program log in by its code."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import Response

from broker.app.access import device_logins
from broker.core.access.sessions import DeviceLogin
from broker.core.errors import InvalidInput
from broker.page.drawing import drawn
from broker.page.visitors import By, Form
from broker.server.callers import TooManyWrongTokens

Code = Annotated[str, Query(max_length=20, description="The path with the code that the program shows.")]


def asking(by: By, request: Request, user_code: Code = "") -> Response:
    """The form for a code. With ``user_code``: the program that waits with it, and the scopes that it would get."""
    if not user_code:
        return _drawn(by, None)
    found = _found(by, request, user_code)
    return _drawn(by, found) if found else _drawn(by, None, "No program waits with this code.", 404)


def deciding(by: By, request: Request, form: Form) -> Response:
    """Grant or refuse a program's login as the person signed in."""
    code, grant = form.get("user_code", ""), form.get("decision") == "grant"
    if _found(by, request, code) is None:
        return _drawn(by, None, "No program waits with this code any more.", 404)
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
