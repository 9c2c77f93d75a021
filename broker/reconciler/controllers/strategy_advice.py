"""Applies the strategy to a job: where to place its next attempt, whether to wait, when to move.

One `Strategist` serves all jobs of a reconciler. Its state of a job can be rebuilt from the store: a session begins
with the price history before the job's start and has processed every tick since.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from broker.core.events import events as ev
from broker.core.events.outcomes import AttemptState, Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.events.wait_reasons import MoveAdvantage, MovesElsewhere
from broker.core.job.placements import Placement
from broker.core.job.reasons import Reason
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.placement.pricing.shares import current_price
from broker.placement.pricing.time_value import better_place, find_spot_wait, value_of_time
from broker.placement.strategy import live
from broker.placement.strategy.live import session_for
from broker.placement.strategy.situation import Mode, Situation, StrategyDecision, StrategySession
from broker.reconciler.controller import AtRest, Controller, ControllerResult, DecideAnew, JobContext, NextLook
from broker.reconciler.controllers.placement import PlacementAdvice, Plans
from broker.reconciler.progress import remaining_work
from broker.store.store import Store, append_if

log = logging.getLogger(__name__)

TICK = timedelta(minutes=5)
"""The interval between decisions; interruptions and returning capacity are handled at once."""
REACH = timedelta(days=30)
REST = timedelta(minutes=5)
"""How long a pool is avoided after an interruption there, if there are others."""
MAX_POOLS = 8
"""The maximum number of pools considered, cheapest first; learning about each takes time."""
INTERRUPTION_CAUSES = (Cause.PREEMPTED, Cause.MACHINE_LOST)


class TickHistory(Protocol):
    """Ticks of several pools, as `broker.app.market.strategy_history.MarketRecord`."""

    @property
    def available(self) -> Mapping[str, Sequence[bool]]: ...

    @property
    def price(self) -> Mapping[str, Sequence[float]]: ...

    @property
    def ticks(self) -> int: ...

    def at(self, tick: int) -> dict[str, float]: ...


HistoryOf = Callable[[Sequence[Offer], datetime, timedelta, timedelta], TickHistory]
"""Returns the history of the offers' pools. Arguments: offers, end (UTC), length, length of a tick."""


@dataclass(frozen=True, slots=True)
class LoggedDecision:
    """One line of a decision log."""

    job_id: str
    at: datetime
    situation: Situation
    decision: StrategyDecision


@dataclass
class _JobMemory:
    """The state of a job: its strategy session, the inputs it was made for, and the last decision to move."""

    course: StrategySession
    made_for: tuple[object, ...]
    moving: tuple[int, StrategyDecision] | None = None


class Strategist:
    """The strategies of all jobs. ``on_decision`` is called with each decision."""

    def __init__(
        self,
        history: HistoryOf,
        tick: timedelta = TICK,
        on_decision: Callable[[LoggedDecision], None] = lambda decision: None,
    ) -> None:
        self._history = history
        self._tick = tick
        self._on_decision = on_decision
        self._memories: dict[str, _JobMemory] = {}

    def place(self, view: JobView, plans: Plans, now: datetime) -> PlacementAdvice | None:
        """The placements to try for the job's next attempt, in order; None to keep the plan's ranking."""
        if view.deadline is None:
            return _wait_advice(view, plans, now)
        decided = self._decide(view, plans, now, None)
        if decided is None:
            return None
        choices, decision = decided
        return PlacementAdvice(tuple(live.placement_order(decision, choices, plans.in_time)), decision.why)

    def moves(self, view: JobView, plans: Plans, now: datetime) -> MovesElsewhere | None:
        """Why the running attempt should stop and the job be placed again; None if it should continue."""
        attempt = view.latest
        if attempt is None or attempt.state.final:
            return None
        if attempt.waits_in_queue:
            return _leave_queue(view, attempt, plans, 2 * self._tick)
        if view.deadline is None:
            return _better_value_move(view, attempt, plans)
        decided = self._decide(view, plans, now, attempt)
        if decided is None:
            return None
        _, decision = decided
        on_spot = live.is_spot(attempt.placement)
        current_pool = attempt.placement.offer.pool if on_spot else None
        if decision.mode is (Mode.SPOT if on_spot else Mode.ON_DEMAND) and decision.pool == current_pool:
            return None
        to = CapacityType.SPOT if decision.pool else CapacityType.ON_DEMAND
        return MovesElsewhere(
            advantage=MoveAdvantage.STRATEGY,
            to=None if decision.mode is Mode.IDLE else to,
            pool=decision.pool or "",
            because=decision.why,
            beside=decision.mode is Mode.BOTH,
        )

    def forget(self, job_id: str) -> None:
        self._memories.pop(job_id, None)

    def _decide(
        self, view: JobView, plans: Plans, now: datetime, attempt: AttemptView | None
    ) -> tuple[live.StrategyChoices, StrategyDecision] | None:
        remaining = remaining_work(view)
        if view.deadline is None or view.work is None or remaining is None:
            return None
        started, tick = view.submitted_at, self._tick.total_seconds()
        conditions = plans.market.conditions
        on = attempt.placement if attempt is not None else None
        choices = live.strategy_choices(view.job, conditions, plans.in_time, plans.anyhow, started, view.work, tick, on)
        if choices is None:
            return None
        if plans.overlap:
            task = replace(choices.task, handover=live.handover_of(view.job, conditions))
            choices = replace(choices, task=task)
        offers = _spot_offers(choices, plans, on)
        if not offers and not choices.spot:
            return None
        live_job = live.LiveJob(now, remaining)
        if attempt is not None:
            running = attempt.state in (AttemptState.RUNNING, AttemptState.STOPPING)
            live_job = live.LiveJob(now, remaining, attempt.placement, attempt.requested_at, running)
        situation = live.situation(choices, live_job, started, resting_pools(view, now))
        memory = self._session_memory(view, choices, offers, plans, now)
        tick_number = int(situation.elapsed // tick)
        if (
            attempt is None
            and memory.moving is not None
            and memory.moving[0] == tick_number
            and _is_possible(memory.moving[1], situation)
        ):
            return choices, memory.moving[1]  # the move decided in this tick is being carried out
        decision = live.decide(memory.course, choices, situation)
        moves = decision.mode is not situation.mode or decision.pool != situation.pool
        stops = attempt is not None and moves and decision.mode is not Mode.BOTH
        memory.moving = (tick_number, decision) if stops else None
        self._on_decision(LoggedDecision(view.id, now, situation, decision))
        return choices, decision

    def _session_memory(
        self, view: JobView, choices: live.StrategyChoices, offers: Sequence[Offer], plans: Plans, now: datetime
    ) -> _JobMemory:
        """The job's session: begins with the history before its start and has processed every tick before this one."""
        memory = self._memories.get(view.id)
        made_for = (choices.task.deadline, choices.steady.offer.pool, choices.task.handover)
        current = int((now - view.submitted_at) // self._tick)
        if memory is None or memory.made_for != made_for:
            related = _related_offers(choices, offers, plans)
            session, reason = self._open_session(choices, offers, related, view.submitted_at)
            log.info("job %s: %s", view.id, reason)
            memory = self._memories[view.id] = _JobMemory(session, made_for, memory.moving if memory else None)
        missing_ticks = current - getattr(memory.course, "ticks_seen", current)
        if missing_ticks > 0:
            until = view.submitted_at + current * self._tick
            missed = self._history(offers, until, missing_ticks * self._tick, self._tick)
            for i in range(missed.ticks - min(missing_ticks, missed.ticks), missed.ticks):
                memory.course.see(missed.at(i))  # type: ignore[attr-defined]  # courses that count ticks can see them
        return memory

    def _open_session(
        self, choices: live.StrategyChoices, offers: Sequence[Offer], related: Sequence[Offer], began: datetime
    ) -> tuple[StrategySession, str]:
        past = self._history(offers, began, REACH, self._tick)
        related_history = self._history(related, began, REACH, self._tick)  # apart, as the lengths may differ
        # A pool that was always available was perhaps not polled.
        family = {pool: bits for pool, bits in related_history.available.items() if not all(bits)}
        priced = past if past.ticks else self._history(offers, began + self._tick, self._tick, self._tick)
        steady = choices.steady
        price = {
            pool: [amount * steady.nodes * _price_factor(choices, pool) for amount in prices]
            for pool, prices in {**priced.price, **related_history.price}.items()
            if pool in family or pool in past.available
        }
        return session_for(
            choices.task,
            sorted(past.available),
            {**past.available, **family},
            price,
            gap=self._tick.total_seconds(),
            on_demand_price=choices.on_demand_price,
        )


def resting_pools(view: JobView, now: datetime) -> frozenset[str]:
    """The pools where this job was interrupted, or a standby ended, a short while ago."""
    return frozenset(
        attempt.placement.offer.pool
        for attempt in view.attempts
        if (attempt.cause in INTERRUPTION_CAUSES or attempt.standby_until is not None)
        and now - (attempt.ended_at or now) < REST
    )


def _wait_advice(view: JobView, plans: Plans, now: datetime) -> PlacementAdvice | None:
    """The advice to wait for spot capacity, for a job without a deadline; None if it should start now."""
    value = value_of_time(view.job, plans.market.conditions)
    if not value or plans.over is None:
        return None
    sold_out = _sold_out(plans)
    if not sold_out:
        return None
    plan = plans.over([replace(offer, availability=Availability.AVAILABLE, slots=None) for offer in sold_out])
    since = view.latest.ended_at if view.latest is not None and view.latest.ended_at else view.submitted_at
    wait = find_spot_wait(
        plans.anyhow.best, plan.placements, plans.market.conditions.away, value, max(now - since, timedelta(0))
    )
    return None if wait is None else PlacementAdvice((), wait.why, wait.placement.offer.pool)


def _leave_queue(view: JobView, attempt: AttemptView, plans: Plans, margin: timedelta) -> MovesElsewhere | None:
    """Why a job should leave its engine's queue: elsewhere it would still meet its deadline, with at most ``margin`` to
    spare. None for a job without a deadline, and for one that would be late everywhere.
    """
    alternatives = [p for p in plans.in_time.placements if p.offer.pool != attempt.placement.offer.pool and p.finish]
    first = min(alternatives, key=lambda p: p.finish or view.submitted_at, default=None)
    if view.deadline is None or first is None or first.finish is None or view.deadline - first.finish > margin:
        return None
    offer = first.offer
    return MovesElsewhere(advantage=MoveAdvantage.QUEUE_TOO_LONG, to=offer.capacity_type, pool=offer.pool)


def _better_value_move(view: JobView, attempt: AttemptView, plans: Plans) -> MovesElsewhere | None:
    """Why a job without a deadline should move, by cost and value of time; None if it should not."""
    value, left = value_of_time(view.job, plans.market.conditions), remaining_work(view)
    if not value or left is None or attempt.state is not AttemptState.RUNNING:
        return None
    current, offers = attempt.placement, {offer.id: offer for offer in plans.market.offers}
    current_offer = offers.get(current.offer.id)
    if current_offer is not None and (price := current_price(current_offer, current.offer)) is not None:
        current = replace(current, rate=price * current.nodes)
    alternatives = plans.anyhow.placements
    rate = max((p.interruptions_per_hour for p in alternatives), default=0.0)
    changeover = live.changeover_of(view.job, plans.market.conditions, max(rate, current.interruptions_per_hour)) / 3600
    better = better_place(current, alternatives, left / timedelta(hours=1), changeover, value)
    if better is None:
        return None
    offer = better.offer
    return MovesElsewhere(advantage=MoveAdvantage.BETTER_VALUE, to=offer.capacity_type, pool=offer.pool)


def _price_factor(choices: live.StrategyChoices, pool: str) -> float:
    """The factor that converts a price in that pool to the price of the same work on the steady machine."""
    placement = choices.spot.get(pool)
    return choices.steady.throughput / placement.throughput if placement else 1.0


def _spot_offers(choices: live.StrategyChoices, plans: Plans, on: Placement | None) -> list[Offer]:
    """The spot pools to consider: the job's present one, available ones, and sold-out ones with the machine type of the
    steady placement. One offer per pool, cheapest first.
    """
    offers_by_pool = {pool: placement.offer for pool, placement in choices.spot.items()}
    machine = choices.steady.offer.machine
    for offer in _sold_out(plans):
        if offer.machine == machine:
            offers_by_pool.setdefault(offer.pool, offer)
    running = on.offer.pool if on is not None else None

    def worth(offer: Offer) -> tuple[bool, bool, bool, int, str]:
        price = offer.price.micros if offer.price else 0
        return offer.pool != running, offer.pool not in choices.spot, offer.price is None, price, offer.pool

    return sorted(offers_by_pool.values(), key=worth)[:MAX_POOLS]


def _related_offers(choices: live.StrategyChoices, offers: Sequence[Offer], plans: Plans) -> list[Offer]:
    """Spot offers with the steady placement's machine type in pools outside ``offers``: their history shows how often
    such capacity appears and disappears. The first ones by name, so that a restart selects the same.
    """
    known_pools = {offer.pool for offer in offers}
    machine = choices.steady.offer.machine
    offers_by_pool: dict[str, Offer] = {}
    for offer in plans.market.offers:
        is_spot = offer.capacity_type is CapacityType.SPOT and not offer.reference
        if is_spot and offer.machine == machine and offer.pool not in known_pools:
            offers_by_pool[offer.pool] = min(
                offers_by_pool.get(offer.pool, offer), offer, key=lambda candidate: candidate.id
            )
    return [offers_by_pool[pool] for pool in sorted(offers_by_pool)[:MAX_POOLS]]


def _sold_out(plans: Plans) -> list[Offer]:
    """Suitable spot offers that are sold out now."""
    sold_out = {
        r.offer_id for r in plans.anyhow.rejections if r.reason in (Reason.UNAVAILABLE, Reason.TOO_FEW_MACHINES)
    }
    return [o for o in plans.market.offers if o.id in sold_out and o.capacity_type is CapacityType.SPOT]


def _is_possible(decision: StrategyDecision, situation: Situation) -> bool:
    return decision.mode is not Mode.SPOT or decision.pool in situation.spot


class Moving(Controller):
    """Asks the strategy once per tick whether a running attempt should move. ``plans`` makes the plans.

    ``rest``: after each call of the strategy, no other call is made for this multiple of its duration. So thousands of
    jobs whose ticks coincide are spread over several ticks of the reconciler. No job has a second turn while another
    waits for its first. ``seconds``: a monotonic clock. ``stand_by``: starts the machine of a move beside the running
    attempt; returns whether it could.
    """

    def __init__(
        self,
        journal: Store,
        strategist: Strategist,
        plans: Callable[[JobView, datetime], Plans],
        every: timedelta = TICK,
        rest: float = 0.0,
        seconds: Callable[[], float] = time.monotonic,
        stand_by: Callable[[JobView, Plans, MovesElsewhere, datetime], bool] = lambda *_: False,
    ) -> None:
        self._rest, self._seconds, self._rests_until = rest, seconds, 0.0
        self._journal = journal
        self._strategist = strategist
        self._plans = plans
        self._every, self._stand_by = every, stand_by
        self._waiting_jobs, self._jobs_after_turn, self._jobs_after_yield = set[str](), set[str](), set[str]()

    def goes_by(self, about: JobContext) -> int | None:
        """The tick; None if there is nothing to move."""
        attempt = about.view.latest
        if attempt is None or not _can_move(about.view, attempt):
            self._waiting_jobs.discard(about.view.id)
            return None
        return self._tick(about.view, about.now)

    def reconcile(self, about: JobContext) -> ControllerResult:
        """Stop the attempt if it should move."""
        view, attempt, now = about.view, about.view.latest, about.now
        assert attempt is not None, "a job without an attempt gets no such step"
        if self._tick(view, attempt.requested_at) >= self._tick(view, now):  # that tick has been decided already
            self._waiting_jobs.discard(view.id)
            return AtRest()
        began = self._seconds()
        if not self._has_turn(view.id, began):
            return NextLook()
        try:
            plans = self._plans(view, now)
            reason = self._strategist.moves(view, plans, now)
            if reason is not None and reason.beside:
                if self._stand_by(view, plans, reason, now):
                    return DecideAnew()
                reason = self._strategist.moves(view, replace(plans, overlap=False), now)
        finally:
            self._rests_until = self._seconds() + self._rest * (self._seconds() - began)
        if reason is None or reason.beside:
            return AtRest()
        stop = ev.StopRequested(cause=Cause.MOVED, by="the strategy", reason=reason)
        append_if(self._journal, view, [(attempt.number, stop)], now)
        return DecideAnew()

    def forget(self, key: str) -> None:
        self._jobs_after_turn.discard(key)
        self._waiting_jobs.discard(key)
        self._strategist.forget(key)

    def _tick(self, view: JobView, at: datetime) -> int:
        return (at - view.submitted_at) // self._every

    def _has_turn(self, job_id: str, now: float) -> bool:
        """Whether it is the job's turn: not during a rest, and no second turn while another job waits for its first."""
        had_turn = job_id in self._jobs_after_turn
        if now < self._rests_until:
            if not had_turn:
                self._waiting_jobs.add(job_id)
            return False
        if had_turn and self._waiting_jobs and job_id not in self._jobs_after_yield:
            self._jobs_after_yield.add(job_id)
            return False
        if had_turn:
            # No job waits; or no job had a turn since this one gave way, so the jobs that waited are gone.
            self._jobs_after_turn.clear()
            self._waiting_jobs.clear()
        self._jobs_after_turn.add(job_id)
        self._waiting_jobs.discard(job_id)
        self._jobs_after_yield.clear()
        return True


def _can_move(view: JobView, attempt: AttemptView) -> bool:
    is_up = attempt.state in (AttemptState.LAUNCHED, AttemptState.STARTING, AttemptState.RUNNING)
    return is_up and attempt.stop_requested is None and not view.cancel_requested and view.standby is None
