"""Account, people with roles and tokens, the audit log, and health of the service."""

from collections.abc import Mapping

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from broker.app.access import people, sessions, tokens
from broker.app.access.documents import CreatedLink
from broker.app.market.polling import price_status
from broker.app.service.health import Pulses
from broker.app.use_cases import people as use_cases
from broker.core.access.people import ROLES, TeamRole
from broker.core.actors import Role
from broker.core.errors import InvalidInput, NotAllowed, UnknownName
from broker.server.page.csv_files import AsCsv, csv_file
from broker.server.page.render import error_sentence, render_page
from broker.server.page.visitors import By, Form, Visitor

_AUDIT_LINES = 100  # of the audit log


def me(by: By) -> Response:
    """The person signed in, their permissions, and the form that ends all their sessions."""
    identity = use_cases.me(by.caller)
    return render_page("me.html", by, {"me": identity}, title=identity.person.name, at="/me")


def people_and_tokens(by: By, csv: AsCsv = False) -> Response:
    """People with roles and tokens, and the audit log. For administrators."""
    broker = by.caller.broker
    listed_people = use_cases.list_people(by.caller).people
    if csv:
        return csv_file("people", "name service in_words added_at disabled_at", listed_people)
    values = {
        "groups": broker.settings.sign_in.groups if broker.settings.sign_in else {},
        "provider": broker.settings.sign_in is not None,
        "people": listed_people,
        "tokens": use_cases.list_tokens(by.caller).tokens,
        "audit": use_cases.audit_lines(by.caller, limit=_AUDIT_LINES),
    }
    return render_page("people.html", by, values, title="People and tokens", at="/people")


def health(by: By, request: Request) -> Response:
    """The state of this process's periodic duties, and the age of each provider's prices."""
    pulses: Pulses = request.app.state.health
    values = {
        "duties": pulses.pulses(),
        "silent": {name: pulses.silent_for(name) for name in pulses.pulses()},
        "ill": pulses.ill(),
        "providers": price_status(by.caller.broker).providers,
    }
    return render_page("health.html", by, values, title="Health", at="/health")


PEOPLE_PATH = "/people"
_MAX_ROLE_LENGTH = 64  # characters of a role's or team's name


def person(by: By, name: str) -> Response:
    """A person with roles and tokens, and the form that changes them. For administrators."""
    return _render_person(by, name)


def add_person(by: By, form: Form) -> Response:
    """Add a person without a role."""
    name = form.get("name", "").strip()
    _check_recent(by)
    people.add(by.caller.broker, name, by=by.caller.actor, service=form.get("service") == "yes")
    return RedirectResponse(f"{PEOPLE_PATH}/{name}", 303)


def change_person(by: By, request: Request, name: str, form: Form) -> Response:
    _check_recent(by)
    try:
        link = _apply_change(by, request, name, form)
    except InvalidInput as error:
        return _render_person(by, name, trouble=error_sentence(error), status=422)
    return _render_person(by, name, link=link) if link else RedirectResponse(f"{PEOPLE_PATH}/{name}", 303)


def _apply_change(by: Visitor, request: Request, name: str, form: Mapping[str, str]) -> str:
    """Make the change; returns a sign-in link, or an empty text."""
    broker, actor, change = by.caller.broker, by.caller.actor, form.get("change", "")
    team = form.get("team", "").strip() or None
    match change:
        case "grant":
            people.give_role(broker, name, _role(form), team, by=actor)
        case "withdraw":
            role = _role(form)
            everywhere_role = role if isinstance(role, Role) and team is None else None
            if everywhere_role is None and team is None:
                raise InvalidInput("to withdraw a team role, name the team")
            people.take_role(broker, name, everywhere_role, team, by=actor)
        case "disable":
            people.disable(broker, name, by=actor)
        case "enable":
            people.enable(broker, name, by=actor)
        case "invite":
            base = request.app.state.transport.own_url(request)
            return CreatedLink.of(sessions.invite(broker, name, by=actor), base).link
        case "revoke":
            if (id := form.get("token", "")) not in {token.id for token in tokens.tokens(broker, name)}:
                raise InvalidInput(f"{name} has no such token", hint="choose one of the list")
            tokens.revoke(broker, id, by=actor)
        case _:
            raise UnknownName("change", change[:_MAX_ROLE_LENGTH], ())
    return ""


def _role(form: Mapping[str, str]) -> Role | TeamRole:
    name = form.get("role", "")[:_MAX_ROLE_LENGTH]
    if name not in ROLES:
        raise InvalidInput(f"{name!r} is not a role", hint=f"one of {', '.join(ROLES)}")
    return ROLES[name]


def _check_recent(by: Visitor) -> None:
    """Raises `NotAllowed` unless the visitor signed in a short time ago, by a link or at the identity provider."""
    if not by.recent:
        raise NotAllowed(
            "changing people needs a sign-in of the last 30 minutes, by a link or at the identity provider",
            hint="sign in again; a token does not suffice",
        )


def _render_person(by: Visitor, name: str, *, trouble: str = "", link: str = "", status: int = 200) -> Response:
    broker = by.caller.broker
    match = next((known for known in use_cases.list_people(by.caller).people if known.name == name), None)
    if match is None:
        raise UnknownName("person", name, ())
    values = {
        "person": match,
        "tokens": use_cases.list_tokens(by.caller, name).tokens,
        "roles": list(ROLES),
        "provider": broker.settings.sign_in is not None,
        "trouble": trouble,
        "link": link,
    }
    return render_page("person.html", by, values, title=name, at=PEOPLE_PATH, status=status)
