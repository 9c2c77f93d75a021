"""Translates a plan of the broker for a strategy, and its decision into an order of placements. Pure.

A strategy measures time on one machine: the *steady* placement, the cheapest uninterruptible one that makes the
deadline. Work is converted to hours there, checkpoints included; faster spot machines count by the price of the same
work; slower ones are left out, because slack would shrink on them.

A changeover is start-up, restore, and the work an interruption may lose. So the safety net (`safety`) holds for jobs
with rare checkpoints too; a job without checkpoints uses spot only with time to start over.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.core.job.jobs import Job
from broker.core.job.placements import Placement, Plan
from broker.core.market.offers import CapacityType
from broker.placement.pricing.conditions import Conditions
from broker.placement.pricing.run_model import Effort
from broker.placement.pricing.time_value import WORTH_MOVING
from broker.placement.strategy.situation import (
    Handover,
    Mode,
    Situation,
    StrategyDecision,
    StrategySession,
    StrategyTask,
    UniformProgress,
    keep_deadline,
    slack,
)

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class StrategyChoices:
    """The placements that the job may choose between now. ``spot``: the cheapest placement of each pool; ``price``: USD
    per hour of work on the steady machine.
    """

    task: StrategyTask
    steady: Placement
    spot: Mapping[str, Placement]
    price: Mapping[str, float]

    @property
    def on_demand_price(self) -> float:
        """USD per hour of the steady placement, all nodes."""
        return self.steady.rate.micros / 1e6

    def seconds(self, remaining: timedelta) -> float:
        """Seconds for ``remaining`` work on the steady machine, including checkpoints."""
        return seconds_on(self.steady, remaining)


@dataclass(frozen=True, slots=True)
class LiveJob:
    """The job's state. ``remaining``: work since the last durable checkpoint, on the job's reference machine; ``on``:
    the launched or running placement; ``started``: when (UTC); ``running``: it makes progress.
    """

    now: datetime
    remaining: timedelta
    on: Placement | None = None
    started: datetime | None = None
    running: bool = False


def is_spot(placement: Placement) -> bool:
    """Whether the provider may take the machine back."""
    return placement.offer.capacity_type is CapacityType.SPOT


def strategy_choices(
    job: Job,
    conditions: Conditions,
    in_time: Plan,
    anyhow: Plan,
    submitted_at: datetime,
    work: timedelta,
    tick: float,
    on: Placement | None = None,
) -> StrategyChoices | None:
    """A strategy's choices; None if there are none: no deadline, a capacity order above cost, no steady placement that
    makes the deadline, or one that costs no more than spot.

    ``in_time``: the plan; ``anyhow``: the plan without the deadline: the strategy decides which spot placements would
    be late. ``work``: all of the job's. ``tick``: seconds between decisions. ``on``: the current placement; a working
    steady machine stays the steady one, as a new one might come too late.
    """
    steady = on if on and not is_spot(on) else next((p for p in in_time.placements if not is_spot(p)), None)
    if in_time.deadline is None or steady is None or job.ordered or conditions.capacity_order or conditions.by_carbon:
        return None
    spot: dict[str, Placement] = {}
    for placement in anyhow.placements:
        if is_spot(placement) and placement.throughput >= steady.throughput * 0.999:
            cheapest = spot.setdefault(placement.offer.pool, placement)
            if placement.rate < cheapest.rate:
                spot[placement.offer.pool] = placement
    price = {pool: useful_rate(p, steady) for pool, p in spot.items()}
    if price and min(price.values()) >= steady.rate.micros / 1e6:
        return None
    deadline = (in_time.deadline - submitted_at).total_seconds()
    changeover = changeover_of(job, conditions, max((p.interruptions_per_hour for p in spot.values()), default=0.1))
    task = StrategyTask(seconds_on(steady, work), deadline, changeover, tick)
    return StrategyChoices(task, steady, spot, price)


def useful_rate(placement: Placement, steady: Placement) -> float:
    """USD for the work the steady machine does in an hour."""
    return placement.rate.micros / 1e6 * steady.throughput / placement.throughput


def situation(choices: StrategyChoices, live_job: LiveJob, submitted_at: datetime, avoid: frozenset[str]) -> Situation:
    """The current situation. Pools in ``avoid`` were just preempted: they count as unavailable while there are others.
    A running machine counts as capacity, whatever the market reports.
    """
    not_avoided = {pool: price for pool, price in choices.price.items() if pool not in avoid}
    spot = not_avoided or dict(choices.price)
    mode, pool, left = Mode.IDLE, None, 0.0
    if live_job.on is not None:
        mode = Mode.SPOT if is_spot(live_job.on) else Mode.ON_DEMAND
        if mode is Mode.SPOT:
            pool = live_job.on.offer.pool
            spot[pool] = choices.price.get(pool, useful_rate(live_job.on, choices.steady))
        if not live_job.running:
            booting_for = (live_job.now - (live_job.started or live_job.now)).total_seconds()
            left = max(choices.task.changeover - booting_for, 0.0)
    elapsed = (live_job.now - submitted_at).total_seconds()
    work_left = choices.seconds(live_job.remaining)
    return Situation(elapsed, work_left, mode, pool, left, spot, choices.on_demand_price)


def decide(session: StrategySession, choices: StrategyChoices, now: Situation) -> StrategyDecision:
    """The strategy's decision, extended by cases a recorded market lacks: machines that fail to start, and offers so
    much better that leaving a working machine pays.
    """
    is_booting = now.mode is Mode.SPOT and now.changeover_left > 0
    if is_booting and slack(choices.task, now) - now.changeover_left < choices.task.changeover - choices.task.tick:
        return StrategyDecision(Mode.ON_DEMAND, why="safety net: the machine has not come up")
    decision = session.decide(now)
    if decision.mode is Mode.SPOT and now.mode is Mode.SPOT and decision.pool == now.pool:
        better = better_pool(choices, now)
        if better is not None:
            move = StrategyDecision(Mode.SPOT, better, why="so much cheaper that moving pays")
            return keep_deadline(choices.task, now, move)
    return decision


def better_pool(choices: StrategyChoices, now: Situation) -> str | None:
    """A pool whose saving, over the life expected there or the work left, is worth several moves; None if none is."""
    task = choices.task
    if now.mode is not Mode.SPOT or now.pool is None or now.changeover_left > 0:
        return None
    other_pools = [pool for pool in now.spot if pool != now.pool and pool in choices.spot]
    best = min(other_pools, key=lambda pool: (now.spot[pool], pool), default=None)
    if best is None or slack(task, now) < 3 * task.changeover:
        return None
    rate = choices.spot[best].interruptions_per_hour
    life = min(HOUR / rate if rate > 0 else math.inf, now.work_left)
    saving = (now.spot[now.pool] - now.spot[best]) * life / HOUR
    return best if saving > WORTH_MOVING * now.spot[best] * task.changeover / HOUR else None


def placement_order(decision: StrategyDecision, choices: StrategyChoices, plan: Plan) -> Sequence[Placement]:
    """The placements to try: first the decision's, then alternatives if money or policies refuse it. Empty: wait."""
    if decision.mode is Mode.IDLE:
        return ()
    steady = [p for p in plan.placements if not is_spot(p)]
    steady.sort(key=lambda p: p.offer.id != choices.steady.offer.id)
    spot = sorted(choices.spot.values(), key=lambda p: (p.offer.pool != decision.pool, choices.price[p.offer.pool]))
    return (*steady, *spot) if decision.mode is Mode.ON_DEMAND else (*spot, *steady)


def changeover_of(job: Job, conditions: Conditions, rate: float) -> float:
    """Seconds to start, to restore, and to repeat the work that an interruption loses, at ``rate`` interruptions per
    hour."""
    effort = Effort.of(job, conditions)
    interval = min(effort.interval_at(rate) + effort.write, effort.work or math.inf)
    return (effort.start_up + effort.restart + interval) * HOUR


def handover_of(job: Job, conditions: Conditions) -> Handover | None:
    """How the job may be handed over to a spot machine while it works; None without checkpoints."""
    effort = Effort.of(job, conditions)
    if not effort.checkpoints:
        return None
    return Handover(effort.start_up * HOUR, effort.restart * HOUR, effort.write * HOUR)


def seconds_on(steady: Placement, work: timedelta) -> float:
    """Seconds on the steady placement for ``work`` (hours on the job's reference machine), including checkpoints."""
    return work.total_seconds() / (steady.throughput * steady.useful_fraction)


def session_for(
    task: StrategyTask,
    pools: Sequence[str],
    history: Mapping[str, Sequence[bool]],
    price: Mapping[str, Sequence[float]],
    *,
    gap: float,
    on_demand_price: float,
) -> tuple[StrategySession, str]:
    """A session for ``task``, which may use spot capacity of ``pools``, and the reason for the choice of strategy.

    ``history`` (availability) and ``price`` (USD per hour): per pool one entry every ``gap`` seconds, oldest first.
    All end together, as the job starts. They must contain ``pools``, and may contain further pools of the same family
    to learn from; of a pool without a history, ``price`` may hold today's. Takes a fraction of a second and up to
    300 MB, mostly for the plan, which the session keeps.
    """
    if any(pool not in history for pool in pools) or not pools:
        return UniformProgress(task), "no plan: pools without a history"
    if 2 * task.changeover > task.deadline - task.work:
        return UniformProgress(task), "no plan: less slack than two changeovers"
    from broker.placement.strategy.planned_session import learn, prepare, start  # imports NumPy

    learned = learn(history, price, gap, market=pools if len(pools) > 1 else ())
    why = "planned" if learned.fitted else "planned on the habits of other recorded pools: too few spells on record"
    return start(prepare(learned, pools, task, on_demand_price), task), why
