"""People changed by administrators, who type their password for each change: neither a stolen session nor a stolen
token must make anybody an administrator. An administrator without a password changes people on the server. OWASP ASVS
5.0: 7.5.1."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from broker.app.access import passwords, people, second_factors, tokens
from broker.app.results.access import CreatedInvitation, PersonResult, TokenList
from broker.core.access.people import ROLES, TeamRole
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
    try:
        _may_change(by, request, form)
        said = _changed(by, request, name, form)
    except (InvalidInput, NotConfirmed) as error:
        return _drawn(by, name, trouble=shown_error(error), status=422 if isinstance(error, InvalidInput) else 403)
    return _drawn(by, name, said=said) if said else RedirectResponse(f"{AT}/{name}", 303)


def _changed(by: Visitor, request: Request, name: str, form: Mapping[str, str]) -> str:
    """Make the change; returns the link of an invitation, or an empty text."""
    broker, actor, change = by.caller.broker, by.caller.actor, form.get("change", "")
    team = form.get("team", "").strip() or None
    match change:
        case "grant":
            people.give_role(broker, name, _role(form), team, by=actor)
        case "withdraw":
            role = _role(form)
            only = role if isinstance(role, Role) and team is None else None
            if only is None and team is None:
                raise InvalidInput("a role in a team is taken by naming the team")
            people.take_role(broker, name, only, team, by=actor)
        case "disable":
            people.disable(broker, name, by=actor)
        case "enable":
            people.enable(broker, name, by=actor)
        case "invite":
            base = request.app.state.transport.own_url(request.headers.get("host", ""))
            return CreatedInvitation.told(passwords.invite(broker, name, by=actor), base).link
        case "revoke":
            if (id := form.get("token", "")) not in {one.id for one in tokens.tokens(broker, name)}:
                raise InvalidInput(f"{name} has no such token", hint="choose one of the list")
            tokens.revoke(broker, id, by=actor)
        case _:
            raise UnknownName("change", change[:_MOST_ROLE], ())
    return ""


def _role(form: Mapping[str, str]) -> Role | TeamRole:
    name = form.get("role", "")[:_MOST_ROLE]
    if name not in ROLES:
        raise InvalidInput(f"{name!r} is no role", hint=f"one of {', '.join(ROLES)}")
    return ROLES[name]


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
        "roles": list(ROLES),
        "invites": broker.settings.sign_in is None and not found.service,
        "may_change": passwords.has_password(broker, by.caller.access.person.name),
        "asks_code": second_factors.second_factor(broker, by.caller.access.person.name) is not None,
        "trouble": trouble,
        "link": said,
    }
    return drawn("person.html", by, values, title=name, at=AT, status=status)
