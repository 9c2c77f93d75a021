"""The outbox: alerts to deliver, delivered and failed ones; and what queues an alert with its cause: watches on prices
and the marks that budgets pass.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from types import SimpleNamespace
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Connection, and_, delete, false, insert, or_, select, update

from broker.core.market.watches import Watch, WatchState
from broker.core.notices import Notice
from broker.core.values.money import Money
from broker.store.engine.database import Database
from broker.store.engine.fields import columns_of, from_micros, to_micros, value_of
from broker.store.engine.statements import begins_with
from broker.store.schema.ledger import BudgetMarkRow
from broker.store.schema.market import NoticeRow, PriceWatchRow

_MAX_TOGETHER = 50  # the maximum number of alerts in one message
_DELETE_BATCH = 500  # the maximum number of alerts deleted in one transaction
_NEWEST_FIRST = select(NoticeRow).order_by(NoticeRow.made_at.desc(), NoticeRow.key.desc(), NoticeRow.target)


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One alert to one target (the name of a setting).

    Times are UTC. ``tries``: the number of tries, including a present one, since it was made or since `Outbox.retry`.
    ``next_try``: None if it was delivered or given up. ``error``: why the last try failed; empty while the next one
    runs.
    """

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
        """Queue an alert for those targets; returns the number of targets for which it is new. Idempotent by key and
        target: an existing alert stays unchanged, sent or not."""
        with self._database.writing() as connection:
            return add(connection, notice, targets, at)

    def claim(self, targets: Sequence[str], now: datetime, hold: timedelta) -> Dispatch | None:
        """Claim the alert to one of the targets that has been due longest, for the caller to send; None if nothing is
        due.

        No other process gets it for the time ``hold``, nor after `delivered` or `failed`; if the caller dies, it is
        sent again later.
        """
        with self._database.writing() as connection:
            due = select(NoticeRow).where(*_due_conditions(targets, now))
            row = connection.execute(due.order_by(NoticeRow.next_try, NoticeRow.key).limit(1)).first()
            return None if row is None else _claim(connection, row, now, hold)

    def claim_with(self, first: Dispatch, now: datetime, hold: timedelta) -> list[Dispatch]:
        """Claim other alerts of the same thread due to the same target, oldest first, to be sent in one message with
        ``first``. Claimed as by `claim`.
        """
        thread = first.notice.thread
        if not thread:
            return []
        with self._database.writing() as connection:
            due = select(NoticeRow).where(*_due_conditions([first.target], now), NoticeRow.thread == thread)
            oldest = NoticeRow.made_at + 0  # what is due, put in order; not every alert by the index of that order
            rows = connection.execute(due.order_by(oldest, NoticeRow.key).limit(_MAX_TOGETHER)).all()
            return [_claim(connection, row, now, hold) for row in rows]

    def retry(self, at: datetime, targets: Sequence[str]) -> int:
        """Make all undelivered alerts to those targets due at once as if they were new, including those given up;
        returns their number. Alerts that are being sent now are unchanged.
        """
        with self._database.writing() as connection:
            failed = and_(NoticeRow.delivered_at.is_(None), NoticeRow.error != "", NoticeRow.target.in_(targets))
            return connection.execute(update(NoticeRow).where(failed).values(next_try=to_micros(at), tries=0)).rowcount

    def mark_delivered(self, dispatch: Dispatch, at: datetime) -> None:
        """Record that the alert was sent."""
        self._settle(dispatch, {"delivered_at": to_micros(at), "next_try": None, "error": ""})

    def mark_failed(self, dispatch: Dispatch, error: str, next_try: datetime | None) -> None:
        """Record that sending failed; retry at ``next_try`` (UTC); None: give up."""
        self._settle(dispatch, {"error": error, "next_try": None if next_try is None else to_micros(next_try)})

    def _settle(self, dispatch: Dispatch, values: dict[str, Any]) -> None:
        with self._database.writing() as connection:
            is_pending = (*_is_row(dispatch.notice.key, dispatch.target), NoticeRow.delivered_at.is_(None))
            connection.execute(update(NoticeRow).where(*is_pending).values(**values))

    def prune(self, before: datetime) -> int:
        """Delete what was made before then (UTC) and delivered; returns how much that is. An alert with the same key
        counts as new afterwards. In batches, so that other writers do not wait long."""
        old = select(NoticeRow.key, NoticeRow.target).where(NoticeRow.made_at < to_micros(before))
        old = old.where(NoticeRow.delivered_at.is_not(None)).order_by(NoticeRow.made_at).limit(_DELETE_BATCH)
        count = 0
        while True:
            with self._database.writing() as connection:
                rows = connection.execute(old).all()
                for row in rows:
                    connection.execute(delete(NoticeRow).where(*_is_row(row.key, row.target)))
            count += len(rows)
            if len(rows) < _DELETE_BATCH:
                return count

    def newest(self, limit: int, *, failed: bool, targets: Sequence[str] | None = None) -> list[Dispatch]:
        """The newest alerts, newest first.

        With ``failed``, only those whose last try failed, or that wait for a target that is not in ``targets``.
        """
        query = _NEWEST_FIRST.limit(limit)
        if failed:
            has_error = NoticeRow.error != ""
            unknown_target = false() if targets is None else NoticeRow.target.not_in(targets)
            query = query.where(NoticeRow.delivered_at.is_(None), or_(has_error, unknown_target))
        with self._database.reading() as connection:
            return [_dispatch(row) for row in connection.execute(query)]

    def of(self, keys: Collection[str]) -> list[Dispatch]:
        """The alerts with these keys, newest first."""
        with self._database.reading() as connection:
            return [_dispatch(row) for row in connection.execute(_NEWEST_FIRST.where(NoticeRow.key.in_(keys)))]

    def under(self, prefix: str) -> list[Dispatch]:
        """The alerts whose keys begin with ``prefix``, newest first."""
        with self._database.reading() as connection:
            query = _NEWEST_FIRST.where(*begins_with(connection, NoticeRow.key, prefix))
            return [_dispatch(row) for row in connection.execute(query)]


def add(connection: Connection, notice: Notice, targets: Iterable[str], at: datetime) -> int:
    """`Outbox.add` within the caller's transaction, so that an alert and its cause are stored together."""
    existing = set(connection.scalars(select(NoticeRow.target).where(NoticeRow.key == notice.key)))
    new = sorted(set(targets) - existing)
    state = {"made_at": at, "tries": 0, "next_try": at, "delivered_at": None, "error": ""}
    if new:
        rows = [columns_of(NoticeRow, notice, target=target, **state) for target in new]
        connection.execute(insert(NoticeRow), rows)
    return len(new)


def _due_conditions(targets: Sequence[str], now: datetime) -> list[ColumnElement[bool]]:
    return [NoticeRow.next_try <= to_micros(now), NoticeRow.target.in_(targets)]


def _claim(connection: Connection, row: Any, now: datetime, hold: timedelta) -> Dispatch:
    values = {"tries": row.tries + 1, "next_try": to_micros(now + hold), "error": ""}
    connection.execute(update(NoticeRow).where(*_is_row(row.key, row.target)).values(**values))
    return _dispatch(SimpleNamespace(**{**row._mapping, **values}))


def _is_row(key: str, target: str) -> tuple[Any, Any]:
    return NoticeRow.key == key, NoticeRow.target == target


def _dispatch(row: Any) -> Dispatch:
    return value_of(Dispatch, row, notice=value_of(Notice, row, teams=()))


class Watches:
    """Reached as ``store.watches``. Every method is a transaction of its own and may raise `StoreProblem`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, watch: Watch, *, replaces: bool = False) -> bool:
        """Store a watch; False, without a change, if the name exists and it ``replaces`` none."""
        with self._database.writing() as connection:
            if replaces:
                connection.execute(delete(PriceWatchRow).where(PriceWatchRow.name == watch.name))
            elif (
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
                add(connection, notice, targets, at)
            return True


@cache
def _watch() -> TypeAdapter[Watch]:
    return TypeAdapter(Watch)


@cache
def _state() -> TypeAdapter[WatchState]:
    return TypeAdapter(WatchState)


class BudgetMarks:
    """Reached as ``store.budget_marks``.

    Every method is one transaction and may raise `StoreProblem`. A mark belongs to a budget, period and amount: after a
    change of the amount it can be passed again.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def since(self, budget: str, period_start: datetime, amount: Money) -> Mapping[str, datetime]:
        """The passed marks, with the time at which this was noticed (UTC)."""
        is_same = and_(
            BudgetMarkRow.budget == budget,
            BudgetMarkRow.period_start == to_micros(period_start),
            BudgetMarkRow.amount == amount.micros,
        )
        with self._database.reading() as connection:
            return {
                row.mark: from_micros(row.at)
                for row in connection.execute(select(BudgetMarkRow.mark, BudgetMarkRow.at).where(is_same))
            }

    def passed(
        self,
        budget: str,
        period_start: datetime,
        amount: Money,
        notices: Mapping[str, Notice],
        quiet: Collection[str],
        targets: Mapping[str, Iterable[str]],
        at: datetime,
    ) -> Sequence[str]:
        """Record passed marks and queue their alerts, in one transaction; returns the marks that were not recorded
        before, each to one process only.

        Each alert goes to the ``targets`` of its mark; those of the ``quiet`` marks are not sent.
        """
        row = {"budget": budget, "period_start": to_micros(period_start), "amount": amount.micros}
        with self._database.writing() as connection:
            is_same = and_(*(getattr(BudgetMarkRow, name) == value for name, value in row.items()))
            recorded = set(connection.scalars(select(BudgetMarkRow.mark).where(is_same)))
            new = [mark for mark in notices if mark not in recorded]
            for mark in new:
                connection.execute(insert(BudgetMarkRow).values(**row, mark=mark, at=to_micros(at)))
                if mark not in quiet:
                    add(connection, notices[mark], targets[mark], at)
        return new
