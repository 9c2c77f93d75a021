"""The market's past and state, one method a question: what commands and watchers ask of a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from broker.core.errors import StoreProblem
from broker.core.market.offers import Offer, OfferQuery
from broker.store.engine.database import Database
from broker.store.engine.times import to_micros
from broker.store.jobs.journal import StoreReading
from broker.store.market import availability_history, freshness, history, polls, retention
from broker.store.records import (
    AvailabilityPoint,
    Freshness,
    PastOffer,
    PollRun,
    PricePoint,
    PrunedPrices,
    Series,
    SignalPoint,
)


class MarketHistory:
    """Reached as ``store.market``. Times are UTC; every method is a consistent look of its own, changes nothing unless
    it says so, and may raise `StoreProblem`.

    A series is what one source tells of one pool; an `Offer` names it by its ``pool`` and ``source``.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def series(self, query: OfferQuery | None = None) -> list[Series]:
        """The series that match, those no longer told of and superseded reference prices included (``max_price`` is not
        looked at)."""
        with self._database.reading() as connection:
            return history.series(connection, query or OfferQuery())

    def offers_at(
        self, when: datetime, known_at: datetime | None = None, query: OfferQuery | None = None
    ) -> list[PastOffer]:
        """The offers in force at ``when``: what they cost then by all that is known now, or with ``known_at`` by what
        was known at that moment (a price dated 12:00 and polled at 12:10 holds at 12:05, but was not known then).

        For a moment in an outage these are the offers of before it: see ``seen``. A moment before retention's cut-off
        has only what was kept.
        """
        with self._database.reading() as connection:
            return history.offers_at(connection, when, known_at, query or OfferQuery())

    def price_series(
        self, offer: Offer, start: datetime, end: datetime, known_at: datetime | None = None
    ) -> list[PricePoint]:
        """The prices of the offer's pool and source: the one in force at ``start`` first (dated when it came into
        force), then each change up to ``end`` (included). A point without a price is a gap: not known, or no longer
        offered."""
        with self._database.reading() as connection:
            return history.price_points(connection, offer, start, end, known_at)

    def price_series_of(
        self, offers: Sequence[Offer], start: datetime, end: datetime
    ) -> Mapping[str, list[PricePoint]]:
        """`price_series` of several, by the offers' ids, all from one look."""
        with self._database.reading() as connection:
            return {offer.id: history.price_points(connection, offer, start, end, None) for offer in offers}

    def availability_series(self, offer: Offer, start: datetime, end: datetime) -> list[AvailabilityPoint]:
        """The availability in force at ``start``, then each change up to ``end`` (included)."""
        with self._database.reading() as connection:
            return history.availability_points(connection, offer, start, end)

    def signal_series(self, offer: Offer, start: datetime, end: datetime) -> list[SignalPoint]:
        """The provider's score and interruption rate in force at ``start``, then each change up to ``end``; empty for
        an offer whose provider never gave either."""
        with self._database.reading() as connection:
            return history.signal_points(connection, offer, start, end)

    def came_and_went(self, query: OfferQuery, since: datetime) -> list[availability_history.SourceReport]:
        """When the pools that match could be had, and when not, since then; those that nobody ever told to be available
        are left out."""
        with self._database.reading() as connection:
            return availability_history.told(connection, query, to_micros(since))

    def attempts_ran(self, since: datetime) -> list[availability_history.AttemptRecord]:
        """What ran where, how long, and why it ended: the attempts of the newest jobs submitted since then."""
        with self._database.reading() as connection:
            return availability_history.ran(connection, to_micros(since))

    def poll_runs(
        self, provider: str | None = None, *, since: datetime | None = None, limit: int | None = None
    ) -> list[PollRun]:
        """Polls, newest first."""
        with self._database.reading() as connection:
            return polls.poll_runs(connection, provider, since, limit)

    def freshness(self, now: datetime) -> Mapping[str, Freshness]:
        """How fresh the offers of each provider (the adapter's name) are at ``now``, and its last polls; providers that
        were never asked are not among them."""
        with self._database.reading() as connection:
            return freshness.freshness(connection, now)

    def prune(self, before: datetime, *, dry_run: bool = False) -> PrunedPrices:
        """Forget what the market was before that moment. With ``dry_run``, only count.

        Kept are: for each series the change in force at that moment; every change that a launched attempt refers to,
        from its decision until its machine was gone; of each provider the newest poll, the newest that went well, and
        the newest complete one before that moment. Rows of offers are never dropped. Writes in many short transactions,
        so it may be stopped and repeated at any time. The file does not shrink: what is freed is used again. Raises
        `StoreProblem` where there is a job that this version cannot read.
        """
        with self._database.reading() as connection:
            look = StoreReading(connection)
            launched = retention.uses(connection, look.submitted_before(before))
            if look.unreadable:
                raise StoreProblem(
                    f"{look.unreadable[0].message}; so nobody knows here which prices it refers to",
                    where=self._database.where,
                    hint=look.unreadable[0].hint,
                )
            series = retention.all_series(connection)
        cut = retention.Cut(to_micros(before), launched, dry_run)
        transaction = self._database.reading if dry_run else self._database.writing
        for first in range(0, len(series), retention.BATCH):
            with transaction() as connection:
                retention.cut_series(connection, cut, series[first : first + retention.BATCH])
        with transaction() as connection:
            retention.cut_polls(connection, cut)
        return cut.result()
