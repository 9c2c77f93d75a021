"""The figures by which a judge assesses polls and prices."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, bindparam, func, or_, select, update

from broker.core.market.market_judge import (
    AnswerCounts,
    GroupCount,
    MarketJudge,
    ModelLevels,
    OddPrice,
    PriceContext,
    levels_of,
)
from broker.core.market.offers import CapacityType, Doubt, MoneyKind, Offer
from broker.core.values.money import Money
from broker.store.market.offer_rows import ENDED_AT, ID_AT, MONEY_AT, KnownOffer
from broker.store.records import SUCCESSES
from broker.store.schema.market import OfferRow, PollRunRow, PoolRow, PriceAcceptanceRow, PriceChangeRow

_POLLS = 20  # the number of polls whose churn determines the expected churn
_LONG_POLLS = 200  # the number of polls in which the ends of offers in small groups are counted
ENDED = 4  # the code of `price_change.availability` for an offer that the provider no longer reports
_HISTORY = timedelta(days=90) // timedelta(microseconds=1)  # how long ended offers count toward price levels
_CACHE_TIME = timedelta(hours=1) // timedelta(microseconds=1)


def answer_counts(
    connection: Connection, provider: str, stored: Mapping[tuple[str, str], KnownOffer], reported: set[tuple[str, str]]
) -> AnswerCounts:
    """The counts of an answer, compared with the provider's current offers.

    Without holdings of the account, which end by themselves.
    """
    missing = (row for key, row in stored.items() if key not in reported and row[ENDED_AT] is None)
    if reported and not any(row[MONEY_AT] == MoneyKind.CASH.value for row in missing):
        full_count = GroupCount(len(reported), len(reported))
        churn, was_empty, _ = _poll_history(connection, provider)
        return AnswerCounts(len(reported), full_count, {}, churn, was_empty)
    current = [
        (key in reported, row[ID_AT])
        for key, row in stored.items()
        if row[ENDED_AT] is None and row[MONEY_AT] == MoneyKind.CASH.value
    ]
    total = GroupCount(len(current), sum(is_returned for is_returned, _ in current))
    groups: dict[tuple[str, str], GroupCount] = {}
    churn, was_empty, starts = _poll_history(connection, provider)
    if total.missing:
        known_counts, returned_counts = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        places = _places(connection, provider)
        for is_returned, series in current:
            owner, region, gpu = places[series]
            names = _groups(owner, region, gpu)
            known_counts.update(names)
            if is_returned:
                returned_counts.update(names)
        end_counts = _ends(connection, provider, starts[-1]) if starts else Counter()
        groups = {
            name: GroupCount(count, returned_counts[name], end_counts[name])
            for name, count in known_counts.items()
            if name[1]
        }
    return AnswerCounts(len(reported), total, groups, churn, was_empty, len(starts))


def _groups(provider: str, region: str, gpu: str) -> tuple[tuple[str, str], ...]:
    """The groups that an offer belongs to."""
    return ("provider", provider), ("region", f"{provider} {region}"), ("GPU", gpu)


def _ends(connection: Connection, provider: str, since: int) -> Counter[tuple[str, str]]:
    """The number of ended offers of each group since then, including those that returned."""
    columns = PoolRow.provider, PoolRow.region, PoolRow.accelerator
    query = (
        select(*columns, func.count())
        .join_from(OfferRow, PoolRow, OfferRow.pool_id == PoolRow.id)
        .join(PriceChangeRow, PriceChangeRow.series == OfferRow.id)
        .where(OfferRow.polled_by == provider, PriceChangeRow.at >= since, PriceChangeRow.availability == ENDED)
        .group_by(*columns)
    )
    counts = Counter[tuple[str, str]]()
    for *place, number in connection.execute(query):
        for group in _groups(*place):
            counts[group] += number
    return counts


def _places(connection: Connection, provider: str) -> dict[int, tuple[str, str, str]]:
    """Provider, region and accelerator of the provider's current offers, by id."""
    query = (
        select(OfferRow.id, PoolRow.provider, PoolRow.region, PoolRow.accelerator)
        .join_from(OfferRow, PoolRow, OfferRow.pool_id == PoolRow.id)
        .where(OfferRow.polled_by == provider, OfferRow.ended_at.is_(None))
    )
    return {row[0]: (row[1], row[2], row[3]) for row in connection.execute(query)}


def _poll_history(connection: Connection, provider: str) -> tuple[tuple[float, ...], bool, tuple[int, ...]]:
    """Of the provider's believed polls, newest first: the fraction of offers that each of the last ones ended, whether
    the last was empty, and the start of each (for more polls, for the ends of small groups).
    """
    is_success = PollRunRow.status.in_(SUCCESSES)
    rows = connection.execute(
        select(PollRunRow.seen, PollRunRow.gone, PollRunRow.started)
        .where(PollRunRow.provider == provider, is_success)
        .order_by(PollRunRow.id.desc())
        .limit(_LONG_POLLS)
    ).all()
    churn = tuple(row.gone / (row.seen + row.gone) for row in rows[:_POLLS] if row.gone)
    return churn, bool(rows) and not rows[0].seen, tuple(row.started for row in rows)


class PriceDoubts:
    """Judges the prices of one poll. Reads the figures for comparison on first use."""

    def __init__(
        self, connection: Connection, provider: str, judge: MarketJudge | None, offers: Sequence[Offer], now: int
    ) -> None:
        self._connection = connection
        self._provider = provider
        self._judge = judge
        self._offers = offers
        self._now = now
        self._levels: ModelLevels | None = None
        self._on_demand: dict[tuple[object, ...], Money] | None = None
        self._accepted: frozenset[str] | None = None

    def about_unchanged(self, offer: Offer) -> OddPrice | None:
        """Why a previously believed price is now suspicious, since other prices of its model became known; None if it
        is not, or if a person accepted it."""
        odd = self.about(offer, None)
        if odd is None or odd.doubt is Doubt.UNCOMPARED:
            return None
        if self._accepted is None:
            self._accepted = _accepted_offers(self._connection, self._provider)
        return None if f"{offer.pool}@{offer.source}" in self._accepted else odd

    def about(self, offer: Offer, trusted: int | None) -> OddPrice | None:
        """Why the price is not believed; None if it is. ``trusted``: the offer's previous believed price, in
        micro-dollars."""
        if self._judge is None:
            return None
        if self._levels is None:
            self._levels = _cached_levels(self._connection, self._now)
        on_demand = None
        if offer.capacity_type is CapacityType.SPOT:
            if self._on_demand is None:
                self._on_demand = _on_demand(self._offers)
            on_demand = self._on_demand.get(_machine_key(offer))
        trusted_price = None if trusted is None else Money(trusted)
        levels = self._levels.get(offer.accelerator or "", {})
        return self._judge.odd_price(offer, PriceContext(trusted_price, levels, on_demand))


def _machine_key(offer: Offer) -> tuple[object, ...]:
    return offer.provider, offer.region, offer.instance_type, offer.accelerator, offer.count


def _on_demand(offers: Iterable[Offer]) -> dict[tuple[object, ...], Money]:
    """The highest on-demand price of each machine in the answer."""
    prices: dict[tuple[object, ...], Money] = {}
    for offer in offers:
        if offer.capacity_type is CapacityType.ON_DEMAND and offer.price is not None:
            key, price = _machine_key(offer), offer.price
            highest = prices.get(key)
            if highest is None or highest.micros < price.micros:
                prices[key] = price
    return prices


_LEVELS: WeakKeyDictionary[Engine, tuple[int, ModelLevels]] = WeakKeyDictionary()


def _cached_levels(connection: Connection, now: int) -> ModelLevels:
    """`price_levels`, cached for an hour: medians over 90 days of a hundred thousand offers take a fifth of a
    second.
    """
    cached = _LEVELS.get(connection.engine)
    if cached is None or not 0 <= now - cached[0] < _CACHE_TIME:
        cached = _LEVELS[connection.engine] = now, price_levels(connection, now)
    return cached[1]


def forget_levels(connection: Connection) -> None:
    """Delete the cached levels; the next poll computes them again."""
    _LEVELS.pop(connection.engine, None)


def price_levels(connection: Connection, now: int) -> ModelLevels:
    """Price levels by accelerator and capacity type, from every believed price of the last 90 days, including price
    lists. ``now``: microseconds since 1970 UTC. Sorted here, as a window function takes twice as long.
    """
    rows = connection.execute(
        select(
            PoolRow.accelerator, PoolRow.capacity_type, PoolRow.provider, OfferRow.micros, PoolRow.count, OfferRow.cpus
        )
        .join_from(OfferRow, PoolRow, OfferRow.pool_id == PoolRow.id)
        .where(
            OfferRow.doubt.is_(None),
            OfferRow.micros > 0,
            OfferRow.money == MoneyKind.CASH.value,
            or_(OfferRow.ended_at.is_(None), OfferRow.ended_at > now - _HISTORY),
        )
    )
    return levels_of(
        (accelerator, kind, provider, micros / units)
        for accelerator, kind, provider, micros, count, cpus in rows
        if (units := count if accelerator else cpus) and micros
    )


def _accepted_offers(connection: Connection, provider: str) -> frozenset[str]:
    """The offers (``pool@source``) of an adapter whose price a person accepted."""
    rows = connection.scalars(select(PriceAcceptanceRow.what).where(PriceAcceptanceRow.provider == provider))
    return frozenset(offer for accepted_text in rows for offer in json.loads(accepted_text))


def mark_missing(connection: Connection, ids: Sequence[int]) -> None:
    """Mark offers that are missing from a suspect poll."""
    if ids:
        statement = (
            update(OfferRow).where(OfferRow.id == bindparam("b_id")).values(doubt=Doubt.UNTOLD.value, doubt_detail="")
        )
        connection.execute(statement, [{"b_id": series_id} for series_id in ids])
