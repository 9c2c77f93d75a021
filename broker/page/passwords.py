"""Signing in with a password, choosing one by an invitation, and changing it."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from broker.app.access import passwords
from broker.app.access.second_factors import second_factor
from broker.app.wiring import Broker
from broker.core.actors import EntryPoint
from broker.core.errors import InvalidInput
from broker.page.drawing import drawn, shown_error
from broker.page.signing import SIGN_IN, TOO_OFTEN, inside, sign_in_form
from broker.page.visitors import By, Cookie, Form, from_here
from broker.server.callers import address_of
from broker.server.forms import form_of
from broker.server.wrong_tokens import WrongTokens

WITH_PASSWORD, INVITATION, CHANGE = f"{SIGN_IN}/password", "/invitation/{secret}", "/me/password"
_MOST_CODE = 40  # characters


def signing_in(broker: Broker, cookie: Cookie, wrong: WrongTokens) -> Callable[[Request], Response]:
    """The endpoint of the form with name and password. Tries are limited by person in the store, and by address here.
    Behind a proxy all people share an address, so a person who signed in from it lately is not locked out by the
    guesses of others."""

    def sign_in(request: Request) -> Response:
        from_here(request)
        form, address = form_of(request), address_of(request)
        name, password = form.get("name", "").strip()[:64], form.get("password", "")
        after = form.get("next", "/")
        if wrong.wait(address, name):
            return sign_in_form(broker, after, TOO_OFTEN, 429)
        try:
            code = form.get("code", "").strip()[:_MOST_CODE]
            id = passwords.sign_in(broker, name, password, code, origin=f"{EntryPoint.PAGE} {address}")
        except passwords.WrongPassword as error:
            wrong.wrong(address, name)
            return sign_in_form(broker, after, shown_error(error), 401)
        wrong.right(name)
        return cookie.given(id, inside(after))

    return sign_in


def invited(broker: Broker) -> Callable[[str], Response]:
    """The endpoint that shows the form of an invitation."""

    def ask(secret: str) -> Response:
        return _form(broker, secret)

    return ask


def accepting(broker: Broker, cookie: Cookie) -> Callable[[str, Request], Response]:
    """The endpoint of that form: stores the chosen password and signs the person in."""

    def accept(secret: str, request: Request) -> Response:
        from_here(request)
        form, origin = form_of(request), f"{EntryPoint.PAGE} {address_of(request)}"
        try:
            if form.get("password", "") != form.get("again", ""):
                raise InvalidInput("the two passwords differ")
            name = passwords.accept(broker, secret, form.get("password", ""), origin=origin)
        except InvalidInput as error:
            return _form(broker, secret, shown_error(error), 422)
        if second_factor(broker, name) is not None:  # whoever else reads the link lacks the second factor
            return RedirectResponse(SIGN_IN, 303)
        return cookie.given(passwords.sign_in(broker, name, form["password"], origin=origin), "/")

    return accept


def changing(broker: Broker, cookie: Cookie) -> Callable[[By, Form], Response]:
    """The endpoint that changes one's own password, which ends all sessions but the new one."""

    def change(by: By, form: Form) -> Response:
        if form.get("password", "") != form.get("again", ""):
            raise InvalidInput("the two passwords differ", hint="go back, and type both again")
        name, code = by.caller.access.person.name, form.get("code", "").strip()[:_MOST_CODE]
        old, new = form.get("old", ""), form.get("password", "")
        return cookie.given(passwords.change(broker, name, old, new, code, origin=by.caller.origin), "/me")

    return change


def _form(broker: Broker, secret: str, trouble: str = "", status: int = 200) -> Response:
    found = passwords.invited(broker, secret)
    values = {"person": found.person if found else None, "trouble": trouble}
    return drawn("invitation.html", None, values, title="Invitation", status=status if found else 404)
