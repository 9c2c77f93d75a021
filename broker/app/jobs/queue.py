"""The queue: the jobs that wait for a machine, with the placement, start and cost of each; for people, for plans of
several jobs, and for the reconciler."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import reduce
from typing import Any

from broker.app.assumptions import active_assumptions
from broker.app.market.experience import needs_conversion, paces_for
from broker.app.market.market import market_for, query_for, subtract_other_stores
from broker.app.market.recorded_capacity import ANY_ENGINE, is_recorded, recorded_offers, unreached_capacity_notes
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.events import events as ev
from broker.core.events.events import Event
from broker.core.events.lifecycle import advance
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import QueueTurn
from broker.core.job.jobs import Job
from broker.core.market.offers import CapacityType, Offer, OfferQuery
from broker.core.market.shares import MachineShare, total
from broker.core.policy.policy import Facts, LiveAttempt
from broker.core.ports import PolicySet
from broker.core.values.figures import hours_of
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.reserve.holdings import RecordedHolding
from broker.placement.offer_index import Board
from broker.placement.planner import PlanInputs
from broker.placement.queue.preemption import Preemption, preemptions
from broker.placement.queue.queue import EFFORT, STOP_HOURS, Free, QueueEntry, QueueRules, Turn, entry_of
from broker.placement.queue.search import place
from broker.reconciler.admission.admission import as_if_unoccupied, denials, subtract_occupied
from broker.reconciler.admission.facts import facts_of
from broker.reconciler.controllers.placement import QueueDecision, placement_action
from broker.reconciler.pools import avoided_pools
from broker.reconciler.progress import billed_time, remaining_work
from broker.reconciler.visit_order import (
    decision_outside_round,
    queue_decision,
    running_by_team,
    running_jobs,
    waits_for_machine,
)

_BY_AGE = "runaway"  # the kind of the rule that judges a job by its time of submission


class EntryClasses:
    """The classes of one round, at one time and on one market for each query. ``compute``: makes the entry of a job."""

    def __init__(self, policy: PolicySet, now: datetime, compute: Callable[[JobView, Facts], QueueEntry]) -> None:
        self._now, self._compute = now, compute
        self._named = any(policy.when(rule.name) for rule in policy.rules)
        self._aged = any(rule.kind == _BY_AGE for rule in policy.rules)
        self._known: dict[Hashable, QueueEntry] = {}

    def entry(self, view: JobView, facts: Facts) -> QueueEntry:
        kind = self._kind(view, facts)
        if kind is None:
            return self._compute(view, facts)
        cached = self._known.get(kind)
        if cached is None:
            cached = self._known[kind] = self._compute(view, facts)
        return replace(cached, id=view.id, handed_in=hours_of(view.submitted_at - self._now))

    def _kind(self, view: JobView, facts: Facts) -> Hashable | None:
        """The cache key of an entry; None for a job with earlier attempts."""
        if view.attempts or view.rests or facts.grants:
            return None
        job = view.job
        depends_on_name = self._named or needs_conversion(job)  # a condition, or the speed of earlier jobs of that name
        excluded = {"seal"} if depends_on_name else {"seal", "name"}
        age_key = view.submitted_at if self._aged else job.deadline_at(view.submitted_at)
        return view.user, view.work, age_key, job.model_dump_json(exclude=excluded)


_HOUR = timedelta(hours=1)
# The reconciler uses a placement of the queue for this many seconds of the wall clock, or for this many times what
# computing it took, if that is longer: with thousands of jobs, placing must not take all the reconciler's time.
_ROUND_LIFETIME = 5.0
_REST_FACTOR = 20.0
_LIVE_EFFORT = 15_000  # less than for a person, who can wait for a better answer
_OTHER_STORES_HOURS = 1.0  # hours after which a share of a machine in use by another store is assumed to be free
_TRIES_LEFT_OUT = 4  # rounds in which a refused job is left out, so that no machine is kept for it


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job in the queue and its turn. Times in UTC; None if nothing can serve it. ``planned``: it is not submitted
    yet. ``out_of_reach``: in words, the recorded capacity that would serve it if an engine reached it; ``reached``: its
    turn on that capacity then, at marginal price (`explain_queue`). ``preemption``: the places of running jobs that it
    could take, if any."""

    view: JobView
    turn: Turn
    start: datetime | None
    finish: datetime | None
    planned: bool = False
    out_of_reach: tuple[str, ...] = ()
    reached: QueuedJob | None = None
    preemption: Preemption | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """The waiting jobs in the order of their turn. ``running``: how many jobs have a machine now. ``free``: the limited
    pools when the queue was placed. ``machines``: what is free on owned machines that jobs share. ``later``: jobs that
    come after others, which have not ended. ``running_of``: ``running`` by team. ``on_record``: ids of the offers that
    stand for recorded capacity, in a queue that was placed as if an engine reached it."""

    now: datetime
    waiting: tuple[QueuedJob, ...]
    running: int
    free: Mapping[str, Free]
    machines: tuple[MachineUse, ...] = ()
    later: tuple[JobView, ...] = ()
    running_of: Mapping[str, int] = field(default_factory=dict)
    on_record: frozenset[str] = frozenset()


def explain_queue(broker: Broker, extra: Sequence[JobView] = ()) -> Queue:
    """The queue for people. If recorded capacity that no engine reaches could serve a job, all jobs are placed a second
    time as if an engine reached it; ``reached`` is each job's turn in that queue."""
    result = queue(broker, extra)
    if not any(queued.out_of_reach for queued in result.waiting):
        return result
    reached_queue = queue(broker, extra, reached=True)
    elapsed = reached_queue.now - result.now  # starts count from the first placement on
    reached_jobs = {
        queued.view.id: replace(
            queued, start=queued.start and queued.start - elapsed, finish=queued.finish and queued.finish - elapsed
        )
        for queued in reached_queue.waiting
        if queued.turn.option is not None and queued.turn.option.name in reached_queue.on_record
    }
    return replace(
        result, waiting=tuple(replace(queued, reached=reached_jobs.get(queued.view.id)) for queued in result.waiting)
    )


def queue(
    broker: Broker,
    extra: Sequence[JobView] = (),
    *,
    effort: int = EFFORT,
    left_out: Container[str] = frozenset(),
    reached: bool = False,
) -> Queue:
    """All waiting jobs placed together, by priority, deadline, fairness between teams, and gangs. Changes nothing.

    ``extra``: jobs that are not submitted (`hypothetical_views`), placed as if they were submitted now. ``left_out``:
    ids of jobs that are not placed. Running jobs are assumed to release their machines when their plan says, or when
    their time is used up. No pool is kept for a job that avoids it after a failed launch. ``reached``: as if an engine
    reached recorded capacity.
    """
    now, policy = broker.clock.now(), broker.policy()
    extra_by_id = {view.id: view for view in extra}
    with broker.store.reading() as reader:
        views, live = reader.unclosed(), reader.live_attempts()
        owned = reader.offers(OfferQuery(capacity_types=(CapacityType.OWNED,)))
        facts_for = facts_of(reader, policy, now)
        waiting_views = {
            view.id: view for view in views if waits_for_machine(view) and view.id not in left_out
        } | extra_by_id
        facts = {view.id: facts_for(placement_action(view, now)) for view in waiting_views.values()}
        holdings = reader.holdings()
        assumptions = active_assumptions(reader) if holdings else DEFAULTS
    returns = _releases(views, now)
    out_of_reach: dict[frozenset[str | None], tuple[str, ...]] = {}
    on_record = set[str]()
    boards: dict[OfferQuery, tuple[PlanInputs, Board]] = {}
    machines: dict[str, int] = {}
    shared_machines: dict[str, tuple[MachineShare, MachineShare]] = {}
    entries: list[QueueEntry] = []

    def options_of(view: JobView, job_facts: Facts) -> QueueEntry:
        market, board = boards[query_for(view.job)]
        order, paces = policy.capacity_order(view.job), paces_for(broker, view.job)  # differ by job, not by query
        engines = {**market.conditions.engines, ANY_ENGINE: view.job.needs} if reached else market.conditions.engines
        return entry_of(
            view.id,
            view.job,
            board,
            now=now,
            submitted_at=view.submitted_at,
            conditions=replace(market.conditions, capacity_order=order, paces=paces, engines=engines),
            remaining=remaining_work(view),
            excluded=avoided_pools(view, now),
            deny=denials(policy, placement_action(view, now), job_facts),
        )

    classes = EntryClasses(policy, now, options_of)
    for view in waiting_views.values():
        query = query_for(view.job)
        if query not in boards:
            market = market_for(broker, view.job)
            if reached:
                market = _add_recorded_offers(market, holdings, now, assumptions)
                on_record |= {offer.id for offer in market.offers if is_recorded(offer)}
            boards[query] = market, Board.of(as_if_unoccupied(market.offers), market.conditions.hazard)
            for offer in market.offers:
                if offer.divided:
                    capacity, other_use = shared_machines.get(offer.capacity, (MachineShare(), MachineShare()))
                    in_use = offer.has - (offer.left or offer.has)
                    shared_machines[offer.capacity] = capacity.most(offer.has), other_use.most(in_use)
                elif offer.slots is not None:
                    machines[offer.pool] = offer.slots
        if (accelerators := _accelerators(view)) not in out_of_reach:
            out_of_reach[accelerators] = tuple(
                unreached_capacity_notes(view.job, holdings, boards[query][0].offers, now, assumptions)
            )
        entries.append(classes.entry(view, facts[view.id]))
    free: dict[str, Free] = {}
    for pool, slots in machines.items():
        busy = returns.get(pool, [])
        free[pool] = Free.of(max(slots - sum(nodes for _, nodes in busy), 0), busy)
    for machine, (capacity, other_use) in shared_machines.items():
        releases = [*returns.get(machine, []), (_OTHER_STORES_HOURS, other_use)]
        free[machine] = Free.of(capacity - total(share for _, share in releases), releases)
    running = running_by_team(views)
    rules = QueueRules(running=running)
    turns = place(entries, free, rules, effort=effort)
    rights, value_of_time = {right.priority: right for right in policy.defaults.preempts}, policy.defaults.value_of_time
    taken_places = preemptions(turns, free, running_jobs(views, value_of_time, now), rights, rules) if rights else {}
    waiting = tuple(
        _queued_job(
            view := waiting_views[turn.entry.id],
            turn,
            now,
            planned=turn.entry.id in extra_by_id,
            out_of_reach=out_of_reach[_accelerators(view)],
            preemption=taken_places.get(turn.entry.id),
        )
        for turn in turns
    )
    later_views = tuple(view for view in views if view.awaits_predecessors and not view.state.final)
    machine_uses = machine_use(subtract_other_stores(broker, owned), live)
    return Queue(now, waiting, running.total(), free, machine_uses, later_views, running, frozenset(on_record))


def team_queue(broker: Broker, teams: Collection[str] | None) -> Queue:
    """The queue for a person who may see only the jobs of these teams (None: all). All jobs are placed together; turns
    and running jobs of other teams are not counted."""
    whole_queue = explain_queue(broker)
    if teams is None:
        return whole_queue
    waiting = tuple(
        replace(queued, preemption=queued.preemption and queued.preemption.visible_to(teams))
        for queued in whole_queue.waiting
        if queued.view.job.team in teams
    )
    later_views = tuple(view for view in whole_queue.later if view.job.team in teams)
    running = sum(whole_queue.running_of.get(team, 0) for team in teams)
    return Queue(whole_queue.now, waiting, running, free={}, later=later_views)


class QueuePlanner:
    """The queue's decision (`QueueDecision`) for each waiting job. The reconciler calls `decision` before it
    places a job.

    All waiting jobs are placed together, again after some seconds or when a new job waits. Placing takes at most a
    twentieth of the time; until the next placement a new job waits if machines are limited. A single waiting job is
    placed as if there were no queue, unless it may take the places of others.

    Jobs that cannot start are left out, so that no machine is kept for them: those whose secrets are missing here
    (``missing_secrets``), and for some tries those that the gate refused (`refused`), which get what the other jobs
    leave free.
    """

    def __init__(self, broker: Broker, missing_secrets: Callable[[Job], Sequence[str]] = lambda job: ()) -> None:
        self._broker = broker
        self._missing_secrets = missing_secrets
        self._tries_left_out: dict[str, int] = {}
        self._left_out: frozenset[str] = frozenset()
        self._round: Queue | None = None
        self._among: frozenset[str] = frozenset()
        self._rests_until = self._holds_until = 0.0

    def decision(self, view: JobView, now: datetime) -> QueueDecision:
        """The queue's decision for a waiting job; places the queue again if that is due."""
        if (tries := self._tries_left_out.pop(view.id, 0)) > 0:
            self._tries_left_out[view.id] = tries - 1
        began = time.monotonic()
        was_placed = view.id in self._among
        if began >= (self._holds_until if was_placed else self._rests_until if self._round else 0.0):
            self._place(view)
            ended = time.monotonic()
            self._rests_until = ended + _REST_FACTOR * (ended - began)
            self._holds_until = max(ended + _ROUND_LIFETIME, self._rests_until)
            was_placed = True
        if self._round is None or not self._round.free:
            return QueueDecision()
        if not was_placed:
            return QueueDecision(wait=QueueTurn())
        turns = [queued.turn for queued in self._round.waiting]
        if view.id in self._left_out:
            return decision_outside_round(view, turns, self._round.free)
        waiting_since = view.latest.ended_at if view.latest is not None and view.latest.ended_at else view.submitted_at
        longest = self._broker.policy().defaults.wait_for_paid
        decision = queue_decision(view.id, turns, self._round.free, now - waiting_since, longest)
        preemption = next((queued.preemption for queued in self._round.waiting if queued.view.id == view.id), None)
        return replace(decision, preemption=preemption)

    def refused(self, view: JobView) -> None:
        """Record that the gate refused the job; it is left out of the next placements of the queue."""
        self._tries_left_out[view.id] = _TRIES_LEFT_OUT

    def _place(self, view: JobView) -> None:
        """Place all waiting jobs again; ``view`` counts as waiting."""
        with self._broker.store.reading() as reader:
            waiting = [waiting_view for waiting_view in reader.unclosed() if waits_for_machine(waiting_view)]
        self._among = frozenset(waiting_view.id for waiting_view in waiting) | {view.id}
        self._tries_left_out = {id: tries for id, tries in self._tries_left_out.items() if id in self._among}
        secretless = {waiting_view.id for waiting_view in waiting if self._missing_secrets(waiting_view.job)}
        self._left_out = frozenset(self._tries_left_out) | secretless
        preempts = any(right.priority is view.job.priority for right in self._broker.policy().defaults.preempts)
        alone = not preempts and not self._among - self._left_out - {view.id}
        self._round = None if alone else queue(self._broker, effort=_LIVE_EFFORT, left_out=self._left_out)


def hypothetical_views(broker: Broker, jobs: Sequence[Job], *, by: Actor) -> list[JobView]:
    """The jobs as if ``by`` had submitted them now; their ids are their names, with a number if a name repeats."""
    longest, now = broker.policy().defaults.max_duration, broker.clock.now()
    views: dict[str, JobView] = {}
    for job in jobs:
        name, number = job.name, 2
        while name in views:
            name, number = f"{job.name} ({number})", number + 1
        submission = ev.Submitted(
            job=job,
            user=by.identity,
            deadline=job.deadline_at(now),
            max_duration_seconds=(job.max_duration or longest).total_seconds(),
            work_seconds=job.work.duration.total_seconds() if job.work else None,
        )
        views[name] = advance(None, Event(name, 1, now, None, submission))
    return list(views.values())


def _add_recorded_offers(
    market: PlanInputs, holdings: Sequence[RecordedHolding], now: datetime, assumptions: Assumptions
) -> PlanInputs:
    """The market with an offer at marginal price for each recorded capacity, as if an engine reached it."""
    recorded = [
        replace(offer, engine=ANY_ENGINE) for offer in recorded_offers(holdings, market.offers, now, assumptions)
    ]
    return replace(market, offers=[*market.offers, *recorded])


def _accelerators(view: JobView) -> frozenset[str | None]:
    return frozenset(machine.accelerator for machine in view.job.resources)


def _queued_job(view: JobView, turn: Turn, now: datetime, **more: Any) -> QueuedJob:
    start, finish = None if turn.option is None else now + timedelta(hours=turn.start), None
    if turn.option is not None and start is not None and remaining_work(view) is not None:  # else it is an assumption
        finish = start + timedelta(hours=min(turn.option.hours, 1e6))
    return QueuedJob(view, turn, start, finish, **more)


def _releases(views: Sequence[JobView], now: datetime) -> dict[str, list[tuple[float, Any]]]:
    """By pool or shared machine: in how many hours jobs of this store release capacity, and how much."""
    releases: dict[str, list[tuple[float, Any]]] = {}
    for view in views:
        for attempt in view.attempts:
            if attempt.over:
                continue
            stops_at = now if attempt.stop_requested is not None else None
            expected_end = stops_at or attempt.placement.finish or now + view.max_duration - billed_time(view, now)
            hours = max((expected_end - now) / _HOUR, STOP_HOURS)
            releases.setdefault(attempt.placement.offer.capacity, []).append((hours, attempt.placement.amount))
    return releases


@dataclass(frozen=True, slots=True)
class MachineUse:
    """One machine: what it ``has``, how much of that is ``free`` now, and how many ``jobs`` of this store use it."""

    name: str
    has: MachineShare
    free: MachineShare
    jobs: int


def machine_use(offers: Iterable[Offer], live: Iterable[LiveAttempt]) -> tuple[MachineUse, ...]:
    """The use of all shared machines among the offers, by name. ``live``: the attempts of this store."""
    attempts = list(live)
    offers_by_machine: dict[str, list[Offer]] = {}
    for offer in subtract_occupied((entry for entry in offers if entry.divided), attempts):
        offers_by_machine.setdefault(offer.capacity, []).append(offer)
    return tuple(
        MachineUse(
            name,
            capacity := reduce(MachineShare.most, (entry.has for entry in machine_offers)),
            reduce(MachineShare.most, ((entry.left or entry.has).at_most(capacity) for entry in machine_offers)),
            sum(entry.capacity == name for entry in attempts),
        )
        for name, machine_offers in sorted(offers_by_machine.items())
    )
