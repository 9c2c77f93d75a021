"""The figures by which a judge assesses polls and prices."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, bindparam, func, or_, select, update

from broker.core.market.judging import AnswerCounts, GroupCount, MarketJudge, OddPrice, PriceContext, PriceLevels
from broker.core.market.offers import CapacityType, Doubt, MoneyKind, Offer
from broker.core.values.money import Money
from broker.store.records import PollStatus
from broker.store.tables.market import OFFER, POLL, POOL

_POLLS = 20  # whose churn determines the expected churn
_HISTORY = timedelta(days=90) // timedelta(microseconds=1)  # age of ended offers that count for price levels


def answer_counts(
    connection: Connection, provider: str, known: Mapping[tuple[str, str], Any], told: set[tuple[str, str]]
) -> AnswerCounts:
    """The counts of an answer, compared with the provider's current offers. Holdings of the account are not counted:
    they end by themselves."""
    missing = (row for key, row in known.items() if key not in told and row.ended_at is None)
    if told and not any(row.money == MoneyKind.CASH.value for row in missing):
        everything = GroupCount(len(told), len(told))
        return AnswerCounts(len(told), everything, {}, *_past(connection, provider))
    current = [
        (key in told, row) for key, row in known.items() if row.ended_at is None and row.money == MoneyKind.CASH.value
    ]
    of_all = GroupCount(len(current), sum(again for again, _ in current))
    groups: dict[tuple[str, str], GroupCount] = {}
    if of_all.missing:
        had, again_by = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        places = _places(connection, provider)
        for again, row in current:
            whose, region, gpu = places[row.id]
            names = ("provider", whose), ("region", f"{whose} {region}"), ("GPU", gpu)
            had.update(names)
            if again:
                again_by.update(names)
        groups = {name: GroupCount(count, again_by[name]) for name, count in had.items() if name[1]}
    churn, was_empty = _past(connection, provider)
    return AnswerCounts(len(told), of_all, groups, churn, was_empty)


def _places(connection: Connection, provider: str) -> dict[int, tuple[str, str, str]]:
    """Provider, region and accelerator of its current offers, by id."""
    query = (
        select(OFFER.c.id, POOL.c.provider, POOL.c.region, POOL.c.accelerator)
        .join_from(OFFER, POOL, OFFER.c.pool_id == POOL.c.id)
        .where(OFFER.c.polled_by == provider, OFFER.c.ended_at.is_(None))
    )
    return {row[0]: (row[1], row[2], row[3]) for row in connection.execute(query)}


def _past(connection: Connection, provider: str) -> tuple[tuple[float, ...], bool]:
    c = POLL.c
    well = c.status.in_((PollStatus.OK.value, PollStatus.ACCEPTED.value))
    rows = connection.execute(
        select(c.seen, c.gone).where(c.provider == provider, well).order_by(c.id.desc()).limit(_POLLS)
    ).all()
    churn = tuple(row.gone / (row.seen + row.gone) for row in rows if row.gone)
    return churn, bool(rows) and not rows[0].seen


class PriceDoubts:
    """Judges the prices of one poll. Reads the figures for comparison on first use."""

    def __init__(self, connection: Connection, judge: MarketJudge | None, offers: Sequence[Offer], now: int) -> None:
        self._connection = connection
        self._judge = judge
        self._offers = offers
        self._now = now
        self._levels: Mapping[str, Mapping[str, PriceLevels]] | None = None
        self._on_demand: dict[tuple[object, ...], Money] | None = None

    def about(self, offer: Offer, trusted: int | None) -> OddPrice | None:
        """Why the price is not believed; None if it is. ``trusted``: the offer's previous believed price, in
        micro-dollars."""
        if self._judge is None:
            return None
        if self._levels is None:
            self._levels = price_levels(self._connection, self._now)
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
            key = _machine(offer)
            found[key] = max(found.get(key, offer.price), offer.price)
    return found


def price_levels(connection: Connection, now: int) -> dict[str, dict[str, PriceLevels]]:
    """Price levels by accelerator and capacity type, from every believed price of the last 90 days, including price
    lists. ``now``: microseconds since 1970 UTC."""
    each = (OFFER.c.micros / POOL.c.count).label("each")
    group = (POOL.c.accelerator, POOL.c.capacity_type, POOL.c.provider)
    ranked = (
        select(
            *group,
            each,
            func.row_number().over(partition_by=group, order_by=each).label("place"),
            func.count().over(partition_by=group).label("number"),
        )
        .join_from(OFFER, POOL, OFFER.c.pool_id == POOL.c.id)
        .where(
            OFFER.c.doubt.is_(None),
            OFFER.c.micros > 0,
            OFFER.c.money == MoneyKind.CASH.value,
            POOL.c.count > 0,
            POOL.c.accelerator != "",
            or_(OFFER.c.ended_at.is_(None), OFFER.c.ended_at > now - _HISTORY),
        )
        .subquery()
    )
    median = ranked.c.place * 2 - ranked.c.number
    rows = connection.execute(
        select(ranked.c.accelerator, ranked.c.capacity_type, func.min(ranked.c.each), func.max(ranked.c.each))
        .where(median >= 0, median <= 1)
        .group_by(ranked.c.accelerator, ranked.c.capacity_type)
    )
    found: dict[str, dict[str, PriceLevels]] = defaultdict(dict)
    for accelerator, kind, lowest, highest in rows:
        found[accelerator][kind] = PriceLevels(Money(int(lowest)), Money(int(highest)))
    return dict(found)


def doubt_untold(connection: Connection, ids: Sequence[int]) -> None:
    """Mark offers that are missing from a suspect poll."""
    if ids:
        marked = update(OFFER).where(OFFER.c.id == bindparam("b_id")).values(doubt=Doubt.UNTOLD.value, doubt_detail="")
        connection.execute(marked, [{"b_id": one} for one in ids])
