"""Account, administration (people, tokens, audit log), and health of the service."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import Response

from broker.app.access import audit, people, tokens
from broker.app.market.polling import statuses
from broker.app.results.access import AuditLog, CallerIdentity, PeopleList, TokenList
from broker.app.results.prices import PolledProvider
from broker.app.service.health import Pulses
from broker.page.drawing import drawn
from broker.page.visitors import By

_LINES = 100  # of the audit log


def me(by: By) -> Response:
    """The person signed in, their permissions, and the form that ends all their sessions."""
    found = CallerIdentity.of(by.caller.access)
    return drawn("me.html", by, {"me": found}, title=found.person.name, at="/me")


def people_and_tokens(by: By) -> Response:
    """People with roles and tokens, and the audit log. For administrators."""
    broker = by.caller.broker
    values = {
        "groups": broker.settings.sign_in.groups if broker.settings.sign_in else {},
        "provider": broker.settings.sign_in is not None,
        "people": PeopleList.of(people.people(broker)).people,
        "tokens": TokenList.of(tokens.tokens(broker), broker.clock.now()).tokens,
        "audit": AuditLog.of(audit.audit_log(broker, by=by.caller.actor, limit=_LINES)),
    }
    return drawn("people.html", by, values, title="People and tokens", at="/people")


def health(by: By, request: Request) -> Response:
    """The state of this process's periodic duties, and the age of each provider's prices."""
    pulses: Pulses = request.app.state.health
    broker = by.caller.broker
    now = broker.clock.now()
    values = {
        "duties": pulses.pulses(),
        "silent": {name: pulses.silent_for(name) for name in pulses.pulses()},
        "ill": pulses.ill(),
        "providers": [PolledProvider.of(one, now) for one in statuses(broker, now) if one.last is not None],
    }
    return drawn("health.html", by, values, title="Health", at="/health")
