"""The outbox: notices to deliver, delivered and failed ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, select, update

from broker.core.notices import Notice, Severity
from broker.store.engine.database import Database
from broker.store.engine.times import from_micros, to_micros
from broker.store.tables import NOTICE


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One notice to one target, the name of a setting. Times are UTC. ``tries``: the number of tries, including a
    present one; ``next_try``: None if it was delivered or given up; ``error``: why the last try failed."""

    notice: Notice
    target: str
    made_at: datetime
    tries: int
    next_try: datetime | None
    delivered_at: datetime | None
    error: str

    @property
    def given_up(self) -> bool:
        """Whether it will not be tried again."""
        return self.delivered_at is None and self.next_try is None


class Outbox:
    """Reached as ``store.outbox``. Every method is a transaction of its own and may raise `StoreProblem`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, notice: Notice, targets: Iterable[str], at: datetime) -> int:
        """Queue a notice for those targets; returns the number of targets for which it is new. Idempotent by key and
        target: an existing notice stays unchanged, sent or not."""
        with self._database.writing() as connection:
            return add(connection, notice, targets, at)

    def claim(self, targets: Sequence[str], now: datetime, hold: timedelta) -> Dispatch | None:
        """Claim the longest-due notice to one of the targets for sending; None if none is due. It is not claimed again
        before ``hold`` has passed, unless `failed` schedules it earlier; so a notice claimed by a process that died is
        sent again."""
        with self._database.writing() as connection:
            due = select(NOTICE).where(NOTICE.c.next_try <= to_micros(now), NOTICE.c.target.in_(targets))
            row = connection.execute(due.order_by(NOTICE.c.next_try, NOTICE.c.key).limit(1)).first()
            if row is None:
                return None
            claimed = {"tries": row.tries + 1, "next_try": to_micros(now + hold)}
            connection.execute(update(NOTICE).where(*_is(row.key, row.target)).values(**claimed))
            return _dispatch({**row._mapping, **claimed})

    def delivered(self, dispatch: Dispatch, at: datetime) -> None:
        """It has been sent."""
        self._settle(dispatch, {"delivered_at": to_micros(at), "next_try": None, "error": ""})

    def failed(self, dispatch: Dispatch, error: str, next_try: datetime | None) -> None:
        """Sending failed: retry at ``next_try`` (UTC); None: give up."""
        self._settle(dispatch, {"error": error, "next_try": None if next_try is None else to_micros(next_try)})

    def _settle(self, dispatch: Dispatch, values: dict[str, Any]) -> None:
        with self._database.writing() as connection:
            mine = (*_is(dispatch.notice.key, dispatch.target), NOTICE.c.delivered_at.is_(None))
            connection.execute(update(NOTICE).where(*mine).values(**values))

    def under(self, prefix: str) -> list[Dispatch]:
        """The notices whose keys begin with ``prefix``, newest first."""
        with self._database.reading() as connection:
            mine = select(NOTICE).where(NOTICE.c.key.startswith(prefix, autoescape=True))
            rows = connection.execute(mine.order_by(NOTICE.c.made_at.desc(), NOTICE.c.key.desc(), NOTICE.c.target))
            return [_dispatch(row._mapping) for row in rows]


def add(connection: Connection, notice: Notice, targets: Iterable[str], at: datetime) -> int:
    """`Outbox.add` within the caller's transaction, so that a notice and its cause are stored together."""
    there = set(connection.scalars(select(NOTICE.c.target).where(NOTICE.c.key == notice.key)))
    new = sorted(set(targets) - there)
    row: dict[str, Any] = {"key": notice.key, "title": notice.title, "body": notice.body}
    row |= {
        "severity": notice.severity.value,
        "made_at": to_micros(at),
        "tries": 0,
        "next_try": to_micros(at),
        "delivered_at": None,
        "error": "",
    }
    if new:
        connection.execute(NOTICE.insert(), [row | {"target": target} for target in new])
    return len(new)


def _is(key: str, target: str) -> tuple[Any, Any]:
    return NOTICE.c.key == key, NOTICE.c.target == target


def _dispatch(row: Any) -> Dispatch:
    def time(name: str) -> datetime | None:
        return None if row[name] is None else from_micros(row[name])

    return Dispatch(
        notice=Notice(row["key"], row["title"], row["body"], Severity(row["severity"])),
        target=row["target"],
        made_at=from_micros(row["made_at"]),
        tries=row["tries"],
        next_try=time("next_try"),
        delivered_at=time("delivered_at"),
        error=row["error"],
    )
