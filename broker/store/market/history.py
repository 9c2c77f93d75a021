"""The past of the market: offers at a moment, and changes over a period, from stored changes."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, Connection, ScalarSelect, and_, case, func, literal, null, select
from sqlalchemy.sql.selectable import FromClause

from broker.core.market.offers import Availability, Offer, OfferQuery
from broker.core.values.money import Money
from broker.store.engine.times import from_micros, to_micros
from broker.store.market.doubts import ENDED
from broker.store.market.market import conditions
from broker.store.market.offer_rows import OFFER_QUERY, PLACE, SAID, to_offers
from broker.store.market.polls import CODES
from broker.store.records import AvailabilityPoint, PastOffer, PricePoint, Series, SignalPoint
from broker.store.tables.market import OFFER, POLL, POOL, PRICE, SIGNAL

_KINDS = {code: Availability(kind) for kind, code in CODES.items()}
_known_since = func.coalesce(PRICE.c.learned, PRICE.c.at)
_AS_OF = len(PLACE) + 1  # the index of the date in `OFFER_QUERY`
_MACHINE = ("provider", "region", "instance_type", "accelerator", "count", "capacity_type", "term_months")


# The columns after those of an offer, among them the number of the series and the state's code. ``signalled``: since
# when the score and the rate have their values.
_MORE = ("since", "learned", "polled_by", "series", "code", "signalled")
_PAST: Sequence[str] = (*PLACE, "source", "as_of", *SAID, "doubt", "doubt_detail", *_MORE)
_PastRow: Any = namedtuple("_PastRow", _PAST)  # type: ignore[misc]  # mypy wants the names written here


class PastChange(NamedTuple):
    """One row of `price_change`, or an archived one. Times are microseconds."""

    at: int
    micros: int | None
    availability: int
    learned: int | None


OlderState = tuple[PastChange | None, SignalPoint | None]
"""The last changes (price, signal) of a series up to some moment that are in the archive."""


def series(connection: Connection, query: OfferQuery) -> list[Series]:
    """See `MarketHistory.series`."""
    wanted = [condition for _, condition in conditions(connection, query)]
    rows = connection.execute(
        OFFER_QUERY.add_columns(OFFER.c.polled_by, OFFER.c.ended_at).where(*wanted).order_by(OFFER.c.id)
    ).all()
    found = to_offers([row[:-2] for row in rows])
    return [
        Series(offer, row.polled_by, None if row.ended_at is None else from_micros(row.ended_at))
        for offer, row in zip(found, rows, strict=True)
    ]


def offers_at(
    connection: Connection,
    when: datetime,
    known_at: datetime | None,
    query: OfferQuery,
    older: Mapping[int, OlderState],
) -> list[PastOffer]:
    """See `MarketHistory.offers_at`."""
    moment = to_micros(when)
    known = moment if known_at is None else to_micros(known_at)
    then = _then(connection, moment, None if known_at is None else known, query, with_unknown=bool(older))
    rows = _without_superseded(list(_with_older(connection.execute(then).all(), older)))
    seen = _seen(connection, {row.polled_by for row in rows}, min(moment, known) if known_at else moment)
    dated = [
        (*row[:_AS_OF], max(row.since, seen.get(row.polled_by, row.since)), *row[_AS_OF + 1 : -len(_MORE)])
        for row in rows
    ]
    as_time = lru_cache(maxsize=4096)(from_micros)  # most offers share their dates
    seen_at = {provider: from_micros(at) for provider, at in seen.items()}
    found = [
        PastOffer(
            offer,
            as_time(row.since),
            as_time(row.since if row.learned is None else row.learned),
            seen_at.get(row.polled_by),
        )
        for offer, row in zip(to_offers(dated), rows, strict=True)
    ]
    if query.max_price is not None:
        most = query.max_price
        found = [past for past in found if past.offer.price is not None and past.offer.price <= most]
    return found


def _then(connection: Connection, when: int, known: int | None, query: OfferQuery, *, with_unknown: bool) -> Any:
    """Every offer reported at that moment, in the columns of `OFFER_QUERY`, then `_MORE`.

    ``with_unknown``: also every other matching series, without a price or with the state ended.
    """
    before, told = PRICE.alias("before"), SIGNAL.alias("told")
    in_force = [before.c.series == OFFER.c.id, before.c.at <= when]
    if known is not None:
        in_force.append(func.coalesce(before.c.learned, before.c.at) <= known)
    newest = _newest(before, in_force)
    signalled = _newest(told, [told.c.series == OFFER.c.id, told.c.at <= (when if known is None else min(when, known))])
    then = {
        "micros": PRICE.c.micros,
        "availability": case({code: kind.value for code, kind in _KINDS.items()}, value=PRICE.c.availability),
        "unavailable_because": literal(""),
        "score": SIGNAL.c.score,
        "interruption_rate": SIGNAL.c.interruption_rate,
    }
    places = [POOL.c[name] for name in PLACE]
    said = [then.get(name, OFFER.c[name]).label(name) for name in SAID]
    # Past doubts are not recorded.
    no_doubt = (null().label("doubt"), literal("").label("doubt_detail"))
    values = (PRICE.c.at, PRICE.c.learned, OFFER.c.polled_by, OFFER.c.id, PRICE.c.availability, SIGNAL.c.at)
    more = (value.label(name) for name, value in zip(_MORE, values, strict=True))
    there = [] if with_unknown else [PRICE.c.availability != ENDED]
    return (
        select(*places, OFFER.c.source, PRICE.c.at.label("as_of"), *said, *no_doubt, *more)
        .join_from(OFFER, POOL, OFFER.c.pool_id == POOL.c.id)
        .join(PRICE, and_(PRICE.c.series == OFFER.c.id, PRICE.c.at == newest), isouter=with_unknown)
        .outerjoin(SIGNAL, and_(SIGNAL.c.series == OFFER.c.id, SIGNAL.c.at == signalled))
        .where(*there, *(condition for _, condition in conditions(connection, query)))
        .order_by(OFFER.c.id)
    )


def _with_older(rows: Sequence[Any], older: Mapping[int, OlderState]) -> Iterator[Any]:
    """The offers of that moment, with the archived state of a series if it is later than the stored one."""
    if not older:
        yield from rows
        return
    for read in rows:
        row: Any = _PastRow(*read)
        change, signal = older.get(row.series, (None, None))
        if change is not None and (row.since is None or row.since < change.at):
            kind = _KINDS.get(change.availability)
            row = row._replace(micros=change.micros, availability=None if kind is None else kind.value)
            row = row._replace(since=change.at, learned=change.learned, code=change.availability)
        if signal is not None and (row.signalled is None or row.signalled < to_micros(signal.at)):
            row = row._replace(score=signal.score, interruption_rate=signal.interruption_rate)
        if row.code not in (None, ENDED):
            yield row


def _newest(table: FromClause, wanted: Sequence[ColumnElement[bool]]) -> ScalarSelect[int]:
    return select(table.c.at).where(*wanted).order_by(table.c.at.desc()).limit(1).scalar_subquery()


def _without_superseded(rows: Sequence[Any]) -> list[Any]:
    """Without reference prices of machines for which a live source had a price, as for current offers."""

    def machine(row: Any) -> tuple[Any, ...]:
        return tuple(getattr(row, name) for name in _MACHINE)

    if not any(row.reference for row in rows):
        return list(rows)
    live = {machine(row) for row in rows if not row.reference and row.micros is not None}
    return [row for row in rows if not row.reference or machine(row) not in live]


def _seen(connection: Connection, providers: set[str], by: int) -> dict[str, int]:
    """The end of each provider's last complete poll by that moment."""
    found = {}
    for provider in providers:
        finished = connection.scalar(
            select(POLL.c.finished)
            .where(POLL.c.provider == provider, POLL.c.complete, POLL.c.finished <= by)
            .order_by(POLL.c.finished.desc())
            .limit(1)
        )
        if finished is not None:
            found[provider] = finished
    return found


def price_points(
    connection: Connection,
    offer: Offer,
    start: datetime,
    end: datetime,
    known_at: datetime | None,
    older: Sequence[PastChange] = (),
) -> list[PricePoint]:
    """See `MarketHistory.price_series`. ``older``: archived changes, oldest first."""
    found: list[PricePoint] = []
    for change in _changes(connection, offer, start, end, known_at, older):
        gone = change.micros is None or change.availability == ENDED
        price = None if gone else Money(change.micros or 0)
        if not found or found[-1].price != price:
            learned = change.at if change.learned is None else change.learned
            found.append(PricePoint(from_micros(change.at), price, from_micros(learned)))
    return found


def availability_points(
    connection: Connection, offer: Offer, start: datetime, end: datetime, older: Sequence[PastChange] = ()
) -> list[AvailabilityPoint]:
    """See `MarketHistory.availability_series`. ``older``: archived changes, oldest first."""
    found: list[AvailabilityPoint] = []
    for change in _changes(connection, offer, start, end, None, older):
        availability = _KINDS.get(change.availability)
        if not found or found[-1].availability != availability:
            found.append(AvailabilityPoint(from_micros(change.at), availability))
    return found


def signal_points(
    connection: Connection, offer: Offer, start: datetime, end: datetime, older: Sequence[SignalPoint] = ()
) -> list[SignalPoint]:
    """See `MarketHistory.signal_series`. ``older``: archived changes, oldest first."""
    one = series_of(connection, offer)
    if one is None:
        return []
    rows = _in_force_and_later(connection, SIGNAL, one, start, end, [])
    kept = [SignalPoint(from_micros(row.at), row.score, row.interruption_rate) for row in rows]
    return _from(start, end, older, kept, key=lambda point: point.at)


def series_of(connection: Connection, offer: Offer) -> int | None:
    """The id of the offer's price series; None if there is none."""
    return connection.scalar(
        select(OFFER.c.id)
        .join_from(OFFER, POOL, OFFER.c.pool_id == POOL.c.id)
        .where(POOL.c.key == offer.pool, OFFER.c.source == offer.source)
    )


def _changes(
    connection: Connection,
    offer: Offer,
    start: datetime,
    end: datetime,
    known_at: datetime | None,
    older: Sequence[PastChange] = (),
) -> list[PastChange]:
    """The change in force at ``start``, then each one up to ``end`` (inclusive)."""
    one = series_of(connection, offer)
    if one is None:
        return []
    known = [] if known_at is None else [_known_since <= to_micros(known_at)]
    rows = _in_force_and_later(connection, PRICE, one, start, end, known)
    kept = [PastChange(row.at, row.micros, row.availability, row.learned) for row in rows]
    by = None if known_at is None else to_micros(known_at)
    heard = [change for change in older if by is None or (change.learned or change.at) <= by]
    return _from(to_micros(start), to_micros(end), heard, kept, key=lambda change: change.at)


_Point = TypeVar("_Point")
_Time = TypeVar("_Time", int, datetime)


def _from(
    start: _Time, end: _Time, older: Sequence[_Point], kept: Sequence[_Point], key: Callable[[_Point], _Time]
) -> list[_Point]:
    """Archived points and those of the store as one series: the last one by ``start``, then all up to ``end``."""
    if not older:
        return list(kept)
    both = sorted([*older, *kept], key=key)
    before = [point for point in both if key(point) <= start][-1:]
    return before + [point for point in both if start < key(point) <= end]


def _in_force_and_later(
    connection: Connection,
    table: FromClause,
    one: int,
    start: datetime,
    end: datetime,
    known: Sequence[ColumnElement[bool]],
) -> list[Any]:
    at, begin = table.c.at, to_micros(start)
    mine = select(table).where(table.c.series == one, *known)
    first = connection.execute(mine.where(at <= begin).order_by(at.desc()).limit(1)).first()
    later = connection.execute(mine.where(at > begin, at <= to_micros(end)).order_by(at)).all()
    return ([first] if first else []) + list(later)
