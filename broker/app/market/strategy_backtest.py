"""The cost of a job on the recorded history if it had started at other hours.

The record ends at the last full hour, windows start at full hours before it, and a deadline that is a point in time
counts from it, so that the result is the same for an hour unless the store changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING

from broker.app.market.market import market_for, query_for
from broker.app.market.risk import risks
from broker.app.market.strategy_history import Record, record
from broker.backtest.placement.market import PoolRecord, ReplayMarket
from broker.backtest.placement.report import PlacementReport
from broker.backtest.placement.run import PlacementReplay, Progress, check, draw, run_on
from broker.core.errors import BrokerError, InvalidInput, MissingExtra
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement, Plan
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.placement.conditions import Conditions
from broker.placement.planner import make_plan
from broker.placement.strategy.live import changeover_of, is_spot, seconds_on, useful_rate

if TYPE_CHECKING:
    from broker.app.wiring import Broker

GAP = timedelta(minutes=10)
HISTORY = timedelta(days=30)
"""Strategies may use this much history before the requested days."""
MOST_POOLS = 8
_ENGINE = "any"


class NothingServes(BrokerError):
    """No offer of a kind that the backtest needs can serve the job (exit 4)."""

    exit_code = 4


@dataclass(frozen=True, slots=True)
class JobBacktest:
    """``report``: as in every backtest. ``as_of``: the full hour at which the record ends; ``since``, ``until``: the
    first and last start of a window (all UTC). ``on_demand``: the on-demand placement used when waiting ends, at its
    present price."""

    job: Job
    report: PlacementReport
    as_of: datetime
    since: datetime
    until: datetime
    on_demand: Placement


def job_backtest(
    broker: Broker,
    job: Job,
    request: PlacementReplay,
    *,
    days: int,
    deadline: float | None,
    progress: Progress | None = None,
    workers: int = 1,
) -> JobBacktest:
    """Replay ``job`` from full hours of the last ``days``: as many as the request has starts, drawn by its seed.

    Work and changeover are those of the job on the on-demand machine. ``deadline``: seconds from the start; None: the
    job's. The cheapest eight spot pools that serve the job, or did within those days, may be used. Raises
    `InvalidInput` for a job without work or deadline, one that is late even on demand, and a history that is too short;
    `NothingServes` if no on-demand or spot offer serves it; `MissingExtra` without NumPy.
    """
    if find_spec("numpy") is None:
        raise MissingExtra("backtest", "a backtest")
    as_of = broker.clock.now().replace(minute=0, second=0, microsecond=0)
    if job.work is None:
        raise InvalidInput("the job does not say how much work it is", where=job.name, hint="add `work: 48h`")
    if deadline is None:
        due = job.deadline_at(as_of)
        if due is None:
            raise InvalidInput("neither the job nor --deadline names a deadline", where=job.name)
        deadline = (due - as_of).total_seconds()
    reach = timedelta(days=days)
    plan, conditions = _plan(broker, job, as_of, reach)
    steady = plan.cheapest(CapacityType.ON_DEMAND)
    if steady is None:
        raise NothingServes(
            "no on-demand offer serves the job", where=job.name, hint="`gpubroker plan JOB.yaml --explain`"
        )
    spot = _pools(plan, steady)
    if not spot:
        raise NothingServes("no spot offer serves the job", where=job.name, hint="`gpubroker plan JOB.yaml --explain`")
    chosen = spot[:MOST_POOLS]
    rate = max(placement.interruptions_per_hour for placement in chosen)
    asked = replace(
        request,
        work=seconds_on(steady, job.work.duration),
        deadlines=[deadline],
        changeovers=[changeover_of(job, conditions, rate)],
        together=True,
        prices=replace(request.prices, gang=steady.nodes),
    )
    _check(asked, job, steady)
    past = record(broker.store, [p.offer for p in chosen], as_of, reach + HISTORY, GAP)
    starts, note = draw(_room(asked, past, reach, job), asked)
    notes = {
        f"the cheapest {MOST_POOLS} of {len(spot)} pools that serve the job": len(spot) > MOST_POOLS,
        f"a pool with one machine is assumed to have all {steady.nodes}": steady.nodes > 1,
        note: bool(note),
    }
    market = _market(past, chosen, steady, [note for note, holds in notes.items() if holds])
    report = run_on(asked, [([market], starts)], progress, workers=workers)
    first = as_of - past.ticks * GAP
    return JobBacktest(job, report, as_of, first + starts[0] * GAP, first + starts[-1] * GAP, steady)


def _plan(broker: Broker, job: Job, as_of: datetime, reach: timedelta) -> tuple[Plan, Conditions]:
    """The plan as if every offer recorded within ``reach`` were available now, and every engine installed."""
    market = market_for(broker, job)
    listed = {offer.pool for offer in market.offers}
    gone = [
        series.offer
        for series in broker.store.market.series(replace(query_for(job), capacity_types=(CapacityType.SPOT,)))
        if series.ended is not None and series.ended > as_of - reach and series.offer.pool not in listed
    ]
    offers: list[Offer] = [
        replace(offer, availability=Availability.AVAILABLE, slots=None, engine=_ENGINE, max_age=None)
        for offer in (*market.offers, *gone)
    ]
    known = risks(broker, query_for(job), as_of)
    conditions = replace(
        market.conditions, engines={_ENGINE: job.needs}, allow_stale_prices=True, hazard=known, away=known.away
    )
    free = job.model_copy(update={"deadline": None})
    return make_plan(free, offers, now=as_of, submitted_at=as_of, conditions=conditions), conditions


def _pools(plan: Plan, steady: Placement) -> list[Placement]:
    """The cheapest placement of each spot pool, the cheapest pool first."""
    best: dict[str, Placement] = {}
    for placement in plan.placements:
        if is_spot(placement) and placement.throughput >= steady.throughput * 0.999 and not placement.offer.reference:
            best.setdefault(placement.offer.pool, placement)
    return sorted(best.values(), key=lambda p: (useful_rate(p, steady), p.offer.pool))


def _check(request: PlacementReplay, job: Job, steady: Placement) -> None:
    (deadline,), (changeover,) = request.deadlines, request.changeovers
    if deadline < request.work + changeover:
        raise InvalidInput(
            f"{deadline / 3600:.1f} h until the deadline, but {steady.offer.pool} takes {request.work / 3600:.1f} h"
            f" for the work after {changeover / 3600:.1f} h to start, restore and repeat lost work",
            where=job.name,
            hint="set a later deadline in the job file or with --deadline",
        )
    check(request)


def _room(request: PlacementReplay, past: Record, reach: timedelta, job: Job) -> Sequence[int]:
    """The ticks at full hours at which a window may start; the last tick is the last before a full hour."""
    hour = timedelta(hours=1) // GAP
    window = -(-round(request.deadlines[0]) // round(GAP.total_seconds()))
    first = max(past.ticks - reach // GAP, 0)
    room = range(first + (past.ticks - first) % hour, past.ticks - window + 1, hour)
    if not room:
        raise InvalidInput(
            f"the store has {past.ticks * GAP / timedelta(hours=1):.1f} h of history of these pools,"
            f" too little for a deadline of {request.deadlines[0] / 3600:g} h from a full hour",
            where=job.name,
            hint="`gpubroker serve` or `gpubroker prices poll` records prices; `gpubroker prices history` shows them",
        )
    return room


def _market(past: Record, spot: Sequence[Placement], steady: Placement, notes: Sequence[str]) -> ReplayMarket:
    by_pool = {placement.offer.pool: placement for placement in spot}
    pools = []
    for name, bits in past.available.items():
        placement = by_pool[name]
        worth = placement.nodes * steady.throughput / placement.throughput
        price = tuple(each * worth for each in past.price[name])
        pools.append(PoolRecord(name, tuple(bits), price, steady.rate.micros / 1e6))
    about = (
        f"on demand: {steady.offer.pool} at its present price of {steady.rate} per hour",
        "between polls, prices and availability are those of the poll before; policies are not applied",
    )
    called = pools[0].name if len(pools) == 1 else f"{len(pools)} pools together"
    return ReplayMarket("recorded", called, GAP.total_seconds(), tuple(pools), (*about, *notes))
