"""People, tokens and the audit log as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.app.results.access import AuditLine, AuditLog, PeopleList, PersonResult, TokenList, TokenResult
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listed

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_PEOPLE: tuple[ValueColumn[PersonResult], ...] = (
    ValueColumn("name", lambda one: one.name),
    ValueColumn("kind", lambda one: "service" if one.service else "person", 2),
    ValueColumn("roles", lambda one: one.in_words, folds=True),
    ValueColumn("added", lambda one: formats.moment(one.added_at), 3),
)
_TOKENS: tuple[ValueColumn[TokenResult], ...] = (
    ValueColumn("id", lambda one: one.id),
    ValueColumn("person", lambda one: one.person),
    ValueColumn("state", lambda one: "valid" if one.good else "revoked" if one.revoked_at else "expired"),
    ValueColumn("scopes", lambda one: ", ".join(one.scopes), 1, folds=True),
    ValueColumn("until", lambda one: formats.moment(one.expires_at), 1),
    ValueColumn("last used", lambda one: formats.moment(one.used_at), 2),
    ValueColumn("label", lambda one: one.label, 3, folds=True),
)
_AUDIT: tuple[ValueColumn[AuditLine], ...] = (
    ValueColumn("line", lambda one: str(one.number), 5, "right"),
    ValueColumn("at", lambda one: formats.moment(one.at)),
    ValueColumn("person", lambda one: one.person),
    ValueColumn("action", lambda one: one.action),
    ValueColumn("subject", lambda one: one.subject, 1),
    ValueColumn("outcome", lambda one: ": ".join(filter(None, (one.outcome.value, one.reason)))),
    ValueColumn("before", lambda one: one.before, 3, folds=True),
    ValueColumn("after", lambda one: one.after, 2, folds=True),
    ValueColumn("from", lambda one: one.origin, 4),
)


def people_table(console: Console, found: PeopleList) -> list[RenderableType]:
    """One row per person."""
    nobody = "No people are recorded. Start with `gpubroker people invite NAME --administrator`."
    return listed(console, _PEOPLE, found.people) if found.people else [nobody]


def token_table(console: Console, found: TokenList) -> list[RenderableType]:
    """One row per token."""
    return listed(console, _TOKENS, found.tokens) if found.tokens else ["no tokens"]


def audit_table(console: Console, found: AuditLog) -> list[RenderableType]:
    """One row per line of the log."""
    return listed(console, _AUDIT, found.lines) if found.lines else ["no lines"]
