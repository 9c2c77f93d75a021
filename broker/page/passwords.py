"""Signing in with a password, choosing one by an invitation, and changing it."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from broker.app.access import passwords
from broker.app.access.second_factors import second_factor
from broker.app.wiring import Broker
from broker.core.actors import EntryPoint
from broker.core.errors import InvalidInput
from broker.page.drawing import drawn, shown_error
from broker.page.signing import SIGN_IN, TOO_OFTEN, inside, sign_in_form
from broker.page.visitors import At, By, Form, from_here
from broker.server.callers import address_of

WITH_PASSWORD, INVITATION = f"{SIGN_IN}/password", "/invitation/{secret}"
_MOST_CODE = 40  # characters


def signing_in(at: At, request: Request, form: Form) -> Response:
    """Begin a session for a name with its password. Tries are limited by person in the store, and by address here.
    Behind a proxy all people share an address, so a person who signed in from it lately is not locked out by the
    guesses of others."""
    from_here(request)
    address, after = address_of(request), form.get("next", "/")
    name, password = form.get("name", "").strip()[:64], form.get("password", "")
    if at.guesses.wait(address, name):
        return sign_in_form(at.broker, after, TOO_OFTEN, 429)
    try:
        origin = f"{EntryPoint.PAGE} {address}"
        id = passwords.sign_in(at.broker, name, password, _code(form), origin=origin)
    except passwords.WrongPassword as error:
        at.guesses.wrong(address, name)
        return sign_in_form(at.broker, after, shown_error(error), 401)
    at.guesses.right(name)
    return at.cookie.given(id, inside(after))


def invited(at: At, secret: str) -> Response:
    """The form of an invitation."""
    return _form(at.broker, secret)


def accepting(at: At, secret: str, request: Request, form: Form) -> Response:
    """Store the chosen password, and sign the person in."""
    from_here(request)
    origin = f"{EntryPoint.PAGE} {address_of(request)}"
    try:
        if form.get("password", "") != form.get("again", ""):
            raise InvalidInput("the two passwords differ")
        name = passwords.accept(at.broker, secret, form.get("password", ""), origin=origin)
    except InvalidInput as error:
        return _form(at.broker, secret, shown_error(error), 422)
    if second_factor(at.broker, name) is not None:  # whoever else reads the link lacks the second factor
        return RedirectResponse(SIGN_IN, 303)
    return at.cookie.given(passwords.sign_in(at.broker, name, form["password"], origin=origin), "/")


def changing(by: By, at: At, form: Form) -> Response:
    """Change one's own password, which ends all sessions but the new one."""
    if form.get("password", "") != form.get("again", ""):
        raise InvalidInput("the two passwords differ", hint="go back, and type both again")
    name, old, new = by.caller.access.person.name, form.get("old", ""), form.get("password", "")
    id = passwords.change(at.broker, name, old, new, _code(form), origin=by.caller.origin)
    return at.cookie.given(id, "/me")


def _code(form: Mapping[str, str]) -> str:
    return form.get("code", "").strip()[:_MOST_CODE]


def _form(broker: Broker, secret: str, trouble: str = "", status: int = 200) -> Response:
    found = passwords.invited(broker, secret)
    values = {"person": found.person if found else None, "trouble": trouble}
    return drawn("invitation.html", None, values, title="Invitation", status=status if found else 404)
