"""The market's past and state: offers at a moment, changes over a period, the freshness of offers."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, ScalarSelect, and_, case, func, literal, null, select
from sqlalchemy.orm import aliased

from broker.core.errors import StoreProblem
from broker.core.market.offers import Availability, Offer, OfferQuery
from broker.core.values.money import Money
from broker.store.engine.database import Database, reads
from broker.store.engine.fields import from_micros, to_micros
from broker.store.engine.statements import batches, values_of
from broker.store.jobs.reader import StoreReader
from broker.store.market import availability_history, polls, retention
from broker.store.market.doubts import ENDED
from broker.store.market.market import SERIES, conditions
from broker.store.market.offer_rows import OFFER_COLUMNS, OFFER_QUERY, POOL_COLUMNS, to_offers
from broker.store.records import (
    SUCCESSES,
    AvailabilityPoint,
    Freshness,
    PricePoint,
    PrunedPriceHistory,
    Series,
    SignalPoint,
)
from broker.store.schema.market import OfferRow, PollRunRow, PoolRow, PriceChangeRow, SignalChangeRow

_KINDS = {code: Availability(kind) for kind, code in polls.CODES.items()}
_AS_OF = len(POOL_COLUMNS) + 1  # the index of the date in `OFFER_QUERY`
_MACHINE = ("provider", "region", "instance_type", "accelerator", "count", "capacity_type", "term_months")


def _series(connection: Connection, query: OfferQuery | None = None) -> list[Series]:
    """The series that match, including ended ones and superseded reference prices (ignoring ``max_price``)."""
    filters = [condition for _, condition in conditions(connection, query or OfferQuery())]
    rows = connection.execute(
        OFFER_QUERY.add_columns(OfferRow.polled_by, OfferRow.ended_at).where(*filters).order_by(OfferRow.id)
    ).all()
    offers = to_offers([row[:-2] for row in rows])
    return [
        Series(offer, row.polled_by, None if row.ended_at is None else from_micros(row.ended_at))
        for offer, row in zip(offers, rows, strict=True)
    ]


def _offers_at(connection: Connection, when: datetime, query: OfferQuery | None = None) -> list[Offer]:
    """The offers in force at ``when``, by present knowledge. Their ``as_of`` is the later of the start of their price
    and the last complete poll by then; what the market does not change (CPUs, billing, …) is the newest.

    For a moment in an outage of polling, these are the offers before the outage. Before the cut-off of `prune`, only
    the kept changes count.
    """
    query, moment = query or OfferQuery(), to_micros(when)
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
    """The rows without reference prices of machines for which a live source had a price, as for current offers."""

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


def _price_series(connection: Connection, offer: Offer, start: datetime, end: datetime) -> list[PricePoint]:
    """The prices of the offer's pool and source: the one in force at ``start`` first (dated when it came into force),
    then each change up to ``end`` (inclusive). A point without a price is a gap: not known, or no longer offered.
    """
    points: list[PricePoint] = []
    for change in _changes(connection, offer, start, end):
        is_gone = change.micros is None or change.availability == ENDED
        price = None if is_gone else Money(change.micros or 0)
        if not points or points[-1].price != price:
            learned = change.at if change.learned is None else change.learned
            points.append(PricePoint(from_micros(change.at), price, from_micros(learned)))
    return points


def _price_series_of(
    connection: Connection, offers: Sequence[Offer], start: datetime, end: datetime
) -> Mapping[str, list[PricePoint]]:
    """The price series of several offers, by their ids, from one snapshot."""
    return {offer.id: _price_series(connection, offer, start, end) for offer in offers}


def _availability_series(
    connection: Connection, offer: Offer, start: datetime, end: datetime
) -> list[AvailabilityPoint]:
    """The availability in force at ``start``, then each change up to ``end`` (inclusive)."""
    points: list[AvailabilityPoint] = []
    for change in _changes(connection, offer, start, end):
        availability = _KINDS.get(change.availability)
        if not points or points[-1].availability != availability:
            points.append(AvailabilityPoint(from_micros(change.at), availability))
    return points


def _signal_series(connection: Connection, offer: Offer, start: datetime, end: datetime) -> list[SignalPoint]:
    """The provider's score and interruption rate in force at ``start``, then each change up to ``end`` (inclusive);
    empty if the provider never reported either.
    """
    rows = _changes(connection, offer, start, end, SignalChangeRow)
    return [SignalPoint(from_micros(row.at), row.score, row.interruption_rate) for row in rows]


def _changes(
    connection: Connection,
    offer: Offer,
    start: datetime,
    end: datetime,
    row: type[PriceChangeRow] | type[SignalChangeRow] = PriceChangeRow,
) -> list[Any]:
    """The change in force at ``start``, then each one up to ``end`` (inclusive)."""
    series = connection.scalar(SERIES, {"pool": offer.pool, "source": offer.source})
    if series is None:
        return []
    at, begin = row.at, to_micros(start)
    statement = select(row).where(row.series == series)
    first = connection.execute(statement.where(at <= begin).order_by(at.desc()).limit(1)).first()
    later = connection.execute(statement.where(at > begin, at <= to_micros(end)).order_by(at)).all()
    return ([first] if first else []) + list(later)


def _freshness(connection: Connection, now: datetime) -> dict[str, Freshness]:
    """The freshness of each provider's offers at ``now``, by the adapter's name, with its last polls; without providers
    that were never polled.
    """
    runs = polls.last_polls(connection)
    # Ordered by number, not by date: a clock may have been set back.
    providers = values_of(PollRunRow.provider)
    is_success = (
        PollRunRow.provider == providers.c.value,
        PollRunRow.status.in_(SUCCESSES),
    )
    newest = select(PollRunRow.id).where(*is_success).order_by(PollRunRow.id.desc()).limit(1).scalar_subquery()
    ids = select(newest).select_from(providers)
    rows = connection.execute(select(PollRunRow.provider, PollRunRow.finished).where(PollRunRow.id.in_(ids)))
    successes = {provider: from_micros(finished) for provider, finished in rows}

    dated = OfferRow.reference.is_(False)  # reference prices have no age limit
    too_old = and_(dated, OfferRow.max_age.is_not(None), OfferRow.as_of + OfferRow.max_age < to_micros(now))
    rows_by_provider = connection.execute(
        select(
            OfferRow.polled_by,
            func.count(),
            func.sum(case((too_old, 1), else_=0)),
            func.min(OfferRow.as_of),
            func.max(OfferRow.as_of),
            func.min(case((dated, OfferRow.max_age))),
            func.count(OfferRow.doubt),
        )
        .where(OfferRow.ended_at.is_(None), ~OfferRow.superseded)
        .group_by(OfferRow.polled_by)
    )
    offers = {row[0]: tuple(row[1:]) for row in rows_by_provider}
    result = {}
    for name in sorted({*runs, *offers}):
        count, stale, oldest, newest, limit, suspicious = offers.get(name, (0, 0, None, None, None, 0))
        result[name] = Freshness(
            provider=name,
            offers=count,
            stale=int(stale),
            oldest=None if oldest is None else from_micros(oldest),
            newest=None if newest is None else from_micros(newest),
            limit=None if limit is None else timedelta(microseconds=limit),
            last=runs.get(name),
            last_success=successes.get(name),
            suspicious=suspicious,
        )
    return result


class MarketHistory:
    """Reached as ``store.market``.

    Times are UTC; every method reads one snapshot, is read-only unless it says otherwise, and may raise `StoreProblem`.

    A series contains the offers of one source for one pool; an `Offer` identifies it by ``pool`` and ``source``.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    series = reads(_series)
    offers_at = reads(_offers_at)
    price_series = reads(_price_series)
    price_series_of = reads(_price_series_of)
    availability_series = reads(_availability_series)
    signal_series = reads(_signal_series)
    source_reports = reads(availability_history.source_reports)
    attempts = reads(availability_history.attempts)
    poll_runs = reads(polls.poll_runs)
    freshness = reads(_freshness)
    kept_answers = reads(polls.cached_answers)

    def prune(self, before: datetime, *, dry_run: bool = False) -> PrunedPriceHistory:
        """Delete the market's history before that moment.

        With ``dry_run``, only count.

        Keeps: for each series the change in force at that moment; every change that an attempt refers to, from its
        decision until its machine was gone; of each provider the newest poll, the newest successful one, and the newest
        complete one before that moment. Rows of offers are never deleted. Writes in many short transactions; may be
        stopped and repeated at any time. The file does not shrink: freed space is reused. Raises `StoreProblem` if
        there is a job that this version cannot read.
        """
        with self._database.reading() as connection:
            snapshot = StoreReader(connection)
            launched = retention.uses(connection, snapshot.submitted_before(before))
            if snapshot.unreadable:
                raise StoreProblem(
                    f"{snapshot.unreadable[0].message}; so its prices are unknown here",
                    where=self._database.where,
                    hint=snapshot.unreadable[0].hint,
                )
            series = retention.all_series(connection)
        pruning = retention.Pruning(to_micros(before), launched, dry_run)
        transaction = self._database.reading if dry_run else self._database.writing
        for batch in batches(series, retention.BATCH):
            with transaction() as connection:
                retention.prune_series(connection, pruning, batch)
        with transaction() as connection:
            retention.prune_polls(connection, pruning)
        return PrunedPriceHistory(before, dry_run, **pruning.dropped)
