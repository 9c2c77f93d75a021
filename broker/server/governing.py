"""The read-only routes of policies, people, tokens and the audit log."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from fastapi.responses import Response

from broker.app.access.audit import audit_log
from broker.app.access.people import people
from broker.app.access.tokens import tokens
from broker.app.policy import active
from broker.app.results.access import AuditLog, PeopleList, TokenList
from broker.server import shown_policies
from broker.server.looking import By, answer

Name = Annotated[str | None, Query(max_length=200)]


def policy_in_force(
    by: By, files: Annotated[bool, Query(description="Also the texts of the files, for those who see all.")] = False
) -> Response:
    """The active policy: its rules with file and line; in a team, the rules that name no other team."""
    return answer(shown_policies.in_force(by, files=files))


def policy_versions(by: By) -> Response:
    """Every version of the policy: when it was applied, by whom, and why."""
    return answer(active.versions(by.broker))


def list_people(by: By) -> Response:
    """People and service accounts with their roles."""
    return answer(PeopleList.of(people(by.broker)))


def list_tokens(by: By, person: Name = None) -> Response:
    """API tokens without their texts."""
    return answer(TokenList.of(tokens(by.broker, person), by.broker.clock.now()))


def audit_lines(
    by: By, person: Name = None, subject: Name = None, limit: Annotated[int, Query(ge=1, le=1_000)] = 50
) -> Response:
    """The newest lines of the audit log: who changed what, from where, before and after."""
    found = audit_log(by.broker, by=by.actor, limit=limit, person=person, subject=subject)
    return answer(AuditLog.of(found))
