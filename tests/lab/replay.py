"""Recorded spot markets, and the replay of one strategy on one window of them, by the measuring rules.

- At the start of tick i the strategy sees availability and prices of tick i and all before, nothing later.
- Starting spot or on-demand from idle, changing between them, or between pools costs a changeover of billed time
  without progress. A spot machine is lost at the start of a tick in which its pool has no capacity; progress is kept.
- A handover: on-demand works on while the spot machine boots beside it, both billed, until it stops to write the
  checkpoint. Booted, the spot machine restores alone. If it is lost first, on-demand goes on.
- Billing is by the second; the tick in which the job finishes is pro-rated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from broker.core.errors import InvalidInput
from broker.placement.strategy.situation import (
    EPSILON,
    Mode,
    Situation,
    StrategyDecision,
    StrategySession,
    StrategyTask,
)

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class PoolRecord:
    """One pool's record: ``available[i]`` and ``price[i]`` (USD per hour, all machines that the job needs) hold from
    tick i until tick i + 1."""

    name: str
    available: tuple[bool, ...]
    price: tuple[float, ...]
    on_demand_price: float

    def __post_init__(self) -> None:
        if len(self.available) != len(self.price):
            raise ValueError(f"{self.name}: {len(self.available)} ticks of availability, {len(self.price)} of prices")


@dataclass(frozen=True)
class ReplayMarket:
    """Pools a job may choose between, aligned tick by tick; possibly only one.

    ``gap_seconds``: length of a tick. ``family``: pools with a common origin, which learn from each other. ``notes``:
    caveats for readers of figures (holes, cut ends). ``kin``: pools of the family that no job may use; a strategy
    learns from their history before its start. ``begins``: the recorded start; tick 0 of all pools of a family is
    assumed to be the same moment.
    """

    family: str
    name: str
    gap_seconds: float
    pools: tuple[PoolRecord, ...]
    notes: tuple[str, ...] = ()
    kin: tuple[PoolRecord, ...] = ()
    begins: str = ""

    def __post_init__(self) -> None:
        if not self.pools:
            raise ValueError("a market needs a pool")
        if len({len(pool.available) for pool in self.pools}) != 1:
            raise InvalidInput(f"the pools of {self.name} differ in length", hint="cut them to the same ticks")

    @property
    def ticks(self) -> int:
        return len(self.pools[0].available)

    @property
    def on_demand_price(self) -> float:
        """The cheapest on-demand price, USD per hour; on-demand is assumed to be available there."""
        return min(pool.on_demand_price for pool in self.pools)

    @cached_property
    def spot(self) -> Sequence[Mapping[str, float]]:
        """Per tick: the prices of the pools that have capacity."""
        return [{pool.name: pool.price[i] for pool in self.pools if pool.available[i]} for i in range(self.ticks)]


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """One line of a decision log: the situation and the decision."""

    tick: int
    situation: Situation
    decision: StrategyDecision


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The result of a window, in USD and seconds. ``finish`` None: the deadline was missed. ``billed_seconds``: of both
    machines during a handover; a spot machine lost before it took over is no interruption."""

    cost: float
    finish: float | None
    missed: bool
    interruptions: int
    moves: int
    on_demand_seconds: float
    billed_seconds: float


def replay(
    market: ReplayMarket, start: int, task: StrategyTask, session: StrategySession, log: list[ReplayStep] | None = None
) -> ReplayOutcome:
    """Run ``session`` from tick ``start`` until the work is done or the deadline has passed.

    ``log`` receives every step. Raises ValueError if the window exceeds the record, or if the session chooses a pool
    without capacity, which is a bug of the session.
    """
    gap = market.gap_seconds
    spot, on_demand_price = market.spot, market.on_demand_price
    mode, pool, changeover, work = Mode.IDLE, None, 0.0, task.work
    cost = on_demand_seconds = billed_seconds = 0.0
    interruptions = moves = 0
    tick = 0
    while (elapsed := tick * gap) < task.deadline - EPSILON:
        here = spot[start + tick]
        if pool is not None and pool not in here:
            interruptions += mode is Mode.SPOT
            mode, pool, changeover = (Mode.IDLE if mode is Mode.SPOT else Mode.ON_DEMAND), None, 0.0
        now = Situation(elapsed, work, mode, pool, changeover, here, on_demand_price)
        decision = session.decide(now)
        if log is not None:
            log.append(ReplayStep(start + tick, now, decision))
        if decision.mode is not mode or decision.pool != pool:
            changeover = _changeover(task, now, decision)
            moves += mode is not Mode.IDLE and (mode, decision.mode) != (Mode.BOTH, Mode.ON_DEMAND)
            mode, pool = decision.mode, decision.pool
        rest = gap
        if mode is Mode.BOTH and task.handover and pool is not None:
            worked = min(max(changeover - task.handover.upload, 0.0), gap, work)
            used = worked if worked >= work else min(changeover, gap)
            cost += (here[pool] + on_demand_price) * used / HOUR
            billed_seconds += 2 * used
            on_demand_seconds += used
            work, rest, changeover = work - worked, gap - used, changeover - used
            if changeover <= EPSILON:
                mode, changeover = Mode.SPOT, task.handover.restore
        if mode in (Mode.SPOT, Mode.ON_DEMAND) and work > EPSILON:
            used = min(rest, changeover + work)
            cost += (on_demand_price if pool is None else here[pool]) * used / HOUR
            billed_seconds += used
            on_demand_seconds += used if mode is Mode.ON_DEMAND else 0.0
            work -= max(used - changeover, 0.0)
            rest, changeover = rest - used, max(changeover - used, 0.0)
        if work <= EPSILON:
            finish = elapsed + gap - rest
            late = finish > task.deadline + EPSILON
            return ReplayOutcome(cost, finish, late, interruptions, moves, on_demand_seconds, billed_seconds)
        tick += 1
    return ReplayOutcome(cost, None, True, interruptions, moves, on_demand_seconds, billed_seconds)


def _changeover(task: StrategyTask, now: Situation, decision: StrategyDecision) -> float:
    """Seconds that the machine of a new ``decision`` boots; raises ValueError if it cannot be had."""
    if decision.mode in (Mode.SPOT, Mode.BOTH) and decision.pool not in now.spot:
        raise ValueError(f"after {now.elapsed:g} s the strategy chose {decision.pool!r}, which has no capacity")
    if decision.mode is Mode.BOTH:
        if task.handover is None or now.mode is not Mode.ON_DEMAND or now.changeover_left > 0:
            raise ValueError(f"after {now.elapsed:g} s the strategy chose a handover, which needs on-demand at work")
        return task.handover.boot
    needs_none = now.mode is Mode.BOTH and decision.mode is Mode.ON_DEMAND
    return 0.0 if needs_none or decision.mode is Mode.IDLE else task.changeover
