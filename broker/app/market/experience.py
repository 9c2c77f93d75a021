"""What earlier attempts and availability tell: the speed of a job from the steps of its checkpoints, and the
interruption risk of capacity, by `broker.placement.pricing.hazard`."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from weakref import WeakKeyDictionary

from broker.app.wiring import Broker
from broker.core.events.outcomes import Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.job.jobs import Job
from broker.core.market.offers import CapacityType, Offer, OfferQuery
from broker.placement.pricing.conditions import Machine, Pace, Paces
from broker.placement.pricing.hazard import AvailabilityStretch, PoolHistory, Risks, estimate, stretches

_MAX_JOBS = 20  # the newest jobs of the name that are read
_MIN_RUN = timedelta(minutes=6)  # shorter runs are ignored: warm-up distorts their speed
_HOUR = timedelta(hours=1)


def paces_for(broker: Broker, job: Job) -> Paces:
    """The speed by machine of earlier attempts of jobs of this name and team, on the same number of nodes; empty for a
    job that needs no conversion."""
    if not needs_conversion(job):
        return {}
    with broker.store.reading() as reader:
        # The store's filter cannot select jobs without a team.
        views = [
            view
            for view in reader.jobs(name=job.name, teams=[job.team] if job.team else [], limit=_MAX_JOBS)
            if view.job.team == job.team
        ]
    return paces(views, job)


def needs_conversion(job: Job) -> bool:
    """Whether the job may run on another machine than the one that its work is stated for."""
    reference = job.work
    if reference is None or reference.accelerator is None:
        machines = {(machine.accelerator, machine.count) for machine in job.resources}
        return len(machines) > 1
    return any(
        (machine.accelerator, machine.count) != (reference.accelerator, reference.count) for machine in job.resources
    )


def paces(views: Iterable[JobView], job: Job) -> dict[Machine, Pace]:
    """Steps and hours by machine, over all attempts whose checkpoints have steps."""
    pace_by_machine: dict[Machine, Pace] = {}
    for view in views:
        if view.job.num_nodes != job.num_nodes:
            continue
        requested_counts = {
            machine.accelerator: machine.count for machine in view.job.resources if not machine.at_least
        }
        for attempt in view.attempts:
            offer, pace = attempt.placement.offer, _pace(attempt)
            if pace is None or offer.accelerator is None:
                continue
            # A job uses the number of accelerators that it requested, even if the machine has more.
            machine = offer.accelerator, min(requested_counts.get(offer.accelerator) or offer.count, offer.count)
            pace_by_machine[machine] = pace_by_machine.get(machine, Pace(0.0, 0.0)) + pace
    return pace_by_machine


def _pace(attempt: AttemptView) -> Pace | None:
    dated_steps = [
        (checkpoint.at, checkpoint.step) for checkpoint in attempt.checkpoints if checkpoint.step is not None
    ]
    if attempt.running_at is None or not dated_steps:
        return None
    at, step = max(dated_steps)
    run_time, steps = at - attempt.running_at, step - (attempt.resumed_step or 0)
    return Pace(float(steps), run_time / _HOUR) if run_time >= _MIN_RUN and steps > 0 else None


_HISTORY = timedelta(days=21)  # older records have almost no weight: see `hazard.HALF_LIFE_HOURS`
_CACHE_LIFETIME = timedelta(
    minutes=5
)  # lifetime of an estimate in the cache, which a reconciler with many jobs needs often
_HOUR_MICROS = 3_600_000_000
_LOSSES = frozenset({Cause.PREEMPTED, Cause.MACHINE_LOST})  # other ends show only that the machine existed until then

_cache: WeakKeyDictionary[Broker, dict[OfferQuery, tuple[datetime, Risks]]] = WeakKeyDictionary()


def risks(broker: Broker, query: OfferQuery, at: datetime | None = None) -> Risks:
    """The risks of the pools that match, from the last three weeks; at most five minutes old, or as of ``at`` (UTC).

    For spot capacity, the reported availability and the attempts of this store count; for other capacity only the
    attempts, because a running machine is not taken away when its type is sold out. A launch that failed for lack of
    capacity shows that the pool was unavailable, until a launch there got machines.
    """
    if at is not None:
        return _estimate_risks(broker, query, at)
    cached = _cache.setdefault(broker, {})
    now = broker.clock.now()
    entry = cached.get(query)
    if entry is None or not timedelta(0) <= now - entry[0] < _CACHE_LIFETIME:
        entry = cached[query] = now, _estimate_risks(broker, query, now)
    return entry[1]


def _estimate_risks(broker: Broker, query: OfferQuery, now: datetime) -> Risks:
    start = now - _HISTORY
    ago, max_hours = _hours_before(now), _HISTORY / timedelta(hours=1)
    pools: dict[str, PoolHistory] = {}
    spot = replace(query, capacity_types=(CapacityType.SPOT,), count=None, max_price=None)
    for record in broker.store.market.source_reports(spot, start):
        changes = [(min(ago(at), max_hours), state) for at, state in record.changes]
        available, unavailable = stretches(changes, ago(record.looked))
        # Two sources of one pool describe the same machines; the source with more data is used.
        pool_history = pools.get(record.offer.pool)
        if pool_history is None or len(available) + len(unavailable) > len(pool_history.there) + len(pool_history.away):
            pools[record.offer.pool] = PoolHistory(record.offer, available, unavailable)
    runs: dict[str, list[AvailabilityStretch]] = defaultdict(list)
    offer_by_pool: dict[str, Offer] = {}
    launches_by_pool: dict[str, list[tuple[float, bool | None]]] = defaultdict(list)
    for attempt in broker.store.market.attempts(start):
        if query.accelerators and (attempt.offer.accelerator or "cpu") not in query.accelerators:
            continue
        end_hours = ago(attempt.ended) if attempt.ended is not None else 0.0
        offer_by_pool[attempt.offer.pool] = attempt.offer
        launches_by_pool[attempt.offer.pool].append((ago(attempt.since), attempt.cause != Cause.NO_CAPACITY))
        if (start_hours := ago(attempt.since)) > end_hours:
            runs[attempt.offer.pool].append(
                AvailabilityStretch(start_hours, end_hours, attempt.cause in _LOSSES, attempt.nodes)
            )
    for pool, run_periods in runs.items():
        pool_history = pools.get(pool) or PoolHistory(offer_by_pool[pool])
        pools[pool] = replace(pool_history, there=(*pool_history.there, *run_periods))
    for pool, launches in launches_by_pool.items():
        unavailable = _unavailable_periods(launches)
        if unavailable:
            pool_history = pools.get(pool) or PoolHistory(offer_by_pool[pool])
            pools[pool] = replace(pool_history, away=(*pool_history.away, *unavailable))
    return estimate(pools.values())


def _unavailable_periods(launches: list[tuple[float, bool | None]]) -> tuple[AvailabilityStretch, ...]:
    """When a pool was unavailable, by ``launches`` there: how many hours ago, and whether they got machines.
    Unavailable from the first failed launch to the next successful one, or to the last failed one if none succeeded
    since."""
    sorted_launches = sorted(launches, reverse=True)
    return stretches(sorted_launches, sorted_launches[-1][0])[1]


def _hours_before(now: datetime) -> Callable[[int], float]:
    micros = round(now.timestamp() * 1e6)
    return lambda at: max((micros - at) / _HOUR_MICROS, 0.0)
