"""Corrects records dated in the future after a fast clock was set back: they get the present date.

Otherwise such a price would take effect at its future date, and count as fresh until then.
"""

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, insert, select, update

from broker.store.schema.market import OfferRow, PriceChangeRow, SignalChangeRow


def redate(connection: Connection, provider: str, started: int, now: int, codes: Mapping[str, int], ended: int) -> None:
    """Run before storing a poll of ``provider`` from ``started`` to ``now`` (microseconds): in each of its series with
    a change later than ``now``, the newest state is dated just before the poll. ``codes``, ``ended``: availability
    codes of `price_change`.
    """
    just_before = started - 1
    latest = select(func.max(OfferRow.changed_at), func.max(OfferRow.as_of), func.max(OfferRow.signalled_at)).where(
        OfferRow.polled_by == provider
    )
    if all(date is None or date <= now for date in connection.execute(latest).one()):
        return
    rows = connection.execute(select(OfferRow).where(OfferRow.polled_by == provider, OfferRow.changed_at > now)).all()
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
    _replace(connection, PriceChangeRow, states, changed_at=just_before)
    rows = connection.execute(select(OfferRow).where(OfferRow.polled_by == provider, OfferRow.signalled_at > now)).all()
    signals = [
        {"series": row.id, "at": just_before, "score": row.score, "interruption_rate": row.interruption_rate}
        for row in rows
    ]
    _replace(connection, SignalChangeRow, signals, signalled_at=just_before)
    from_provider = OfferRow.polled_by == provider
    connection.execute(update(OfferRow).where(from_provider, OfferRow.as_of > now).values(as_of=started))
    connection.execute(update(OfferRow).where(from_provider, OfferRow.ended_at > now).values(ended_at=just_before))


def _replace(
    connection: Connection,
    row: type[PriceChangeRow] | type[SignalChangeRow],
    states: list[dict[str, int | float | None]],
    **dates: int,
) -> None:
    if not states:
        return
    from_date: ColumnElement[bool] = row.at >= bindparam("b_at")
    keys = [{"b_series": state["series"], "b_at": state["at"]} for state in states]
    connection.execute(delete(row).where(row.series == bindparam("b_series"), from_date), keys)
    connection.execute(insert(row), states)
    ids = [{"b_series": state["series"]} for state in states]
    connection.execute(update(OfferRow).where(OfferRow.id == bindparam("b_series")).values(**dates), ids)
