"""Queries of the market's past and state, one method per query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, and_, case, func, select

from broker.core.errors import StoreProblem
from broker.core.market.cached_answers import CachedAnswer
from broker.core.market.offers import Offer, OfferQuery
from broker.store.engine.database import Database
from broker.store.engine.statement_cache import values_of
from broker.store.engine.times import from_micros, to_micros
from broker.store.jobs.reader import StoreReader
from broker.store.market import availability_history, document_cache, history, polls, retention
from broker.store.market.polls import last_polls
from broker.store.records import (
    SUCCESSES,
    AvailabilityPoint,
    Freshness,
    PollRun,
    PricePoint,
    PrunedPrices,
    Series,
    SignalPoint,
)
from broker.store.schema.market import OfferRow, PollRunRow


class MarketHistory:
    """Reached as ``store.market``.

    Times are UTC; every method reads one snapshot, is read-only unless it says otherwise, and may raise `StoreProblem`.

    A series contains the offers of one source for one pool; an `Offer` identifies it by ``pool`` and ``source``.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def series(self, query: OfferQuery | None = None) -> list[Series]:
        """The series that match, including ended ones and superseded reference prices (ignoring ``max_price``)."""
        with self._database.reading() as connection:
            return history.series(connection, query or OfferQuery())

    def offers_at(self, when: datetime, query: OfferQuery | None = None) -> list[Offer]:
        """The offers in force at ``when``, by present knowledge. Their ``as_of`` is the later of the start of their
        price and the last complete poll by then; what the market does not change (CPUs, billing, …) is the newest.

        For a moment in an outage of polling, these are the offers before the outage. Before the cut-off of `prune`,
        only the kept changes count.
        """
        with self._database.reading() as connection:
            return history.offers_at(connection, when, query or OfferQuery())

    def price_series(self, offer: Offer, start: datetime, end: datetime) -> list[PricePoint]:
        """The prices of the offer's pool and source: the one in force at ``start`` first (dated when it came into
        force), then each change up to ``end`` (inclusive). A point without a price is a gap: not known, or no longer
        offered.
        """
        with self._database.reading() as connection:
            return history.price_points(connection, offer, start, end)

    def price_series_of(
        self,
        offers: Sequence[Offer],
        start: datetime,
        end: datetime,
    ) -> Mapping[str, list[PricePoint]]:
        """`price_series` of several offers, by their ids, from one snapshot."""
        with self._database.reading() as connection:
            return {offer.id: history.price_points(connection, offer, start, end) for offer in offers}

    def availability_series(self, offer: Offer, start: datetime, end: datetime) -> list[AvailabilityPoint]:
        """The availability in force at ``start``, then each change up to ``end`` (inclusive)."""
        with self._database.reading() as connection:
            return history.availability_points(connection, offer, start, end)

    def signal_series(self, offer: Offer, start: datetime, end: datetime) -> list[SignalPoint]:
        """The provider's score and interruption rate in force at ``start``, then each change up to ``end`` (inclusive);
        empty if the provider never reported either.
        """
        with self._database.reading() as connection:
            return history.signal_points(connection, offer, start, end)

    def source_reports(self, query: OfferQuery, since: datetime) -> list[availability_history.SourceReport]:
        """Changes of availability of the matching pools since ``since``, without pools never reported available."""
        with self._database.reading() as connection:
            return availability_history.source_reports(connection, query, to_micros(since))

    def attempts(self, since: datetime) -> list[availability_history.AttemptRecord]:
        """The attempts of the newest jobs submitted from ``since`` on that ran, or that were refused for lack of
        capacity: place, duration and cause of the end.
        """
        with self._database.reading() as connection:
            return availability_history.attempts(connection, to_micros(since))

    def poll_runs(
        self, provider: str | None = None, *, since: datetime | None = None, limit: int | None = None
    ) -> list[PollRun]:
        """Polls, newest first."""
        with self._database.reading() as connection:
            return polls.poll_runs(connection, provider, since, limit)

    def freshness(self, now: datetime) -> Mapping[str, Freshness]:
        """The freshness of each provider's offers at ``now``, by the adapter's name, with its last polls; without
        providers that were never polled."""
        with self._database.reading() as connection:
            return _freshness(connection, now)

    def kept_answers(self, provider: str, now: datetime) -> Mapping[str, CachedAnswer]:
        """The documents that polls of ``provider`` stored, by address.

        Omits those of another version of gpubroker, those older than a week at ``now``, and damaged ones: they are read
        again.
        """
        with self._database.reading() as connection:
            return document_cache.cached_answers(connection, provider, to_micros(now))

    def prune(self, before: datetime, *, dry_run: bool = False) -> PrunedPrices:
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
        for first in range(0, len(series), retention.BATCH):
            with transaction() as connection:
                retention.prune_series(connection, pruning, series[first : first + retention.BATCH])
        with transaction() as connection:
            retention.prune_polls(connection, pruning)
        return pruning.result()


def _freshness(connection: Connection, now: datetime) -> dict[str, Freshness]:
    runs = last_polls(connection)
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
        count, stale, oldest, newest, limit, doubted = offers.get(name, (0, 0, None, None, None, 0))
        result[name] = Freshness(
            provider=name,
            offers=count,
            stale=int(stale),
            oldest=None if oldest is None else from_micros(oldest),
            newest=None if newest is None else from_micros(newest),
            limit=None if limit is None else timedelta(microseconds=limit),
            last=runs.get(name),
            last_success=successes.get(name),
            doubted=doubted,
        )
    return result
