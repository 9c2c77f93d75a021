"""People, tokens and the audit log as tables."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listed

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.core.access.api_tokens import ApiToken
    from broker.core.access.audit import AuditRecord
    from broker.core.access.people import Person

_PEOPLE: tuple[ValueColumn[Person], ...] = (
    ValueColumn("name", lambda one: one.name),
    ValueColumn("kind", lambda one: "service" if one.service else "person", 2),
    ValueColumn("roles", lambda one: one.in_words, folds=True),
    ValueColumn("added", lambda one: formats.moment(one.added_at), 3),
)
_AUDIT: tuple[ValueColumn[tuple[int, AuditRecord]], ...] = (
    ValueColumn("line", lambda line: str(line[0]), 5, "right"),
    ValueColumn("at", lambda line: formats.moment(line[1].at)),
    ValueColumn("person", lambda line: line[1].person),
    ValueColumn("action", lambda line: line[1].action),
    ValueColumn("subject", lambda line: line[1].subject, 1),
    ValueColumn("outcome", lambda line: ": ".join(filter(None, (line[1].outcome.value, line[1].reason)))),
    ValueColumn("before", lambda line: line[1].before, 3, folds=True),
    ValueColumn("after", lambda line: line[1].after, 2, folds=True),
    ValueColumn("from", lambda line: line[1].origin, 4),
)


def people_table(console: Console, people: Iterable[Person]) -> list[RenderableType]:
    """One row per person."""
    return listed(console, _PEOPLE, people)


def token_table(console: Console, tokens: Iterable[ApiToken], now: datetime) -> list[RenderableType]:
    """One row per token."""
    columns: tuple[ValueColumn[ApiToken], ...] = (
        ValueColumn("id", lambda one: one.id),
        ValueColumn("person", lambda one: one.person),
        ValueColumn("state", lambda one: _state(one, now)),
        ValueColumn("scopes", lambda one: ", ".join(sorted(one.scopes)), 1, folds=True),
        ValueColumn("until", lambda one: formats.moment(one.expires_at), 1),
        ValueColumn("last used", lambda one: formats.moment(one.used_at), 2),
        ValueColumn("label", lambda one: one.label, 3, folds=True),
    )
    return listed(console, columns, tokens)


def audit_table(console: Console, lines: Iterable[tuple[int, AuditRecord]]) -> list[RenderableType]:
    """One row per line of the log."""
    return listed(console, _AUDIT, lines)


def _state(token: ApiToken, now: datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "valid" if token.good(now) else "expired"
