"""The interruption risk of capacity: `broker.placement.pricing.hazard` applied to recorded availability and
attempts."""

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

_LOOKS_BACK = timedelta(days=21)  # older records have almost no weight: see `hazard.HALF_LIFE_HOURS`
_KEPT = timedelta(minutes=5)  # lifetime of an estimate in the cache, which a reconciler with many jobs needs often
_HOUR = 3_600_000_000  # microseconds
_LOSSES = frozenset({Cause.PREEMPTED, Cause.MACHINE_LOST})  # other ends show only that the machine existed until then

_kept: WeakKeyDictionary[Broker, dict[OfferQuery, tuple[datetime, Risks]]] = WeakKeyDictionary()


def risks(broker: Broker, query: OfferQuery, at: datetime | None = None) -> Risks:
    """The risks of the pools that match, from the last three weeks; at most five minutes old, or as of ``at`` (UTC).

    For spot capacity, the reported availability and the attempts of this store count; for other capacity only the
    attempts, because a running machine is not taken away when its type is sold out. A launch that failed for lack of
    capacity shows that the pool was unavailable, until a launch there got machines.
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
        # Two sources of one pool describe the same machines; the source with more data is used.
        known = pools.get(told.offer.pool)
        if known is None or len(there) + len(away) > len(known.there) + len(known.away):
            pools[told.offer.pool] = PoolHistory(told.offer, there, away)
    runs: dict[str, list[AvailabilityStretch]] = defaultdict(list)
    of_pool: dict[str, Offer] = {}
    met: dict[str, list[tuple[float, bool | None]]] = defaultdict(list)
    for ran in broker.store.market.attempts(since):
        if query.accelerators and (ran.offer.accelerator or "cpu") not in query.accelerators:
            continue
        ended = ago(ran.ended) if ran.ended is not None else 0.0
        of_pool[ran.offer.pool] = ran.offer
        met[ran.offer.pool].append((ago(ran.since), ran.cause != Cause.NO_CAPACITY))
        if (began := ago(ran.since)) > ended:
            runs[ran.offer.pool].append(AvailabilityStretch(began, ended, ran.cause in _LOSSES, ran.nodes))
    for pool, lived in runs.items():
        known = pools.get(pool) or PoolHistory(of_pool[pool])
        pools[pool] = replace(known, there=(*known.there, *lived))
    for pool, launches in met.items():
        away = _away(launches)
        if away:
            known = pools.get(pool) or PoolHistory(of_pool[pool])
            pools[pool] = replace(known, away=(*known.away, *away))
    return estimate(pools.values())


def _away(launches: list[tuple[float, bool | None]]) -> tuple[AvailabilityStretch, ...]:
    """When a pool was unavailable, by ``launches`` there: how many hours ago, and whether they got machines.
    Unavailable from the first failed launch to the next successful one, or to the last failed one if none succeeded
    since."""
    in_order = sorted(launches, reverse=True)
    return stretches(in_order, in_order[-1][0])[1]


def _hours_before(now: datetime) -> Callable[[int], float]:
    micros = round(now.timestamp() * 1e6)
    return lambda at: max((micros - at) / _HOUR, 0.0)
