"""People changed by administrators, who type their password for each change: neither a stolen session nor a stolen
token must make anybody an administrator. An administrator without a password changes people on the server. OWASP ASVS
5.0: 7.5.1."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from broker.app.access import passwords, people, second_factors, tokens
from broker.app.results.access import PersonResult, TokenList
from broker.core.access.people import TeamRole
from broker.core.actors import Role
from broker.core.errors import InvalidInput, NotAllowed, UnknownName
from broker.page.drawing import drawn, shown_error
from broker.page.visitors import By, Form, Visitor
from broker.server.callers import TooManyWrongTokens

AT = "/people"
_MOST_ROLE = 64  # characters of a role's or team's name


class NotConfirmed(NotAllowed):
    """A change without the password of the person who makes it."""

    def __init__(self) -> None:
        super().__init__("password or code is wrong, or several were", hint="nothing was changed")


def person(by: By, name: str) -> Response:
    """A person with roles and tokens, and the form that changes them. For administrators."""
    return _drawn(by, name)


def adding(by: By, request: Request, form: Form) -> Response:
    """Add a person without a role."""
    name = form.get("name", "").strip()
    _may_change(by, request, form)
    people.add(by.caller.broker, name, by=by.caller.actor, service=form.get("service") == "yes")
    return RedirectResponse(f"{AT}/{name}", 303)


def changing(by: By, request: Request, name: str, form: Form) -> Response:
    """Make the change of the pressed button to a person."""
    change = _CHANGES.get(form.get("change", ""))
    if change is None:
        raise UnknownName("change", form.get("change", "")[:_MOST_ROLE], list(_CHANGES))
    try:
        _may_change(by, request, form)
        said = change(by, request, name, form)
    except (InvalidInput, NotConfirmed) as error:
        return _drawn(by, name, trouble=shown_error(error), status=422 if isinstance(error, InvalidInput) else 403)
    return _drawn(by, name, said=said) if said else RedirectResponse(f"{AT}/{name}", 303)


def _grant(by: Visitor, request: Request, name: str, form: Mapping[str, str]) -> str:
    role, team = _role(form), form.get("team", "").strip() or None
    people.give_role(by.caller.broker, name, role, team, by=by.caller.actor)
    return ""


def _withdraw(by: Visitor, request: Request, name: str, form: Mapping[str, str]) -> str:
    role, team = _role(form), form.get("team", "").strip() or None
    only = role if isinstance(role, Role) else None
    if only is None and team is None:
        raise InvalidInput("a role in a team is taken by naming the team")
    people.take_role(by.caller.broker, name, None if team else only, team, by=by.caller.actor)
    return ""


def _disable(by: Visitor, request: Request, name: str, form: Mapping[str, str]) -> str:
    people.disable(by.caller.broker, name, by=by.caller.actor)
    return ""


def _enable(by: Visitor, request: Request, name: str, form: Mapping[str, str]) -> str:
    people.enable(by.caller.broker, name, by=by.caller.actor)
    return ""


def _invite(by: Visitor, request: Request, name: str, form: Mapping[str, str]) -> str:
    new = passwords.invite(by.caller.broker, name, by=by.caller.actor)
    base = request.app.state.transport.own_url(request.headers.get("host", ""))
    return f"{base}/invitation/{new.secret}"


def _revoke(by: Visitor, request: Request, name: str, form: Mapping[str, str]) -> str:
    id, broker = form.get("token", ""), by.caller.broker
    if id not in {one.id for one in tokens.tokens(broker, name)}:
        raise InvalidInput(f"{name} has no such token", hint="choose one of the list")
    tokens.revoke(broker, id, by=by.caller.actor)
    return ""


_CHANGES: Mapping[str, Callable[[Visitor, Request, str, Mapping[str, str]], str]] = {
    "grant": _grant,
    "withdraw": _withdraw,
    "disable": _disable,
    "enable": _enable,
    "invite": _invite,
    "revoke": _revoke,
}
"""The change of each button, by its name; returns the link of an invitation, or an empty text."""


def _role(form: Mapping[str, str]) -> Role | TeamRole:
    name = form.get("role", "")[:_MOST_ROLE]
    known: list[Role | TeamRole] = [*TeamRole, *Role]
    for one in known:
        if one.value == name:
            return one
    raise InvalidInput(f"{name!r} is no role", hint=f"one of {', '.join(known)}")


def _may_change(by: Visitor, request: Request, form: Mapping[str, str]) -> None:
    """Raises as `confirmed`, and `NotAllowed` for an administrator who has to set up a second factor first."""
    if second_factors.has_to_set_up(by.caller.broker, by.caller.access.person):
        raise NotAllowed("you may only look until you have set up a second factor", hint="your own page, /me")
    confirmed(by, request, form, form.get("code", ""))


def confirmed(by: Visitor, request: Request, form: Mapping[str, str], code: str | None = None) -> None:
    """Check the visitor's password in ``again``, and the ``code`` of their second factor if they have one. Raises
    `NotConfirmed`, and `TooManyWrongTokens` after too many wrong passwords from one session."""
    name, text, broker = by.caller.access.person.name, form.get("again", ""), by.caller.broker
    wrong = request.app.state.wrong_again
    if wait := wrong.wait(name, text):
        raise TooManyWrongTokens(wait)
    try:
        passwords.confirm(broker, name, text, code, origin=by.caller.origin)
    except passwords.WrongPassword:
        wrong.wrong(name, text)
        raise NotConfirmed from None


def _drawn(by: Visitor, name: str, *, trouble: str = "", said: str = "", status: int = 200) -> Response:
    broker = by.caller.broker
    found = next((one for one in people.people(broker) if one.name == name), None)
    if found is None:
        raise UnknownName("person", name, ())
    values = {
        "person": PersonResult.of(found),
        "tokens": TokenList.of(tokens.tokens(broker, name), broker.clock.now()).tokens,
        "roles": [one.value for one in (*TeamRole, *Role)],
        "invites": broker.settings.sign_in is None and not found.service,
        "may_change": passwords.has_password(broker, by.caller.access.person.name),
        "asks_code": second_factors.second_factor(broker, by.caller.access.person.name) is not None,
        "trouble": trouble,
        "link": said,
    }
    return drawn("person.html", by, values, title=name, at=AT, status=status)
