"""People, tokens and the audit log as tables."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from broker.cli.render import formats
from broker.cli.render.tables import Column, fitted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.core.access.api_tokens import ApiToken
    from broker.core.access.audit import AuditRecord
    from broker.core.access.people import Person

_PEOPLE = (Column("name"), Column("kind", 2), Column("roles", folds=True), Column("added", 3))
_TOKENS = (
    Column("id"),
    Column("person"),
    Column("state"),
    Column("scopes", 1, folds=True),
    Column("until", 1),
    Column("last used", 2),
    Column("label", 3, folds=True),
)
_AUDIT = (
    Column("line", 5, align="right"),
    Column("at"),
    Column("person"),
    Column("action"),
    Column("subject", 1),
    Column("outcome"),
    Column("before", 3, folds=True),
    Column("after", 2, folds=True),
    Column("from", 4),
)


def people_table(console: Console, people: Iterable[Person]) -> list[RenderableType]:
    """One row per person."""
    return fitted(
        console,
        _PEOPLE,
        [
            [one.name, "service" if one.service else "person", one.in_words, formats.moment(one.added_at)]
            for one in people
        ],
    )


def token_table(console: Console, tokens: Iterable[ApiToken], now: datetime) -> list[RenderableType]:
    """One row per token."""
    return fitted(
        console,
        _TOKENS,
        [
            [
                one.id,
                one.person,
                _state(one, now),
                ", ".join(sorted(one.scopes)),
                formats.moment(one.expires_at),
                formats.moment(one.used_at),
                one.label,
            ]
            for one in tokens
        ],
    )


def audit_table(console: Console, lines: Iterable[tuple[int, AuditRecord]]) -> list[RenderableType]:
    """One row per line of the log."""
    return fitted(
        console,
        _AUDIT,
        [
            [
                str(number),
                formats.moment(one.at),
                one.person,
                one.action,
                one.subject,
                f"{one.outcome}: {one.reason}" if one.reason else one.outcome.value,
                one.before,
                one.after,
                one.origin,
            ]
            for number, one in lines
        ],
    )


def _state(token: ApiToken, now: datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "valid" if token.good(now) else "expired"
