"""A workload on a virtual clock: arrivals, decisions, machines and money, event by event.

Each submission passes the gate of real ones (`broker.reconciler.admission`): its class's plan, the policies, its hold.
Jobs that wait for limited machines are placed together by the production queue, at most once a minute of virtual time;
each start from there is judged again. Ends settle by the production meter. Equal inputs give equal events and hashes.
"""

import heapq
from array import array
from bisect import insort
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from operator import attrgetter
from random import Random
from typing import Any, cast

from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.job.placements import Placement
from broker.core.policy.policy import Answer
from broker.core.ports import PolicySet
from broker.core.values.money import Money
from broker.ledger.entries import Account, Movement, Tags
from broker.placement.queue.preemption import RunningJob
from broker.placement.queue.queue import EPSILON, QueueEntry, QueueRules, hour_of_running
from broker.placement.queue.search import place
from broker.reconciler.admission.admission import admit, re_place
from broker.reconciler.admission.facts import FactsFor
from broker.reconciler.admission.records import held_of, hold_entries
from tests.lab.command import Progress
from tests.lab.simulation.attempt import (
    AttemptEnd,
    CountedAttempts,
    SimulatedAttempt,
    SimulatedJob,
    course,
    limits_of,
    settled,
    stop_loss,
)
from tests.lab.simulation.decisions import ClassDecision, ClassDecisions, WholeHolds, objection_of
from tests.lab.simulation.figures import GANGS, SHORTEST, OverTime, SimulationResult, TeamTally, gang_of
from tests.lab.simulation.ledger import VirtualLedger
from tests.lab.simulation.market import PoolInUse, SimulatedMarket
from tests.lab.simulation.preemption import chosen
from tests.lab.simulation.workload import DAY, HOUR, JobClass, SimulatedWorkload, WorkloadSize

_ROUND = 60  # seconds between rounds of the queue
_LONG_ROUND = 300  # while more than `_MANY` wait
_LONGEST_ROUND = 900  # after rounds that started nothing
_MANY = 200
_AT_ONCE = 64  # jobs of a class in one round
_EFFORT = 4  # placements tried for each job of a round, beside the first orders
_ASIDE = 900  # seconds for which a job that the gate refused is left out
_LEAST_AFTER = 30 * DAY  # jobs that run or wait this long after the last arrival are cut off
_PROGRESS_EVERY = 5_000
_END, _MARKET, _QUEUE, _BACK = range(4)


def simulate(
    workload: SimulatedWorkload, policy: PolicySet, size: WorkloadSize, progress: Progress | None = None
) -> SimulationResult:
    """Play the workload under these policies. Pure."""
    return _Simulation(workload, policy, size, progress).run()


@dataclass
class _Simulation:
    workload: SimulatedWorkload
    policy: PolicySet
    size: WorkloadSize
    progress: Progress | None
    now: int = 0
    last_round: int = -_LONG_ROUND
    round_due: bool = False
    pause: int = _ROUND
    rounds: int = 0
    teams: dict[str, TeamTally] = field(default_factory=lambda: defaultdict(TeamTally))
    running: dict[str, SimulatedAttempt] = field(default_factory=dict)
    running_by_team: Counter[str] = field(default_factory=Counter)
    waiting: dict[int, deque[SimulatedJob]] = field(default_factory=lambda: defaultdict(deque))
    number_waiting: int = 0
    aside: int = 0
    events: list[tuple[int, int, int, Any]] = field(default_factory=list)
    tie: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.policy = cast("PolicySet", WholeHolds(self.policy))
        self.start = self.workload.start
        self.horizon = self.size.days * DAY
        self.cut_off_at = self.horizon + max(self.horizon, _LEAST_AFTER)
        self.classes: tuple[JobClass, ...] = self.workload.classes
        self.market = SimulatedMarket.of(self.workload.pools, self.start, self.size.seed, self.cut_off_at)
        self.by_capacity = {pool.offer.capacity: pool for pool in self.market.pools.values()}
        self.decisions = ClassDecisions(self.market, self.policy, self.classes)
        self.ledger = VirtualLedger()
        self.live = CountedAttempts(self.policy)
        self.over_time = OverTime(self.size.days)
        self.gangs = {size: array("i") for size in GANGS}
        self.gang_of = [self.gangs[gang_of(one.gpus)] for one in self.classes]
        self.rights = {right.priority: right for right in self.policy.defaults.preempts}

    # The loop.

    def run(self) -> SimulationResult:
        source = self.workload.jobs()
        total, seen = source.count(self.size), 0
        arrivals = source.submissions(self.size)
        changes = self.market.change_times()
        self.market.change(0)
        self._push_change(changes)
        following = next(arrivals, None)
        while following is not None or self.events:
            if following is not None and (not self.events or following[0] < self.events[0][0]):
                self.now = following[0]
                self._arrive(seen, *following[1:])
                seen += 1
                following = next(arrivals, None)
                if self.progress is not None and seen % _PROGRESS_EVERY == 0:
                    self.progress(seen, total, "simulating")
                continue
            if self.events[0][0] > self.cut_off_at:
                break
            self.now, _, kind, what = heapq.heappop(self.events)
            if kind == _END:
                current = self.running.get(what.job.id)
                if current is not None and current is what:  # else it was stopped earlier
                    self._ended(current)
            elif kind == _QUEUE:
                self._round()
            elif kind == _BACK:
                self.aside -= 1
                self._wait(what)
            else:
                self.market.change(self.now)
                self._ask_for_round()
                if following is not None or self.running or self.number_waiting or self.aside:
                    self._push_change(changes)
        self._cut_off()
        return SimulationResult(
            self.workload, self.size, dict(sorted(self.teams.items())), list(self.market.pools.values()), self.ledger,
            self.now, self.decisions.made, self.rounds, self.ledger.check(), self.ledger.digest, self.over_time,
            self.gangs,
        )  # fmt: skip

    def _push(self, at: int, kind: int, what: Any) -> None:
        heapq.heappush(self.events, (at, next(self.tie), kind, what))

    def _push_change(self, changes: Iterator[int]) -> None:
        if (at := next(changes, None)) is not None:
            self._push(at, _MARKET, None)

    def _time(self, second: int | None = None) -> datetime:
        return self.start + timedelta(seconds=self.now if second is None else second)

    # Submissions.

    def _arrive(self, number: int, place_of: int, work: int) -> None:
        one, now = self.classes[place_of], self._time()
        team = self.teams[one.team]
        team.submitted += 1
        team.asked_gpu_seconds += work * one.gpus
        decision = self.decisions.of(place_of, now)
        job_id = f"{one.name}-{number}"
        if decision.refused:
            self._refuse(team, job_id, decision.refused)
            return
        facts_for = self._facts(place_of, now)
        admission = admit(
            one.job, one.user, decision.plan, self.policy, facts_for,
            max_duration=self.decisions.max_durations[place_of], now=now,
        )  # fmt: skip
        if admission.answer is not Answer.ALLOW or admission.short_of is not None:
            self._refuse(team, job_id, objection_of(admission))
            return
        tags = Tags(job_id, one.user, one.team, one.job.project, one.job.workload.value, one.job.environment)
        account = self.ledger.open(tags, self.decisions.budgets[place_of], now)
        self.ledger.post(account, hold_entries(tags, {}, admission.burns, Movement.HOLD, 1))
        team.with_deadline += one.job.deadline is not None
        job = SimulatedJob(number, job_id, place_of, self.now, work, account, float(work))
        placement = admission.placement
        pool = self.market.pools[placement.offer.id]
        limited = any(option.pool is not None for option in decision.entry.options)
        if pool.room_for(placement.nodes) and (not limited or not self.number_waiting):
            self._start(job, placement, pool)
        else:
            self._wait(job)

    def _refuse(self, team: TeamTally, job_id: str, why: str) -> None:
        team.refused[why] += 1
        self.ledger.note(f"{self.now} {job_id} refused: {why}")

    def _facts(self, place_of: int, now: datetime) -> FactsFor:
        self.ledger.live = self.live.attempts
        return self.ledger.facts(self.decisions.budgets[place_of], now)

    # The queue.

    def _wait(self, job: SimulatedJob) -> None:
        """Add the job to the waiting jobs of its class, by time of submission: an interrupted or deferred job keeps its
        place."""
        line = self.waiting[job.place]
        if line and job.submitted < line[-1].submitted:
            insort(line, job, key=attrgetter("submitted"))
        else:
            line.append(job)
        self.number_waiting += 1
        self.over_time.wait(self.now, self.number_waiting + self.aside)
        self._ask_for_round()

    def _ask_for_round(self) -> None:
        if self.round_due or not self.number_waiting:
            return
        pause = max(self.pause, _LONG_ROUND if self.number_waiting > _MANY else _ROUND)
        self.round_due = True
        self._push(max(self.now, self.last_round + pause), _QUEUE, None)

    def _round(self) -> None:
        self.round_due, self.last_round, now = False, self.now, self._time()
        heads: dict[str, SimulatedJob] = {}
        entries: list[QueueEntry] = []
        pools: dict[str, PoolInUse] = {}
        anything = False
        for place_of, line in self.waiting.items():
            if not line or (decision := self.decisions.of(place_of, now)).refused:
                continue
            fits = self._fitting(decision, pools)
            anything = anything or fits > 0 or self.classes[place_of].job.priority in self.rights
            for job, _ in zip(line, range(min(max(fits, 1), _AT_ONCE)), strict=False):
                heads[job.id] = job
                entries.append(self._entry(decision.entry, job))
        if not anything:
            return
        self.rounds += 1
        free = {name: pool.returns(self.now) for name, pool in pools.items()}
        rules = QueueRules(running=self.running_by_team)
        before = len(self.running)
        turns = place(entries, free, rules, effort=max(_EFFORT * len(entries), 64))
        if self.rights:
            for victim in chosen(self.size.victims, turns, free, self._running_jobs(), self.rights, rules):
                self._stop(self.running[victim.id])
        for turn in turns:
            if turn.option is not None and turn.start <= EPSILON:
                job = heads[turn.entry.id]
                self._from_queue(job, self.decisions.of(job.place, now).by_id[turn.option.name])
        self.pause = _ROUND if len(self.running) > before else min(2 * self.pause, _LONGEST_ROUND)
        self._ask_for_round()

    def _fitting(self, decision: ClassDecision, pools: dict[str, PoolInUse]) -> int:
        """How many jobs of the class could start now. Adds its limited pools to ``pools``."""
        fits = 0
        for option in decision.entry.options:
            if option.pool is None:
                return _AT_ONCE
            pool = pools[option.pool] = self.by_capacity[option.pool]
            fits = max(fits, (pool.free or 0) // decision.by_id[option.name].nodes)
        return fits

    def _entry(self, entry: QueueEntry, job: SimulatedJob) -> QueueEntry:
        waited = (self.now - job.submitted) / HOUR
        deadline = None if entry.deadline is None else entry.deadline - waited
        return replace(entry, id=job.id, handed_in=-waited, deadline=deadline)

    def _from_queue(self, job: SimulatedJob, placement: Placement) -> None:
        """Start a waiting job on the placement, if the gate allows it."""
        pool = self.market.pools[placement.offer.id]
        if not pool.room_for(placement.nodes):
            return
        self.waiting[job.place].remove(job)
        self.number_waiting -= 1
        self.over_time.wait(self.now, self.number_waiting + self.aside)
        now, one, account = self._time(), self.classes[job.place], job.account
        balance = account.balance()
        decision = self.decisions.of(job.place, now)
        plan, facts_for = replace(decision.plan, placements=(placement,)), self._facts(job.place, now)
        billed = timedelta(seconds=job.billed)
        view = self._view(job, one)
        admission = re_place(view, plan, self.policy, facts_for, balance, billed=billed, now=now)
        if not admission.may_launch:  # perhaps only those behind it are in the way
            facts_for = self.ledger.facts_in_line(self.decisions.budgets[job.place], now)
            admission = re_place(view, plan, self.policy, facts_for, balance, billed=billed, now=now)
        if not admission.may_launch:
            if not job.put_off:
                job.put_off = True
                self.teams[one.team].put_off[objection_of(admission)] += 1
            self.aside += 1
            self.over_time.wait(self.now, self.number_waiting + self.aside)
            self._push(self.now + _ASIDE, _BACK, job)
            return
        held = held_of(balance)
        entries = hold_entries(account.tags, held, admission.burns, Movement.TOP_UP, account.movements + 1)
        self.ledger.post(account, entries)
        self._start(job, placement, pool)

    def _running_jobs(self) -> list[RunningJob]:
        found: list[RunningJob] = []
        for id, attempt in self.running.items():
            placement, job = attempt.placement, self.classes[attempt.job.place].job
            if attempt.end is AttemptEnd.PREEMPTED or attempt.started == self.now:
                continue
            hour = hour_of_running(job, placement, self.policy.defaults.value_of_time)
            loss = stop_loss(attempt, self.decisions.efforts[attempt.job.place], self.now, saves=False)
            found.append(
                RunningJob(
                    id, attempt.job.attempts, job.priority, placement.offer.capacity, placement.nodes,
                    hour.for_duration(timedelta(seconds=loss.repeated)), timedelta(seconds=self.now - attempt.started),
                    sum(self.now - at < DAY for at in attempt.job.gave_way),
                )
            )  # fmt: skip
        return found

    def _stop(self, attempt: SimulatedAttempt) -> None:
        """The attempt ends for another job, perhaps after a checkpoint; unless it ends earlier anyhow."""
        job, placement = attempt.job, attempt.placement
        loss = stop_loss(attempt, self.decisions.efforts[job.place], self.now, saves=self.size.saves)
        if loss.ends >= attempt.ends:
            return
        one = self.classes[job.place]
        team = self.teams[one.team]
        team.preempted += 1
        team.repeated_gpu_seconds += loss.repeated * one.gpus
        job.gave_way.append(self.now)
        stopped = replace(attempt, ends=loss.ends, end=AttemptEnd.PREEMPTED, saved=loss.saved)
        self.running[job.id] = stopped
        self.market.pools[placement.offer.id].busy[job.id] = loss.ends, placement.nodes
        self._push(loss.ends, _END, stopped)

    def _view(self, job: SimulatedJob, one: JobClass) -> JobView:
        submitted = self._time(job.submitted)
        longest = self.decisions.max_durations[job.place]
        return JobView(
            job.id, one.job, one.user, JobState.QUEUED, 1, submitted, one.job.deadline_at(submitted), longest,
            one.job.max_cost, None, folded=job.attempts,
        )  # fmt: skip

    # Machines.

    def _start(self, job: SimulatedJob, placement: Placement, pool: PoolInUse) -> None:
        one, now = self.classes[job.place], self._time()
        job.attempts += 1
        self.ledger.started(job.id)
        if job.first_start < 0:
            job.first_start = self.now
            team = self.teams[one.team]
            team.started += 1
            team.waits.append(self.now - job.submitted)
            self.gang_of[job.place].append(self.now - job.submitted)
        held = job.account.held.get(placement.money, Money.ZERO) - placement.egress
        longest = int(self.decisions.max_durations[job.place].total_seconds())
        ahead = pool.changes(self.now, self.now + max(longest - job.billed, 1))
        dearest = max((price for _, price in ahead), default=Money.ZERO)
        limits = limits_of(job, placement, held, dearest, now, self.now, longest)
        chance = Random(f"{self.size.seed}/{job.number}/{job.attempts}")
        attempt = course(job, placement, self.decisions.efforts[job.place], self.now, limits, chance)
        left = timedelta(seconds=max(longest - job.billed, 1))
        pool.take(job.id, placement.nodes, self.decisions.expected_end(placement, self.now, left))
        self.running[job.id] = attempt
        self.running_by_team[one.team] += 1
        self.live.count(attempt, one, 1)
        self.ledger.note(f"{self.now} {job.id} starts {placement.offer.id}")
        self._push(attempt.ends, _END, attempt)

    def _ended(self, attempt: SimulatedAttempt) -> None:
        job, placement = attempt.job, attempt.placement
        one, pool = self.classes[job.place], self.market.pools[placement.offer.id]
        team = self.teams[one.team]
        pool.give_back(job.id, placement.nodes)
        if pool.free is not None:
            self.pause = _ROUND
        del self.running[job.id]
        self.running_by_team[one.team] -= 1
        self.live.count(attempt, one, -1)
        self._bill(attempt, pool)
        team.useful_gpu_seconds += attempt.saved * one.gpus
        job.left -= attempt.saved
        if attempt.end is AttemptEnd.LOST:
            team.interruptions += 1
            self._wait(job)
        elif attempt.end is AttemptEnd.PREEMPTED:
            self._wait(job)
        else:
            self._close(job, attempt.end)
        self._ask_for_round()

    def _bill(self, attempt: SimulatedAttempt, pool: PoolInUse) -> None:
        job, offer = attempt.job, attempt.placement.offer
        one = self.classes[job.place]
        tags = Tags(
            job.id, one.user, one.team, one.job.project, one.job.workload.value, one.job.environment, job.attempts,
            offer.provider, offer.region, offer.capacity_type, offer.accelerator, attempt.placement.gpus,
        )  # fmt: skip
        changes = [(self._time(at), price) for at, price in pool.changes(attempt.started, attempt.ends)]
        entries, billed = settled(attempt, tags, job.account.movements + 1, self._time(attempt.started), changes)
        self.ledger.post(job.account, entries)
        cost = sum(entry.amount.micros for entry in entries if entry.account is Account.SPENT)
        self.over_time.paid(attempt.started, attempt.ends, cost, attempt.placement.money)
        self.over_time.ran(attempt.started, attempt.ends, one.gpus, offer.capacity_type)
        job.billed += billed
        used = self.teams[one.team].used_gpu_seconds
        seconds = attempt.ends - attempt.started
        used[offer.capacity_type] = used.get(offer.capacity_type, 0.0) + seconds * one.gpus
        within = max(min(attempt.ends, self.horizon) - attempt.started, 0)
        pool.used_seconds += within * attempt.placement.nodes
        pool.used_gpu_seconds += within * one.gpus

    def _close(self, job: SimulatedJob, end: AttemptEnd) -> None:
        one = self.classes[job.place]
        team = self.teams[one.team]
        if end is AttemptEnd.DONE:
            team.finished += 1
            team.slowdowns += max((self.now - job.submitted) / max(job.work, SHORTEST), 1.0)
        elif end is AttemptEnd.CUT_OFF:
            team.unfinished += 1
        else:
            team.stopped[end] += 1
        deadline = one.job.deadline
        if isinstance(deadline, timedelta):
            team.late += end is not AttemptEnd.DONE or self.now - job.submitted > deadline.total_seconds()
        team.add_spent(self.ledger.close(job.account, self._time()).items())
        self.ledger.note(f"{self.now} {job.id} {end}")

    def _cut_off(self) -> None:
        """Settle and close the remaining jobs when the simulation ends."""
        self.now = self.cut_off_at if self.running or self.number_waiting or self.aside else self.now
        for attempt in list(self.running.values()):
            self._ended(replace(attempt, ends=max(self.now, attempt.started + 1), end=AttemptEnd.CUT_OFF, saved=0.0))
        self.over_time.wait(self.now, 0)
        left = [job for line in self.waiting.values() for job in line]
        left += [what for _, _, kind, what in sorted(self.events, key=lambda event: event[:2]) if kind == _BACK]
        for job in left:
            self._close(job, AttemptEnd.CUT_OFF)
