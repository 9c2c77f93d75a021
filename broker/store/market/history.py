"""The past of the market: offers at a moment, and changes over a period, from stored changes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, ScalarSelect, and_, case, literal, null, select
from sqlalchemy.orm import aliased

from broker.core.market.offers import Availability, Offer, OfferQuery
from broker.core.values.money import Money
from broker.store.engine.times import from_micros, to_micros
from broker.store.market.doubts import ENDED
from broker.store.market.market import conditions
from broker.store.market.offer_rows import OFFER_COLUMNS, OFFER_QUERY, POOL_COLUMNS, to_offers
from broker.store.market.polls import CODES
from broker.store.records import AvailabilityPoint, PricePoint, Series, SignalPoint
from broker.store.schema.market import OfferRow, PollRunRow, PoolRow, PriceChangeRow, SignalChangeRow

_KINDS = {code: Availability(kind) for kind, code in CODES.items()}
_AS_OF = len(POOL_COLUMNS) + 1  # the index of the date in `OFFER_QUERY`
_MACHINE = ("provider", "region", "instance_type", "accelerator", "count", "capacity_type", "term_months")


def series(connection: Connection, query: OfferQuery) -> list[Series]:
    """See `MarketHistory.series`."""
    filters = [condition for _, condition in conditions(connection, query)]
    rows = connection.execute(
        OFFER_QUERY.add_columns(OfferRow.polled_by, OfferRow.ended_at).where(*filters).order_by(OfferRow.id)
    ).all()
    offers = to_offers([row[:-2] for row in rows])
    return [
        Series(offer, row.polled_by, None if row.ended_at is None else from_micros(row.ended_at))
        for offer, row in zip(offers, rows, strict=True)
    ]


def offers_at(connection: Connection, when: datetime, query: OfferQuery) -> list[Offer]:
    """See `MarketHistory.offers_at`."""
    moment = to_micros(when)
    rows = _without_superseded(connection.execute(_past_query(connection, moment, query)).all())
    last_polls = _last_polls(connection, {row.polled_by for row in rows}, moment)
    past_offers = to_offers(
        [
            (*row[:_AS_OF], max(row.as_of, last_polls.get(row.polled_by, row.as_of)), *row[_AS_OF + 1 : -1])
            for row in rows
        ]
    )
    if query.max_price is None:
        return past_offers
    return [offer for offer in past_offers if offer.price is not None and offer.price <= query.max_price]


def _past_query(connection: Connection, when: int, query: OfferQuery) -> Any:
    """Every offer reported at that moment, in the columns of `OFFER_QUERY`, then its adapter."""
    earlier_change, signal_alias = aliased(PriceChangeRow, name="before"), aliased(SignalChangeRow, name="told")
    newest = _newest(earlier_change, [earlier_change.series == OfferRow.id, earlier_change.at <= when])
    signalled = _newest(signal_alias, [signal_alias.series == OfferRow.id, signal_alias.at <= when])
    past_values = {
        "micros": PriceChangeRow.micros,
        "availability": case({code: kind.value for code, kind in _KINDS.items()}, value=PriceChangeRow.availability),
        "unavailable_because": literal(""),
        "score": SignalChangeRow.score,
        "interruption_rate": SignalChangeRow.interruption_rate,
    }
    places = [getattr(PoolRow, name) for name in POOL_COLUMNS]
    offer_columns = [past_values.get(name, getattr(OfferRow, name)).label(name) for name in OFFER_COLUMNS]
    # Past doubts are not recorded.
    no_doubt = (null().label("doubt"), literal("").label("doubt_detail"))
    return (
        select(
            *places, OfferRow.source, PriceChangeRow.at.label("as_of"), *offer_columns, *no_doubt, OfferRow.polled_by
        )
        .join_from(OfferRow, PoolRow, OfferRow.pool_id == PoolRow.id)
        .join(PriceChangeRow, and_(PriceChangeRow.series == OfferRow.id, PriceChangeRow.at == newest))
        .outerjoin(SignalChangeRow, and_(SignalChangeRow.series == OfferRow.id, SignalChangeRow.at == signalled))
        .where(PriceChangeRow.availability != ENDED, *(condition for _, condition in conditions(connection, query)))
        .order_by(OfferRow.id)
    )


def _newest(row: Any, filters: Sequence[ColumnElement[bool]]) -> ScalarSelect[int]:
    return select(row.at).where(*filters).order_by(row.at.desc()).limit(1).scalar_subquery()


def _without_superseded(rows: Sequence[Any]) -> list[Any]:
    """Without reference prices of machines for which a live source had a price, as for current offers."""

    def machine(row: Any) -> tuple[Any, ...]:
        return tuple(getattr(row, name) for name in _MACHINE)

    if not any(row.reference for row in rows):
        return list(rows)
    live = {machine(row) for row in rows if not row.reference and row.micros is not None}
    return [row for row in rows if not row.reference or machine(row) not in live]


def _last_polls(connection: Connection, providers: set[str], moment: int) -> dict[str, int]:
    """The end of each provider's last complete poll by that moment."""
    finished_by_provider = {}
    for provider in providers:
        finished = connection.scalar(
            select(PollRunRow.finished)
            .where(PollRunRow.provider == provider, PollRunRow.complete, PollRunRow.finished <= moment)
            .order_by(PollRunRow.finished.desc())
            .limit(1)
        )
        if finished is not None:
            finished_by_provider[provider] = finished
    return finished_by_provider


def price_points(connection: Connection, offer: Offer, start: datetime, end: datetime) -> list[PricePoint]:
    """See `MarketHistory.price_series`."""
    points: list[PricePoint] = []
    for change in _changes(connection, offer, start, end):
        is_gone = change.micros is None or change.availability == ENDED
        price = None if is_gone else Money(change.micros or 0)
        if not points or points[-1].price != price:
            learned = change.at if change.learned is None else change.learned
            points.append(PricePoint(from_micros(change.at), price, from_micros(learned)))
    return points


def availability_points(
    connection: Connection, offer: Offer, start: datetime, end: datetime
) -> list[AvailabilityPoint]:
    """See `MarketHistory.availability_series`."""
    points: list[AvailabilityPoint] = []
    for change in _changes(connection, offer, start, end):
        availability = _KINDS.get(change.availability)
        if not points or points[-1].availability != availability:
            points.append(AvailabilityPoint(from_micros(change.at), availability))
    return points


def signal_points(connection: Connection, offer: Offer, start: datetime, end: datetime) -> list[SignalPoint]:
    """See `MarketHistory.signal_series`."""
    series_id = series_of(connection, offer)
    if series_id is None:
        return []
    rows = _in_force_and_later(connection, SignalChangeRow, series_id, start, end)
    return [SignalPoint(from_micros(row.at), row.score, row.interruption_rate) for row in rows]


def series_of(connection: Connection, offer: Offer) -> int | None:
    """The id of the offer's price series; None if there is none."""
    return connection.scalar(
        select(OfferRow.id)
        .join_from(OfferRow, PoolRow, OfferRow.pool_id == PoolRow.id)
        .where(PoolRow.key == offer.pool, OfferRow.source == offer.source)
    )


def _changes(connection: Connection, offer: Offer, start: datetime, end: datetime) -> list[Any]:
    """The change in force at ``start``, then each one up to ``end`` (inclusive)."""
    series_id = series_of(connection, offer)
    return [] if series_id is None else _in_force_and_later(connection, PriceChangeRow, series_id, start, end)


def _in_force_and_later(
    connection: Connection,
    row: type[PriceChangeRow] | type[SignalChangeRow],
    series_id: int,
    start: datetime,
    end: datetime,
) -> list[Any]:
    at, begin = row.at, to_micros(start)
    statement = select(row).where(row.series == series_id)
    first = connection.execute(statement.where(at <= begin).order_by(at.desc()).limit(1)).first()
    later = connection.execute(statement.where(at > begin, at <= to_micros(end)).order_by(at)).all()
    return ([first] if first else []) + list(later)
