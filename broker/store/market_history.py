"""The market's past and state, one method a question: what commands and watchers ask of a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from broker.core.offers import Offer, OfferQuery
from broker.store import history, polls
from broker.store.database import Database
from broker.store.records import AvailabilityPoint, PastOffer, PollRun, PricePoint, Series, SignalPoint


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

    def poll_runs(
        self, provider: str | None = None, *, since: datetime | None = None, limit: int | None = None
    ) -> list[PollRun]:
        """Polls, newest first."""
        with self._database.reading() as connection:
            return polls.poll_runs(connection, provider, since, limit)
