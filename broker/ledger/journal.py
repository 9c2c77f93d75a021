"""What the store returns of jobs' money and decisions, and `StaleJobView`.

A *write* transaction of the store is serialized with all others of the same store (SQLite: ``BEGIN IMMEDIATE``;
PostgreSQL: one advisory lock), so its reads still hold at commit. Nothing slow happens inside: no network, no engine,
no waiting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from broker.core.events.events import EventBody
from broker.core.events.outcomes import JobState
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.policy.policy import Answer
from broker.core.values.burns import Burn
from broker.core.values.money import Money


@dataclass(frozen=True, slots=True)
class OpenHold:
    """Money that a job still holds, with the time for which it was judged."""

    job_id: str
    money: MoneyKind
    burn: Burn

    @property
    def held(self) -> Money:
        return self.burn.amount


@dataclass(frozen=True, slots=True)
class Posted:
    """Posted spend of an attempt: machine ``time`` as (from, to, amount), UTC and USD, and ``moved``: egress of data
    and checkpoints.
    """

    time: Sequence[tuple[datetime, datetime, Money]]
    moved: Money


@dataclass(frozen=True, slots=True)
class PaidAttempt:
    """An attempt paid in cash, in USD.

    ``nodes`` machines of the provider existed from ``since`` until ``until`` (UTC), at ``price`` per hour each at the
    placement.

    ``spent``: the total; ``adjusted``: the part that adjusted it to the provider's charge. ``moved``: whether data
    transfer was paid for, too. ``closed``: whether its job is closed.
    """

    job_id: str
    attempt: int
    provider: str
    capacity_type: CapacityType
    since: datetime
    until: datetime
    price: Money
    nodes: int
    closed: bool
    spent: Money
    adjusted: Money
    moved: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """The record of a decision, to check whether it still applies. ``at`` is UTC."""

    at: datetime
    policy_version: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """The tasks of an array that were started: ``states``: their number by state; ``open``: the number of those not
    closed; ``earlier``: the number of those that an array that this one retries ran."""

    states: Mapping[JobState, int]
    open: int
    earlier: int = 0

    @property
    def started(self) -> int:
        """The number of tasks that this array started; also the turn of the next one."""
        return sum(self.states.values()) - self.earlier


DatedBody = tuple[datetime, int | None, EventBody]
"""An event to append: its time (UTC), the number of its attempt or None, and its body."""


class StaleJobView(Exception):
    """A job has changed since the view on which a decision is based: read it again and decide again."""
