"""The figures by which a judge assesses polls and prices."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, bindparam, func, or_, select, update

from broker.core.market.judging import (
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
_LONG_AGO = 200  # the number of polls in which the ends of offers in small groups are counted
ENDED = 4  # the code of `price_change.availability` for an offer that the provider no longer reports
_HISTORY = timedelta(days=90) // timedelta(microseconds=1)  # how long ended offers count toward price levels
_KEPT = timedelta(hours=1) // timedelta(microseconds=1)


def answer_counts(
    connection: Connection, provider: str, known: Mapping[tuple[str, str], KnownOffer], told: set[tuple[str, str]]
) -> AnswerCounts:
    """The counts of an answer, compared with the provider's current offers.

    Without holdings of the account, which end by themselves.
    """
    missing = (row for key, row in known.items() if key not in told and row[ENDED_AT] is None)
    if told and not any(row[MONEY_AT] == MoneyKind.CASH.value for row in missing):
        everything = GroupCount(len(told), len(told))
        churn, was_empty, _ = _past(connection, provider)
        return AnswerCounts(len(told), everything, {}, churn, was_empty)
    current = [
        (key in told, row[ID_AT])
        for key, row in known.items()
        if row[ENDED_AT] is None and row[MONEY_AT] == MoneyKind.CASH.value
    ]
    of_all = GroupCount(len(current), sum(again for again, _ in current))
    groups: dict[tuple[str, str], GroupCount] = {}
    churn, was_empty, begun = _past(connection, provider)
    if of_all.missing:
        had, again_by = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        places = _places(connection, provider)
        for again, series in current:
            whose, region, gpu = places[series]
            names = _groups(whose, region, gpu)
            had.update(names)
            if again:
                again_by.update(names)
        ended = _ends(connection, provider, begun[-1]) if begun else Counter()
        groups = {name: GroupCount(count, again_by[name], ended[name]) for name, count in had.items() if name[1]}
    return AnswerCounts(len(told), of_all, groups, churn, was_empty, len(begun))


def _groups(provider: str, region: str, gpu: str) -> tuple[tuple[str, str], ...]:
    """The groups that an offer belongs to."""
    return ("provider", provider), ("region", f"{provider} {region}"), ("GPU", gpu)


def _ends(connection: Connection, provider: str, since: int) -> Counter[tuple[str, str]]:
    """The number of ended offers of each group since then, including those that returned."""
    whose = PoolRow.provider, PoolRow.region, PoolRow.accelerator
    query = (
        select(*whose, func.count())
        .join_from(OfferRow, PoolRow, OfferRow.pool_id == PoolRow.id)
        .join(PriceChangeRow, PriceChangeRow.series == OfferRow.id)
        .where(OfferRow.polled_by == provider, PriceChangeRow.at >= since, PriceChangeRow.availability == ENDED)
        .group_by(*whose)
    )
    found = Counter[tuple[str, str]]()
    for *place, number in connection.execute(query):
        for group in _groups(*place):
            found[group] += number
    return found


def _places(connection: Connection, provider: str) -> dict[int, tuple[str, str, str]]:
    """Provider, region and accelerator of the provider's current offers, by id."""
    query = (
        select(OfferRow.id, PoolRow.provider, PoolRow.region, PoolRow.accelerator)
        .join_from(OfferRow, PoolRow, OfferRow.pool_id == PoolRow.id)
        .where(OfferRow.polled_by == provider, OfferRow.ended_at.is_(None))
    )
    return {row[0]: (row[1], row[2], row[3]) for row in connection.execute(query)}


def _past(connection: Connection, provider: str) -> tuple[tuple[float, ...], bool, tuple[int, ...]]:
    """Of the provider's believed polls, newest first: the fraction of offers that each of the last ones ended, whether
    the last was empty, and the start of each (for more polls, for the ends of small groups).
    """
    well = PollRunRow.status.in_(SUCCESSES)
    rows = connection.execute(
        select(PollRunRow.seen, PollRunRow.gone, PollRunRow.started)
        .where(PollRunRow.provider == provider, well)
        .order_by(PollRunRow.id.desc())
        .limit(_LONG_AGO)
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
            self._accepted = _accepted(self._connection, self._provider)
        return None if f"{offer.pool}@{offer.source}" in self._accepted else odd

    def about(self, offer: Offer, trusted: int | None) -> OddPrice | None:
        """Why the price is not believed; None if it is. ``trusted``: the offer's previous believed price, in
        micro-dollars."""
        if self._judge is None:
            return None
        if self._levels is None:
            self._levels = _kept_levels(self._connection, self._now)
        on_demand = None
        if offer.capacity_type is CapacityType.SPOT:
            if self._on_demand is None:
                self._on_demand = _on_demand(self._offers)
            on_demand = self._on_demand.get(_machine(offer))
        before = None if trusted is None else Money(trusted)
        levels = self._levels.get(offer.accelerator or "", {})
        return self._judge.odd_price(offer, PriceContext(before, levels, on_demand))


def _machine(offer: Offer) -> tuple[object, ...]:
    return offer.provider, offer.region, offer.instance_type, offer.accelerator, offer.count


def _on_demand(offers: Iterable[Offer]) -> dict[tuple[object, ...], Money]:
    """The highest on-demand price of each machine in the answer."""
    found: dict[tuple[object, ...], Money] = {}
    for offer in offers:
        if offer.capacity_type is CapacityType.ON_DEMAND and offer.price is not None:
            key, price = _machine(offer), offer.price
            before = found.get(key)
            if before is None or before.micros < price.micros:
                found[key] = price
    return found


_LEVELS: WeakKeyDictionary[Engine, tuple[int, ModelLevels]] = WeakKeyDictionary()


def _kept_levels(connection: Connection, now: int) -> ModelLevels:
    """`price_levels`, cached for an hour: medians over 90 days of a hundred thousand offers take a fifth of a
    second.
    """
    kept = _LEVELS.get(connection.engine)
    if kept is None or not 0 <= now - kept[0] < _KEPT:
        kept = _LEVELS[connection.engine] = now, price_levels(connection, now)
    return kept[1]


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


def _accepted(connection: Connection, provider: str) -> frozenset[str]:
    """The offers (``pool@source``) of an adapter whose price a person accepted."""
    rows = connection.scalars(select(PriceAcceptanceRow.what).where(PriceAcceptanceRow.provider == provider))
    return frozenset(offer for what in rows for offer in json.loads(what))


def doubt_untold(connection: Connection, ids: Sequence[int]) -> None:
    """Mark offers that are missing from a suspect poll."""
    if ids:
        marked = (
            update(OfferRow).where(OfferRow.id == bindparam("b_id")).values(doubt=Doubt.UNTOLD.value, doubt_detail="")
        )
        connection.execute(marked, [{"b_id": one} for one in ids])
