"""The course and cost of a job when decisions are replayed under another policy. Pure.

A job that would have run on another offer is charged for its metered time, not its expected time: at the other offer's
rate and billing steps; if the job states its work, the time is scaled by the ratio of the throughputs. Time lost to
interruptions is included. A job that never ran costs what its plan expects: if its work is unknown, its whole maximum
duration.

The courses of all jobs in a replay. The computing time of a decision depends on the courses under way at its time,
not on the length of the replay.

Of an ended course only the spend still counts; its sums by budget and period are cached for the queries made so far.
Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from heapq import heapify, heappop, heappush

from broker.core.job.placements import Placement
from broker.core.policy.policy import Action, LiveAttempt
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.budgets import in_scope, share_within
from broker.ledger.entries import Account, Entry, Movement, Tags, held_burns, move
from broker.ledger.holds import Metering, cost_of, ledger_rate

Window = tuple[datetime, datetime]


class ReplayBasis(StrEnum):
    """The source of the cost of a replayed job."""

    RECORD = "record"
    METERED_TIME = "metered_time"
    CONVERTED_TIME = "converted_time"
    PLAN = "plan"


@dataclass(slots=True)
class ReplayedJob:
    """A job in the replay: its ledger entries; ``since``: when it was stopped (UTC; None: it was not); and the capacity
    that it occupies, if that is not recorded."""

    entries: Sequence[Entry]
    since: datetime | None = None
    occupies: tuple[Window, LiveAttempt] | None = None
    basis: ReplayBasis = ReplayBasis.RECORD

    def until(self, now: datetime) -> Iterable[Entry]:
        """The entries posted up to ``now``."""
        return (e for e in self.entries if e.at <= now and (self.since is None or e.at <= self.since))

    def holding(self, job: str, now: datetime) -> LiveAttempt | None:
        """The capacity that the job occupies while it holds money, from the tags of its entries; None if it holds
        nothing, or if the capacity is free of charge."""
        held = sum((e.amount for e in self.until(now) if e.account is Account.HELD), Money.ZERO)
        placed = next((e for e in self.entries if e.tags.provider), None)
        if held <= Money.ZERO or placed is None or (self.since is not None and self.since <= now):
            return None
        tags = placed.tags
        return LiveAttempt(
            job, tags.user, tags.team, tags.project, tags.workload or "", tags.environment, tags.gpus,
            tags.accelerator, tags.provider or "", placed.money, capacity_type=tags.capacity_type,
        )  # fmt: skip


def spent(entries: Iterable[Entry]) -> Money:
    """The spending of these entries in USD, of all kinds of money."""
    return sum((e.amount for e in entries if e.account is Account.SPENT), Money.ZERO)


def planned(key: str, action: Action, placement: Placement, at: datetime) -> ReplayedJob:
    """The course of a job that never ran, as its plan expects it. ``at``: when it was decided (UTC)."""
    window = action.window or (at, at)
    lasts = min(placement.duration or (window[1] - window[0]), window[1] - window[0])
    cost = placement.expected_cost if placement.duration else placement.rate.for_duration(lasts)
    return _course(key, action, placement, at, (at, at + max(lasts, timedelta(0))), cost, ReplayBasis.PLAN)


def elsewhere(
    key: str, recorded: Sequence[Entry], was: Placement | None, action: Action, placement: Placement, at: datetime
) -> ReplayedJob:
    """The course of a job that ran, as if it had run on ``placement`` instead of ``was``; according to its plan if
    nothing was metered because it ran free of charge."""
    metered: dict[int | None, list[Entry]] = defaultdict(list)
    for entry in recorded:
        if entry.account is Account.SPENT:
            metered[entry.tags.attempt].append(entry)
    if not metered:
        free = was is None or not ledger_rate(was.offer)
        # A job on priced capacity without metered cost never got a machine; assume the same on other capacity.
        return planned(key, action, placement, at) if free or not recorded else ReplayedJob(recorded)
    lasted = sum(
        (max(e.covers_to for e in mine) - min(e.covers_from for e in mine) for mine in metered.values()), timedelta(0)
    )
    basis = ReplayBasis.METERED_TIME
    if was is not None and was.duration and placement.duration and was.throughput != placement.throughput:
        lasted, basis = lasted * (was.throughput / placement.throughput), ReplayBasis.CONVERTED_TIME
    begins = min(e.covers_from for mine in metered.values() for e in mine)
    runs = sum((e.amount for e in recorded if e.account is Account.HELD), Money.ZERO) > Money.ZERO
    cost = cost_of(
        ledger_rate(placement.offer), placement.nodes, begins, begins + lasted, placement.offer.billing,
        metering=Metering.RUNNING if runs else Metering.ENDED,
    )  # fmt: skip
    return _course(key, action, placement, at, (begins, begins + lasted), cost, basis, _given(recorded))


def _given(recorded: Sequence[Entry]) -> Money:
    """The money (USD) that a job was given in addition to its first hold."""
    given = (e.amount for e in recorded if e.movement is Movement.TOP_UP and e.account is Account.HELD)
    return sum(given, Money.ZERO)


def _course(
    key: str, action: Action, placement: Placement, at: datetime, ran: Window, cost: Money, basis: ReplayBasis,
    given: Money = Money.ZERO,
) -> ReplayedJob:  # fmt: skip
    """A job that holds its money from ``at`` on and spends its cost, at most the hold, at the end of its run."""
    job, kind = action.job, placement.money
    held = (action.hold or {}).get(kind, Money.ZERO) + given
    dated = next(iter(action.dated([kind])), None)
    rate, window = (dated.rate, (dated.start, dated.end)) if dated else (None, (at, at))
    cost, ends = min(cost, held), ran[1]
    tags = Tags(key, action.user, job.team, job.project, job.workload.value, job.environment)

    def movement(what: Movement, amount: Money, when: datetime, covers: Window) -> tuple[Entry, ...]:
        return move(
            what,
            amount,
            movement_id=f"{key}/{what}",
            money=kind,
            at=when,
            covers=covers,
            tags=tags,
            rate=rate if what is Movement.HOLD else None,
        )

    entries = [
        *movement(Movement.HOLD, held, at, window),
        *movement(Movement.SETTLE, cost, ends, ran),
        *movement(Movement.RELEASE, held - cost, ends, (ends, ends)),
    ]
    offer = placement.offer
    live = LiveAttempt(
        key, action.user, job.team, job.project, job.workload.value, job.environment, placement.gpus,
        offer.accelerator, offer.provider, kind, offer.pool, placement.nodes, offer.capacity_type,
    )  # fmt: skip
    return ReplayedJob(entries, occupies=((at, ends), live), basis=basis)


_AFTER = timedelta(hours=1)  # decisions of several processes are not recorded quite in the order of their times

_FAR = datetime.max.replace(tzinfo=UTC)

_Asked = tuple[BudgetSpec, datetime, datetime]


def counts(budget: BudgetSpec, entry: Entry) -> bool:
    """Whether the entry counts under the budget."""
    tags = entry.tags
    return entry.money in budget.counts and in_scope(
        budget,
        user=tags.user,
        team=tags.team,
        project=tags.project,
        workload=tags.workload,
        environment=tags.environment,
    )


def spent_within(entry: Entry, start: datetime, end: datetime) -> Money:
    """The part of an entry of spend (USD) that falls into the half-open time (UTC)."""
    if start <= entry.covers_from and entry.covers_to <= end and entry.covers_from < end:
        return entry.amount
    return share_within(entry.amount, (entry.covers_from, entry.covers_to), (start, end))


class ReplayedCourses:
    """Courses by job. The times of calls must not decrease by more than an hour."""

    def __init__(self, courses: Mapping[str, ReplayedJob]) -> None:
        self._of = dict(courses)
        self._ahead = [(course.entries[0].at, job) for job, course in courses.items() if course.entries]
        heapify(self._ahead)
        self._under_way: dict[str, ReplayedJob] = {}
        self._over: dict[str, ReplayedJob] = {}
        self._spent: dict[_Asked, Money] = {}
        self._posted: dict[tuple[str, BudgetSpec], _Posted] = {}

    def get(self, job: str) -> ReplayedJob | None:
        return self._of.get(job)

    def put(self, job: str, course: ReplayedJob) -> None:
        """Set the course of the job."""
        self.drop(job)
        self._of[job] = course
        if course.entries:
            heappush(self._ahead, (course.entries[0].at, job))

    def drop(self, job: str) -> None:
        """Remove the job, as if it had never existed."""
        self.reopen(job)
        self._forget(job)
        self._of.pop(job, None)
        self._under_way.pop(job, None)

    def stop(self, job: str, at: datetime) -> None:
        """End the course of the job at that time (UTC)."""
        self._of[job].since = at
        self._forget(job)

    def reopen(self, job: str) -> None:
        """Count the ended job as under way again, until the next `close`."""
        if (course := self._over.pop(job, None)) is not None:
            self._under_way[job] = course
            self._count(course, -1)

    def under_way(self, now: datetime) -> Iterator[tuple[str, ReplayedJob]]:
        """The courses that have begun by ``now`` (UTC) and do not count as ended (`close`)."""
        while self._ahead and self._ahead[0][0] <= now:
            _, job = heappop(self._ahead)
            if job in self._of and job not in self._over:
                self._under_way[job] = self._of[job]
        return iter(list(self._under_way.items()))

    def close(self, now: datetime) -> None:
        """Count as ended the courses that ended more than an hour before ``now`` (UTC)."""
        for job, course in list(self._under_way.items()):
            last = course.entries[-1].at if course.since is None else min(course.since, course.entries[-1].at)
            if last < now - _AFTER and (course.since is not None or not _holds(course)):
                del self._under_way[job]
                self._forget(job)
                self._over[job] = course
                self._count(course, 1)

    def posted(self, job: str, budget: BudgetSpec, now: datetime) -> tuple[Sequence[Entry], Sequence[Burn]]:
        """The spend of a job by ``now`` (UTC) under the budget, entry by entry, and its holds."""
        known = self._posted.get((job, budget))
        if known is None or not known.since <= now < known.until:
            known = self._posted[job, budget] = _posted(self._of[job], budget, now)
        return known.spends, known.holds

    def _forget(self, job: str) -> None:
        for known in [known for known in self._posted if known[0] == job]:
            del self._posted[known]

    def spent(self, budget: BudgetSpec, start: datetime, end: datetime) -> Money:
        """The spend (USD) of ended courses under the budget in the half-open time (UTC)."""
        asked = budget, start, end
        if asked not in self._spent:
            self._spent[asked] = sum((_share(course, asked) for course in self._over.values()), Money.ZERO)
        return self._spent[asked]

    def _count(self, course: ReplayedJob, times: int) -> None:
        for asked in self._spent:
            self._spent[asked] += _share(course, asked) * times


@dataclass(frozen=True, slots=True)
class _Posted:
    """Spend and holds of a course between two of its entries, ``since`` until ``until`` (UTC)."""

    since: datetime
    until: datetime
    spends: Sequence[Entry]
    holds: Sequence[Burn]


def _posted(course: ReplayedJob, budget: BudgetSpec, now: datetime) -> _Posted:
    times = [entry.at for entry in course.entries] + ([course.since] if course.since is not None else [])
    spends, holds = standing([e for e in course.until(now) if counts(budget, e)])
    if course.since is not None and course.since <= now:
        holds = ()
    return _Posted(
        max((at for at in times if at <= now), default=now), min((at for at in times if at > now), default=_FAR),
        spends, holds,
    )  # fmt: skip


def standing(entries: Sequence[Entry]) -> tuple[Sequence[Entry], Sequence[Burn]]:
    """The sums of one job's entries: spend, and the remaining hold."""
    left = [entry for entry in entries if entry.account is Account.HELD]
    held = sum((entry.amount for entry in left), Money.ZERO) > Money.ZERO
    return [e for e in entries if e.account is Account.SPENT], list(held_burns(left).values()) if held else ()


def _share(course: ReplayedJob, asked: _Asked) -> Money:
    budget, start, end = asked
    mine = (e for e in course.entries if course.since is None or e.at <= course.since)
    return sum(
        (spent_within(e, start, end) for e in mine if e.account is Account.SPENT and counts(budget, e)), Money.ZERO
    )


def _holds(course: ReplayedJob) -> bool:
    return sum((e.amount for e in course.entries if e.account is Account.HELD), Money.ZERO) > Money.ZERO
