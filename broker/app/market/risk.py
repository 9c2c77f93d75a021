"""How risky capacity is, by what the store has seen: `broker.placement.pricing.hazard` over history, attempts and
signals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from weakref import WeakKeyDictionary

from broker.app.wiring import Broker
from broker.core.events.outcomes import Cause
from broker.core.market.offers import CapacityType, Offer, OfferQuery
from broker.placement.pricing.hazard import AvailabilityStretch, PoolHistory, Risks, estimate, stretches

# What lies further back would hardly count: see `hazard.HALF_LIFE_HOURS`.
_LOOKS_BACK = timedelta(days=21)
# Risks change slowly; a reconciler with many jobs asks often.
_KEPT = timedelta(minutes=5)
_HOUR = 3_600_000_000  # microseconds
# An attempt that ended so lost its machine; one that ended otherwise tells only that the machine lived as long.
_LOSSES = frozenset({Cause.PREEMPTED, Cause.MACHINE_LOST})

_kept: WeakKeyDictionary[Broker, dict[OfferQuery, tuple[datetime, Risks]]] = WeakKeyDictionary()


def risks(broker: Broker, query: OfferQuery, at: datetime | None = None) -> Risks:
    """The risks of the pools that match, from the last three weeks; at most five minutes old, or as of ``at`` (UTC).

    Of spot capacity, availability as its provider tells it and our own attempts count; of all other capacity only our
    own attempts, since a machine that runs is not taken away where a type is sold out.
    """
    if at is not None:
        return _estimated(broker, query, at)
    kept = _kept.setdefault(broker, {})
    now = broker.clock.now()
    known = kept.get(query)
    if known is None or not timedelta(0) <= now - known[0] < _KEPT:
        known = kept[query] = now, _estimated(broker, query, now)
    return known[1]


def _estimated(broker: Broker, query: OfferQuery, now: datetime) -> Risks:
    since = now - _LOOKS_BACK
    ago, furthest = _hours_before(now), _LOOKS_BACK / timedelta(hours=1)
    pools: dict[str, PoolHistory] = {}
    spot = replace(query, capacity_types=(CapacityType.SPOT,), count=None, max_price=None)
    for told in broker.store.market.came_and_went(spot, since):
        changes = [(min(ago(at), furthest), state) for at, state in told.changes]
        there, away = stretches(changes, ago(told.looked))
        # Two sources of one pool tell of the same machines: the one that knows more counts.
        known = pools.get(told.offer.pool)
        if known is None or len(there) + len(away) > len(known.there) + len(known.away):
            pools[told.offer.pool] = PoolHistory(told.offer, there, away)
    runs: dict[str, list[AvailabilityStretch]] = defaultdict(list)
    of_pool: dict[str, Offer] = {}
    for ran in broker.store.market.attempts_ran(since):
        if query.accelerators and (ran.offer.accelerator or "cpu") not in query.accelerators:
            continue
        ended = ago(ran.ended) if ran.ended is not None else 0.0
        if (began := ago(ran.since)) > ended:
            of_pool[ran.offer.pool] = ran.offer
            runs[ran.offer.pool].append(AvailabilityStretch(began, ended, ran.cause in _LOSSES, ran.nodes))
    for pool, lived in runs.items():
        known = pools.get(pool) or PoolHistory(of_pool[pool])
        pools[pool] = replace(known, there=(*known.there, *lived))
    return estimate(pools.values())


def _hours_before(now: datetime) -> Callable[[int], float]:
    micros = round(now.timestamp() * 1e6)
    return lambda at: max((micros - at) / _HOUR, 0.0)
