"""Corrects records with future dates after a clock that was ahead was set back: they get the present date.

Otherwise such a price would take effect at its future date, and count as fresh until then.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, Table, bindparam, func, select, update

from broker.store.tables.market import OFFER, PRICE, SIGNAL


def redate(connection: Connection, provider: str, begun: int, now: int, codes: Mapping[str, int], ended: int) -> None:
    """Run before storing a poll of ``provider`` from ``begun`` to ``now`` (microseconds): in each of its series with a
    change later than ``now``, the newest state is dated just before the poll. ``codes``, ``ended``: availability codes
    of `price_change`.
    """
    c, just_before = OFFER.c, begun - 1
    latest = select(func.max(c.changed_at), func.max(c.as_of), func.max(c.signalled_at)).where(c.polled_by == provider)
    if all(date is None or date <= now for date in connection.execute(latest).one()):
        return
    rows = connection.execute(select(OFFER).where(c.polled_by == provider, c.changed_at > now)).all()
    states = [
        {
            "series": row.id,
            "at": just_before,
            "micros": row.micros,
            "availability": codes[row.availability] if row.ended_at is None else ended,
            "learned": None,
        }
        for row in rows
    ]
    _replace(connection, PRICE, states, changed_at=just_before)
    rows = connection.execute(select(OFFER).where(c.polled_by == provider, c.signalled_at > now)).all()
    signals = [
        {"series": row.id, "at": just_before, "score": row.score, "interruption_rate": row.interruption_rate}
        for row in rows
    ]
    _replace(connection, SIGNAL, signals, signalled_at=just_before)
    mine = c.polled_by == provider
    connection.execute(update(OFFER).where(mine, c.as_of > now).values(as_of=begun))
    connection.execute(update(OFFER).where(mine, c.ended_at > now).values(ended_at=just_before))


def _replace(connection: Connection, table: Table, states: list[dict[str, int | float | None]], **dates: int) -> None:
    if not states:
        return
    first: ColumnElement[bool] = table.c.at >= bindparam("b_at")
    of = [{"b_series": state["series"], "b_at": state["at"]} for state in states]
    connection.execute(table.delete().where(table.c.series == bindparam("b_series"), first), of)
    connection.execute(table.insert(), states)
    ids = [{"b_series": state["series"]} for state in states]
    connection.execute(update(OFFER).where(OFFER.c.id == bindparam("b_series")).values(**dates), ids)
