"""The rehearsal stage on a recorded market: a real store, reconciler, placer and strategist on a manual clock, and
nodes that boot, save and die exactly as the measuring rules of `tests/lab` say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved
from broker.core.events.outcomes import AttemptState, Cause, JobState
from broker.core.events.views import JobView
from broker.core.job.jobs import CheckpointPlan, Job, Work
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.values.burns import Burn
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags
from broker.placement.planner import PlanInputs
from broker.placement.pricing.conditions import Conditions
from broker.placement.strategy.situation import StrategyTask
from broker.reconciler.admission.records import hold_entries
from broker.reconciler.controllers.placement import PlacementController, Plans
from broker.reconciler.controllers.strategy_advice import LoggedDecision, Moving, Strategist
from broker.reconciler.leases import NoNodeLimits
from broker.store import Store
from tests.lab.replay import ReplayMarket
from tests.reconciler.rehearsal import Stage, offer

SECOND = timedelta(seconds=1)


def pool_name(zone: str) -> str:
    return f"stage/{zone}/box/cpu/spot"


@dataclass(frozen=True)
class Ticks:
    """A stretch of a recorded market as history."""

    available: Mapping[str, Sequence[bool]]
    price: Mapping[str, Sequence[float]]
    ticks: int

    def at(self, tick: int) -> dict[str, float]:
        return {pool: self.price[pool][tick] for pool, bits in self.available.items() if bits[tick]}


class TraceStage(Stage):
    """``market``: its pools are named by `pool_name`; the job starts at tick ``start``, what is before is history.
    ``value_of_time``: USD an hour, of a job that has it instead of a deadline."""

    def __init__(
        self,
        store: Store,
        clock: ManualClock,
        market: ReplayMarket,
        start: int,
        task: StrategyTask,
        value_of_time: str = "",
    ) -> None:
        self.market, self.start, self.task, self.value_of_time = market, start, task, value_of_time
        self.tick = timedelta(seconds=task.tick)
        self.begun = clock.now()
        self.said: list[LoggedDecision] = []
        self.kept: dict[str, float] = {}
        super().__init__(store, clock)

    def restart(self) -> None:
        """A new broker process over the same store."""
        strategist = Strategist(self.history, self.tick, self.said.append)
        policy: Any = self.policy
        place = PlacementController(self.store, lambda job: self._market(), lambda: policy, advise=strategist.place)

        def plans(view: JobView, now: datetime) -> Plans:
            return place.plans(view, policy, now)

        self.begin(place, Moving(self.store, strategist, plans, self.tick), limits=NoNodeLimits())

    def history(self, offers: Sequence[Offer], end: datetime, reach: timedelta, gap: timedelta) -> Ticks:
        last = self.start + (end - self.begun) // self.tick
        first = max(last - reach // gap, 0)
        asked = {each.pool for each in offers}
        pools = [pool for pool in (*self.market.pools, *self.market.kin) if pool.name in asked]
        return Ticks(
            {pool.name: pool.available[first:last] for pool in pools},
            {pool.name: pool.price[first:last] for pool in pools},
            last - first,
        )

    def _market(self) -> PlanInputs:
        at = self.start + (self.clock.now() - self.begun) // self.tick
        found = [replace(offer(self.clock.now(), "od", price=str(self.market.on_demand_price)), interruption_rate=0.0)]
        for pool in self.market.pools:
            zone = pool.name.split("/")[1]
            one = offer(self.clock.now(), zone, CapacityType.SPOT, str(pool.price[at]))
            there = Availability.AVAILABLE if pool.available[at] else Availability.UNAVAILABLE
            found.append(replace(one, availability=there))
        for pool in self.market.kin:
            one = offer(self.clock.now(), pool.name.split("/")[1], CapacityType.SPOT, str(pool.price[at]))
            found.append(replace(one, engine="elsewhere"))  # an engine that is not there: no job can use it
        self.offers = found
        booting = timedelta(seconds=self.task.changeover) - 2 * SECOND
        conditions = Conditions(
            {"stage": frozenset()}, sandbox=True, start_up=booting, restart=SECOND, write=timedelta(0)
        )
        return PlanInputs(found, conditions, {})

    def play(self, *, restarts: bool = False) -> JobState:
        """Submit the job and let ticks pass until it is over. ``restarts``: with a new broker process each tick."""
        self._submit()
        boundary = self.begun
        while not self.view.state.final:
            self._tick_begins(boundary)
            if restarts:
                self.restart()
            boundary += self.tick
            self._until(boundary)
            assert boundary - self.begun < timedelta(seconds=3 * self.task.deadline), "it never ends"
        return self.view.state

    def _submit(self) -> None:
        work, now = timedelta(seconds=self.task.work), self.clock.now()
        job = Job(
            name="j", run="x", work=Work(duration=work), checkpoint=CheckpointPlan(every=SECOND, restart=SECOND),
            deadline=None if self.value_of_time else timedelta(seconds=self.task.deadline),
            value_of_time=Money.usd(self.value_of_time) if self.value_of_time else None,
        )  # fmt: skip
        limit = 30 * self.task.deadline
        submitted = ev.Submitted(
            job=job, user="ann", max_duration_seconds=limit, deadline=job.deadline_at(now),
            work_seconds=self.task.work,
        )  # fmt: skip
        with self.store.writing() as tx:
            burn = Burn.evenly(Money.usd("5000"), (now, now + timedelta(seconds=limit)))
            tx.post(hold_entries(Tags("j-1", "ann"), {}, {MoneyKind.CASH: burn}, Movement.HOLD, 1))
            tx.append("j-1", [(None, submitted)], now)

    def _tick_begins(self, at: datetime) -> None:
        """What is lost is lost at the start of a tick; then the broker looks, and nodes do as they are told."""
        assert self.clock.now() == at
        tick = self.start + (at - self.begun) // self.tick
        latest = self.view.latest
        if latest is not None and not latest.state.final and latest.placement.offer.capacity_type is CapacityType.SPOT:
            pool = next(p for p in self.market.pools if p.name == latest.placement.offer.pool)
            if not pool.available[tick]:
                self.mailbox.exits(latest.key, Cause.PREEMPTED)
                self.engine.take_back(latest.key)
        for _ in range(4):
            self.pass_time()
            latest = self.view.latest
            if latest is not None and latest.stop_requested is not None and not latest.state.final:
                self.mailbox.exits(latest.key, latest.stop_requested)
                self.engine.cancel(latest.key)

    def _until(self, boundary: datetime) -> None:
        """To the end of the tick: a node that has booted starts; one that works saves at the end, or finishes."""
        latest = self.view.latest
        if latest is None or latest.state.final:
            self.clock.advance(boundary - self.clock.now())
            return
        if latest.state is not AttemptState.RUNNING:
            up = latest.requested_at + timedelta(seconds=self.task.changeover)
            if up >= boundary:
                self.clock.advance(boundary - self.clock.now())
                if up == boundary:
                    self._starts(latest.key)
                return
            self.clock.advance(up - self.clock.now())
            self._starts(latest.key)
        left = timedelta(seconds=self.task.work) - timedelta(seconds=self.kept.get("done", 0.0))
        works = boundary - self.clock.now()
        if left <= works:
            self.clock.advance(left)
            self.mailbox.exits(latest.key, Cause.COMPLETED, 0)
            self.pass_time()
            self.pass_time()
            return
        self.clock.advance(works)
        self.kept["done"] = self.kept.get("done", 0.0) + works.total_seconds()
        self.kept["saves"] = self.kept.get("saves", 0) + 1
        self.mailbox.says(latest.key, CheckpointSaved(checkpoint=f"{int(self.kept['saves']):06}", step=1))

    def _starts(self, key: str) -> None:
        saved = self.view.checkpoint
        self.mailbox.starts(key, restored=saved.id if saved else None)
