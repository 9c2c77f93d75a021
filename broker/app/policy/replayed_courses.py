"""The courses of all jobs in a replay. The computing time of a decision depends on the courses under way at its time,
not on the length of the replay.

Of an ended course only the spend still counts; its sums by budget and period are cached for the queries made so far.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush

from broker.app.policy.replayed_job import ReplayedJob
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.budgets import in_scope, share_within
from broker.ledger.entries import Account, Entry, held_burns

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
