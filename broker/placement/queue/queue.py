"""Assigns limited capacity to many jobs: which jobs get machines, which wait, and which go elsewhere.

Each job has options: machines of a limited pool (owned, reserved), perhaps after a wait, or machines available at any
time at a price. A *round* gives every job one option and a start, such that no pool exceeds its machines at any time
and a gang gets all its machines together. It minimizes

    first  the number of late jobs
    then   Σ  weight · (weighed cost of the option + value of an hour · hours until the start)

where the weighed cost is the ranking value in the job's own plan (expected cost plus value of its time), and the value
of an hour is the job's `value_of_time`, by default an amount per GPU by priority. The rules:

- **Priority**: jobs of a higher priority are placed as if there were none of a lower one.
- **Deadline**: a job that can meet its deadline does so, on more expensive capacity if necessary; no cost outweighs
  lateness.
- **Fairness**: within a priority, the first job of each team weighs most, and each further one less; so a team with
  a hundred jobs does not take everything. A team's running jobs count as its first ones.

Jobs placed one after the other, each at its best with the remaining capacity, satisfy all rules. The search is over
their order, and over jobs that should take another option than their own best: see `queue.search`. A test
measures the distance to the optimum on small queues. Pure and deterministic. Times are hours from now, money USD.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from broker.core.job.jobs import Job, Priority
from broker.core.job.placements import Placement
from broker.core.job.reasons import Reason
from broker.core.market.shares import MachineShare
from broker.core.values.figures import hours_of
from broker.core.values.money import Money
from broker.placement.offer_index import Board
from broker.placement.planner import Deny
from broker.placement.pricing.conditions import Conditions
from broker.placement.pricing.estimate import margin
from broker.placement.pricing.run_model import ASSUMED_WORK, Effort
from broker.placement.ranking import ranking_cost

# Maximum number of limited pools among a job's options.
_LIMITED = 8


def entry_of(  # noqa: PLR0913 - a job, a market, and what `Judge.of` wants to know
    job_id: str,
    job: Job,
    board: Board,
    *,
    now: datetime,
    submitted_at: datetime,
    conditions: Conditions,
    remaining: timedelta | None = None,
    excluded: Mapping[str, tuple[Reason, str]] | None = None,
    deny: Deny | None = None,
) -> QueueEntry:
    """The entry of a job with at most nine options: limited pools, best first, up to the first unlimited capacity in
    the ranking. If no placement meets the deadline, the options ignore it. So a job alone in the queue, with all
    machines free, gets the first placement of its plan. An offer's ``slots`` must include the machines that jobs occupy
    now.
    """

    def options(variant: Job) -> tuple[QueueOption, ...]:
        judge = board.judge(
            variant, now=now, submitted_at=submitted_at, conditions=conditions, remaining=remaining, excluded=excluded,
            deny=deny,
        )  # fmt: skip
        return _options(board.ranked(judge, most_limited=_LIMITED), judge.effort)

    effort = Effort.of(job, conditions, remaining)
    entry_options = options(job)
    if not entry_options and job.deadline is not None:
        entry_options = options(job.model_copy(update={"deadline": None, "value_of_time": Money.ZERO}))
    deadline = job.deadline_at(submitted_at)
    return QueueEntry(
        id=job_id,
        team=job.team or "",
        priority=job.priority,
        nodes=job.num_nodes,
        gpus=job.num_nodes * max((machine.count for machine in job.resources), default=0) or job.num_nodes,
        options=entry_options,
        deadline=None if deadline is None else hours_of(deadline - now),
        handed_in=hours_of(submitted_at - now),
        needs=min((option.hours for option in entry_options), default=effort.work or 0.0),
        open_ended=effort.work is None,
        value_of_time=_own_value(job, conditions.value_of_time),
    )


def _own_value(job: Job, default: Money | None) -> float | None:
    """As `QueueEntry.value_of_time`; ``default``: that of the policies."""
    value = default if job.value_of_time is None else job.value_of_time
    # $0 is a value too: the job waits while waiting is cheaper. A deadline overrides the value of time.
    return None if value is None or job.deadline is not None else _usd(value)


def _options(ranked: Iterator[Placement], effort: Effort) -> tuple[QueueOption, ...]:
    options: list[QueueOption] = []
    minimum = Money.ZERO
    for placement in ranked:
        offer = placement.offer
        # A later option never weighs less, even if the ranking is not by money.
        minimum = max(minimum, ranking_cost(placement))
        if offer.slots is None:
            # Unlimited capacity serves the job however long the queue is; later options would not be used.
            options.append(_option(placement, None, minimum, effort))
            break
        options.append(_option(placement, offer.capacity, minimum, effort))
    return tuple(options)


def _option(placement: Placement, pool: str | None, weighs: Money, effort: Effort) -> QueueOption:
    offer, cost = placement.offer, _usd(placement.expected_cost)
    share = None if offer.whole is None else offer.has
    if placement.duration is not None:
        spare = hours_of(margin(placement, effort))
        return QueueOption(offer.id, pool, hours_of(placement.duration), cost, _usd(weighs), spare, share)
    hours = ASSUMED_WORK / (placement.throughput * placement.useful_fraction)
    return QueueOption(offer.id, pool, hours, cost, _usd(weighs) * ASSUMED_WORK, share=share)


def _usd(amount: Money) -> float:
    return amount.micros / 1e6


TIERS = (Priority.URGENT, Priority.HIGH, Priority.NORMAL, Priority.LOW)
# Default value of an hour of waiting, USD per GPU: an assumption. At $2 per GPU-hour, a normal job waits some 20 hours
# for each hour it would otherwise pay for.
WAITING = {Priority.LOW: 0.02, Priority.NORMAL: 0.10, Priority.HIGH: 0.50, Priority.URGENT: 2.00}
FAIRNESS = 0.25
# Maximum placements of single jobs tried per priority; seconds.
EFFORT = 60_000
# A job with less slack than this goes before fairness.
_PRESSING = 2.0
EPSILON = 1e-9
# Hours within which a job that was asked to stop, or is past its expected end, releases its machines: an assumption.
STOP_HOURS = 0.1

Amount: TypeAlias = int | MachineShare
"""What a job takes: machines of a pool, or a part of one that is divided. Each pool counts in one of the two."""


@dataclass(frozen=True, slots=True)
class QueueOption:
    """One way to run a job: ``hours`` from start to finish, for ``cost`` USD as planned: total, or per hour if the work
    is unknown. ``weighs``: USD for the objective. ``pool``: its limited pool or divided machine, None if unlimited.
    ``margin``: hours a plan keeps free before a deadline. ``share``: its part of the divided machine.
    """

    name: str
    pool: str | None
    hours: float
    cost: float
    weighs: float
    margin: float = 0.0
    share: MachineShare | None = None

    def takes(self, nodes: int) -> Amount:
        """The amount that a job with ``nodes`` nodes occupies of the pool."""
        return nodes if self.share is None else self.share


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A job in the queue. Times in hours from now: ``deadline`` (negative if past), ``handed_in`` (negative).
    ``needs``: known hours of work left; ``open_ended``: unknown, so the job is late only if its deadline has passed at
    its start; ``value_of_time``: USD per hour until its finish, possibly 0; None if unset or a deadline applies.
    """

    id: str
    team: str
    priority: Priority
    nodes: int
    gpus: int
    options: tuple[QueueOption, ...] = ()
    deadline: float | None = None
    handed_in: float = 0.0
    needs: float = 0.0
    open_ended: bool = False
    value_of_time: float | None = None

    @property
    def slack(self) -> float:
        """Hours it may still wait; infinite without a deadline."""
        return math.inf if self.deadline is None else self.deadline - self.needs


@dataclass(frozen=True, slots=True)
class Turn:
    """The result for a job. ``start``: hours from now. ``option`` None: nothing can serve it."""

    entry: QueueEntry
    option: QueueOption | None
    start: float
    late: bool

    @property
    def finish(self) -> float | None:
        return None if self.option is None else self.start + self.option.hours


@dataclass(frozen=True, slots=True)
class Free:
    """Free machines of a limited pool, or what is free of a divided machine: times (hours from now, ascending, the
    first 0 or less) and amounts."""

    steps: tuple[tuple[float, Any], ...]  # `Amount`, all of one kind

    @classmethod
    def of(cls, now: Amount, returns: Iterable[tuple[float, Any]] = ()) -> Free:
        """``now`` are free; ``returns``: times and amounts that come back."""
        steps: list[tuple[float, Any]] = [(0.0, now)]
        number: Any = now
        for at, amount in sorted(returns, key=lambda entry: entry[0]):
            number = number + amount
            steps.append((max(at, 0.0), number))
        return cls(tuple(steps))


@dataclass(frozen=True, slots=True)
class QueueRules:
    """``waiting``: default value of an hour, USD per GPU. ``fairness``: reduction of a job's weight per earlier job of
    its team; 0 for none. ``running``: running jobs by team.
    """

    waiting: Mapping[Priority, float] = field(default_factory=lambda: WAITING)
    fairness: float = FAIRNESS
    running: Mapping[str, int] = field(default_factory=dict)


def order_by_turn(entries: Iterable[QueueEntry], running: Mapping[str, int] | None = None) -> list[QueueEntry]:
    """A cheap order of jobs: by priority; nearly late; team with the fewest turns; least slack; first come."""
    return [entry for entry, _ in _with_turns(entries, running or {})]


def weights(entries: Iterable[QueueEntry], rules: QueueRules) -> dict[str, float]:
    """The weight of each job within its priority, by id: 1 / (1 + fairness · earlier turns of its team)."""
    return {entry.id: 1 / (1 + rules.fairness * turn) for entry, turn in _with_turns(entries, rules.running)}


def burden(entry: QueueEntry, option: QueueOption, start: float, weight: float, rules: QueueRules) -> float:
    """The job's contribution to the objective, lateness apart."""
    return weight * (option.weighs + hour_of_waiting(entry, rules) * start)


def hour_of_waiting(entry: QueueEntry, rules: QueueRules) -> float:
    """The value of an hour of waiting for this job, USD."""
    return rules.waiting[entry.priority] * entry.gpus if entry.value_of_time is None else entry.value_of_time


def hour_of_running(job: Job, placement: Placement, default: Money | None) -> Money:
    """What an hour of its work costs a job (USD): the price of its machines, or, if that is more, as on machines of our
    own, what an hour of waiting costs it. ``default``: the policies' value of time."""
    gpus, value = placement.gpus or placement.nodes, _own_value(job, default)
    entry = QueueEntry(job.name, "", job.priority, placement.nodes, gpus, value_of_time=value)
    return max(placement.rate, Money(round(hour_of_waiting(entry, QueueRules()) * 1e6)))


def latest_start(entry: QueueEntry, option: QueueOption) -> float:
    """Hours from now; later it would miss its deadline there."""
    if entry.deadline is None:
        return math.inf
    return entry.deadline - (0.0 if entry.open_ended else option.hours + option.margin)


def total(turns: Iterable[Turn], rules: QueueRules | None = None) -> tuple[int, float]:
    """The objective of a round: how many placed jobs are late, and the sum of their burdens."""
    rules, all_turns = rules or QueueRules(), list(turns)
    weight = weights([turn.entry for turn in all_turns], rules)
    burdens = [
        burden(turn.entry, turn.option, turn.start, weight[turn.entry.id], rules)
        for turn in all_turns
        if turn.option is not None
    ]
    return sum(turn.late and turn.option is not None for turn in all_turns), sum(burdens)


def _with_turns(entries: Iterable[QueueEntry], running: Mapping[str, int]) -> list[tuple[QueueEntry, int]]:
    turns_by_team: Counter[str] = Counter(running)
    numbered: list[tuple[QueueEntry, int]] = []
    tier: Priority | None = None
    for entry in sorted(entries, key=lambda item: (TIERS.index(item.priority), item.slack, item.handed_in, item.id)):
        if entry.priority is not tier:
            tier, turns_by_team = entry.priority, Counter(running)
        numbered.append((entry, turns_by_team[entry.team]))
        turns_by_team[entry.team] += 1

    def key(item: tuple[QueueEntry, int]) -> tuple[int, bool, int, float, float, str]:
        entry, turn = item
        return TIERS.index(entry.priority), entry.slack >= _PRESSING, turn, entry.slack, entry.handed_in, entry.id

    return sorted(numbered, key=key)
