"""Statements of closed months, each written once. Inside the caller's transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache

from pydantic import TypeAdapter
from sqlalchemy import Connection, func, select

from broker.finops.focus.months import BillingMonth
from broker.finops.showback import Statement
from broker.store.engine.times import to_micros
from broker.store.tables.ledger import ENTRY, STATEMENT


def read(connection: Connection, month: str) -> Statement | None:
    """The statement of a closed month (``2026-10``); None if there is none."""
    body = connection.scalar(select(STATEMENT.c.body).where(STATEMENT.c.month == month))
    return None if body is None else _statement(connection, body)


def listed(connection: Connection) -> Sequence[Statement]:
    """All statements, newest month first."""
    bodies = connection.scalars(select(STATEMENT.c.body).order_by(STATEMENT.c.month.desc()))
    return [_statement(connection, body) for body in bodies]


def add(connection: Connection, statement: Statement) -> None:
    """Store a statement permanently. Raises ValueError if the month has one."""
    if read(connection, statement.month) is not None:
        raise ValueError(f"the statement of {statement.month} is frozen")
    body = _adapter().dump_json(statement).decode()
    values = {"month": statement.month, "frozen_at": to_micros(statement.frozen_at), "frozen_by": statement.frozen_by}
    connection.execute(STATEMENT.insert().values(**values, body=body))


def _statement(connection: Connection, body: str) -> Statement:
    fields = json.loads(body)
    if "entries" not in fields:  # written when a statement included all entries posted before its month was closed
        month = BillingMonth.of(datetime.strptime(fields["month"], "%Y-%m").replace(tzinfo=UTC))
        posted = select(func.max(ENTRY.c.id)).where(ENTRY.c.at < to_micros(month.closes))
        fields["entries"] = connection.scalar(posted) or 0
    for row in fields["rows"]:
        row.setdefault("on_own", None)  # statements of earlier versions lack it
    return _adapter().validate_json(json.dumps(fields))


@cache
def _adapter() -> TypeAdapter[Statement]:
    return TypeAdapter(Statement)
