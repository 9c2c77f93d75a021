"""One attempt of a simulated job: how long it runs, what ends it, what it costs, and what work remains. Pure;
`CountedAttempts` has the running ones, for the rules that count them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from random import Random
from typing import cast

from broker.core.job.placements import Placement
from broker.core.policy.policy import LiveAttempt
from broker.core.ports import PolicySet
from broker.core.values.money import Money
from broker.ledger.entries import Entry, Movement, Tags, move
from broker.ledger.holds import STOP_GRACE, Metering, PriceSeries, ledger_rate, paid_until
from broker.ledger.meter import BilledTime, Meter, advance
from broker.placement.pricing.run_model import Effort
from tests.lab.simulation.ledger import OpenAccount
from tests.lab.simulation.workload import HOUR, JobClass


class AttemptEnd(StrEnum):
    DONE = "done"
    LOST = "lost"
    PREEMPTED = "preempted"
    TIME_USED_UP = "max_duration"
    MONEY_USED_UP = "money"
    CUT_OFF = "end of the simulation"


@dataclass(slots=True, eq=False)
class SimulatedJob:
    """A job between its submission and its end. Times are seconds from the start of the workload. ``left``: seconds of
    work on its first machine; ``billed``: seconds billed so far; ``first_start``: -1 before it."""

    number: int
    id: str
    place: int
    submitted: int
    work: int
    account: OpenAccount
    left: float
    billed: int = 0
    attempts: int = 0
    first_start: int = -1
    put_off: bool = False
    gave_way: list[int] = field(default_factory=list)  # the seconds at which it was stopped for others


@dataclass(frozen=True, slots=True)
class SimulatedAttempt:
    """An attempt that runs: ``started`` and ``ends`` in seconds; ``saved``: seconds of work that are safe then."""

    job: SimulatedJob
    placement: Placement
    started: int
    ends: int
    end: AttemptEnd
    saved: float = field(default=0.0)


@dataclass(frozen=True, slots=True)
class StopLoss:
    """What it takes to stop a running attempt now: ``ends``: the second at which its machines are free; ``saved``:
    seconds of work that are safe then; ``repeated``: seconds of machine time that it will repeat, the start and restore
    of the next attempt included."""

    ends: int
    saved: float
    repeated: float


def stop_loss(attempt: SimulatedAttempt, effort: Effort, now: int, *, saves: bool) -> StopLoss:
    """``saves``: it writes a checkpoint before it leaves, if its job makes any."""
    job, placement = attempt.job, attempt.placement
    each, interval = placement.throughput, effort.interval_at(placement.interruptions_per_hour) * HOUR
    start = effort.start_on(placement.offer.capacity_type) * HOUR
    resumed = job.left < job.work and effort.checkpoints
    ran = max(now - attempt.started - start - (effort.restart * HOUR if resumed else 0.0), 0.0)
    if not math.isfinite(interval):
        return StopLoss(max(now, attempt.started + 1), 0.0, ran + start)
    write = effort.write * HOUR
    whole = math.floor(ran / (interval + write))
    since = min(ran - whole * (interval + write), interval)
    ends = max(now + (math.ceil(write) if saves else 0), attempt.started + 1)
    saved = min((whole * interval + (since if saves else 0.0)) * each, job.left)
    return StopLoss(ends, saved, (0.0 if saves else since) + start + effort.restart * HOUR)


def course(
    job: SimulatedJob, placement: Placement, effort: Effort, started: int, limits: AttemptLimits, chance: Random
) -> SimulatedAttempt:
    """The course of the attempt: its end, and the work saved until then. ``chance``: draws whether and when a machine
    is interrupted or fails."""
    rate, each = placement.interruptions_per_hour, placement.throughput
    interval = effort.interval_at(rate) * HOUR
    resumed = job.left < job.work and effort.checkpoints
    ready = effort.start_on(placement.offer.capacity_type) * HOUR + (effort.restart * HOUR if resumed else 0.0)
    compute = job.left / each
    write = effort.write * HOUR if math.isfinite(interval) else 0.0
    writes = max(math.ceil(compute / interval) - 1, 0) if math.isfinite(interval) else 0
    ends, end = started + max(math.ceil(ready + compute + writes * write), 1), AttemptEnd.DONE
    if rate > 0 and (taken := started + max(math.ceil(chance.expovariate(rate) * HOUR), 1)) < ends:
        ends, end = taken, AttemptEnd.LOST
    if started + limits.seconds < ends:
        ends, end = started + max(limits.seconds, 1), AttemptEnd.TIME_USED_UP
    if limits.paid_until is not None and limits.paid_until < ends:
        ends, end = max(limits.paid_until, started + 1), AttemptEnd.MONEY_USED_UP
    if end is AttemptEnd.DONE:
        return SimulatedAttempt(job, placement, started, ends, end, job.left)
    ran = max(ends - started - ready, 0.0)
    kept = math.floor(ran / (interval + write)) * interval * each if math.isfinite(interval) else 0.0
    return SimulatedAttempt(job, placement, started, ends, end, min(kept, job.left))


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """``seconds``: billed time that the job has left; ``paid_until``: the second until which its hold pays; None: it
    costs nothing."""

    seconds: int
    paid_until: int | None


def limits_of(
    job: SimulatedJob, placement: Placement, held: Money, dearest: Money, now: datetime, started: int, longest: int
) -> AttemptLimits:
    """``held``: the money of the job's hold for it (USD). ``dearest``: the highest price (USD) per machine and hour
    while it may run. ``now``: UTC, of second ``started``; ``longest``: the job's limit in seconds."""
    rate = max(dearest, ledger_rate(placement.offer)) * placement.nodes
    until = paid_until(now, held, rate, billing=placement.offer.billing, stop_grace=STOP_GRACE)
    seconds = None if until is None else started + int((until - now).total_seconds())
    return AttemptLimits(max(longest - job.billed, 1), seconds)


def settled(
    attempt: SimulatedAttempt, tags: Tags, number: int, start: datetime, changes: Sequence[tuple[datetime, Money]]
) -> tuple[list[Entry], int]:
    """The entries that post the cost of an ended attempt, and the seconds billed. ``start``: of its machines (UTC);
    ``changes``: prices per machine that came into force while it ran; ``number``: of the job's movements so far."""
    placement = attempt.placement
    offer, nodes = placement.offer, placement.nodes
    rate = ledger_rate(offer) * nodes
    rates: PriceSeries = [(start, rate), *((at, price * nodes) for at, price in changes)]
    end = start + timedelta(seconds=attempt.ends - attempt.started)
    metering = Metering.INTERRUPTED if attempt.end is AttemptEnd.LOST else Metering.ENDED
    usage = BilledTime(start, end, offer.billing, metering)
    _, stretches = advance(Meter.new(start, rate), rates, usage)
    entries: list[Entry] = []
    for one in stretches:
        what, sign = (Movement.SETTLE, 1) if one.amount > Money.ZERO else (Movement.RESTORE, -1)
        entries += move(
            what, one.amount * sign, movement_id=f"{tags.job_id}/{attempt.job.attempts}/{what}/{number}",
            money=placement.money, at=end, covers=(one.start, one.end), tags=tags,
        )  # fmt: skip
        number += 1
    return entries, int((usage.billed_to - start).total_seconds())


class CountedAttempts:
    """Identical attempts are one entry with all their machines, unless a rule counts jobs. Nothing is recorded if no
    rule counts."""

    def __init__(self, policy: PolicySet) -> None:
        self._wanted = policy.counts_live
        self._singly = any(rule.kind == "max_concurrent_jobs" for rule in policy.rules)
        self._alike: dict[object, tuple[SimulatedAttempt, JobClass, int]] = {}
        self._lives: dict[object, LiveAttempt | None] = {}  # None: its number has changed since it was told
        self._told: tuple[LiveAttempt, ...] | None = ()

    def count(self, attempt: SimulatedAttempt, of: JobClass, sign: int) -> None:
        """One more (1) or one less (-1) such attempt of a job of the class ``of``."""
        if not self._wanted:
            return
        placement, offer = attempt.placement, attempt.placement.offer
        where = offer.provider, offer.zone or offer.region, offer.capacity_type
        key = attempt.job.id if self._singly else (attempt.job.place, *where, placement.nodes)
        first, _, number = self._alike.get(key, (attempt, of, 0))
        if number + sign:
            self._alike[key] = first, of, number + sign
            self._lives[key] = None
        else:
            del self._alike[key], self._lives[key]
        self._told = None

    @property
    def attempts(self) -> tuple[LiveAttempt, ...]:
        """All of them; the same object until one starts or ends."""
        if self._told is None:
            for key, live in self._lives.items():
                if live is None:
                    self._lives[key] = _live(*self._alike[key])
            self._told = cast("tuple[LiveAttempt, ...]", tuple(self._lives.values()))
        return self._told


def _live(first: SimulatedAttempt, of: JobClass, number: int) -> LiveAttempt:
    placement, offer, job = first.placement, first.placement.offer, of.job
    return LiveAttempt(
        job_id=first.job.id,
        user=of.user,
        team=of.team,
        project=job.project,
        workload=job.workload.value,
        environment=job.environment,
        gpus=placement.gpus * number,
        accelerator=offer.accelerator,
        provider=offer.provider,
        money=offer.money,
        pool=offer.pool,
        nodes=placement.nodes * number,
        capacity_type=offer.capacity_type,
    )
