"""Watches on prices, and their states."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import cache

from pydantic import TypeAdapter
from sqlalchemy import delete, insert, select, update

from broker.core.market.watches import Watch, WatchState
from broker.core.notices import Notice
from broker.store import outbox
from broker.store.engine.database import Database
from broker.store.schema.market import PriceWatchRow


class Watches:
    """Reached as ``store.watches``. Every method is a transaction of its own and may raise `StoreProblem`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, watch: Watch) -> bool:
        """Store a watch; False, without a change, if the name exists."""
        with self._database.writing() as connection:
            if (
                connection.execute(select(PriceWatchRow.name).where(PriceWatchRow.name == watch.name)).first()
                is not None
            ):
                return False
            body, state = _watch().dump_json(watch).decode(), _state().dump_json(WatchState()).decode()
            connection.execute(insert(PriceWatchRow).values(name=watch.name, body=body, state=state))
            return True

    def remove(self, name: str) -> bool:
        """Delete a watch; returns whether it existed."""
        with self._database.writing() as connection:
            return bool(connection.execute(delete(PriceWatchRow).where(PriceWatchRow.name == name)).rowcount)

    def all(self) -> list[tuple[Watch, WatchState]]:
        """Every watch with its state, by name."""
        with self._database.reading() as connection:
            rows = connection.execute(select(PriceWatchRow).order_by(PriceWatchRow.name)).all()
        return [(_watch().validate_json(row.body), _state().validate_json(row.state)) for row in rows]

    def move(
        self,
        watch: Watch,
        before: WatchState,
        after: WatchState,
        *,
        notice: Notice | None,
        targets: Iterable[str],
        at: datetime,
    ) -> bool:
        """Store the watch's new state and queue its alert in one transaction. False, without a change, if the watch
        was removed or its state is no longer ``before``."""
        old, new = (_state().dump_json(state).decode() for state in (before, after))
        body = _watch().dump_json(watch).decode()
        with self._database.writing() as connection:
            is_current = (PriceWatchRow.name == watch.name, PriceWatchRow.body == body, PriceWatchRow.state == old)
            if not connection.execute(update(PriceWatchRow).where(*is_current).values(state=new)).rowcount:
                return False
            if notice is not None:
                outbox.add(connection, notice, targets, at)
            return True


@cache
def _watch() -> TypeAdapter[Watch]:
    return TypeAdapter(Watch)


@cache
def _state() -> TypeAdapter[WatchState]:
    return TypeAdapter(WatchState)
