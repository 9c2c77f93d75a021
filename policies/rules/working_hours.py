"""Limits jobs to certain hours on certain days, for example development machines."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import ClassVar

from pydantic import BaseModel, Field, field_validator, model_validator

from broker.core.errors import did_you_mean
from broker.core.policy.facts import Fact
from broker.core.policy.policy import Action, Facts, Verdict
from broker.core.validation import each
from broker.ledger.budgets import zone
from policies.bound_rule import BoundRule
from policies.fields import PolicyPart, TimeZone, WallTime
from policies.verdicts import allow, deny

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Hours(PolicyPart):
    """``from`` and ``to`` (``08:00``, ``20:00``) in ``timezone``, on ``days`` (``mon`` to ``sun``; default Monday to
    Friday). ``to`` before ``from`` means the next morning.
    """

    start: WallTime = Field(alias="from", description="a time of day such as 08:00")
    end: WallTime = Field(alias="to", description="a time of day such as 20:00")
    timezone: TimeZone = "UTC"
    days: tuple[str, ...] = _DAYS[:5]

    @field_validator("days", mode="before")
    @classmethod
    def _known(cls, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not value:
            raise ValueError("expected a list of days, such as [mon, tue, wed, thu, fri]")
        return tuple(each(enumerate(value), lambda _, day: _day(day)))

    @model_validator(mode="after")
    def _some_time(self) -> Hours:
        if self.start == self.end:
            raise ValueError("begins and ends at the same time, so no job could run")
        return self

    def contain(self, now: datetime) -> bool:
        """Whether ``now`` (any time zone) lies within."""
        local = now.astimezone(zone(self.timezone))
        clock, today = local.time(), local.weekday()
        if self.start < self.end:
            return self.start <= clock < self.end and _DAYS[today] in self.days
        return (clock >= self.start and _DAYS[today] in self.days) or (
            clock < self.end and _DAYS[today - 1] in self.days
        )

    def opens(self, now: datetime) -> datetime:
        """The next time after ``now`` at which they begin (in their time zone)."""
        there = zone(self.timezone)
        today = now.astimezone(there).date()
        starts = (datetime.combine(today + timedelta(days=ahead), self.start, there) for ahead in range(9))
        return next(start for start in starts if start > now and self.contain(start))

    def __str__(self) -> str:
        return f"{self.start:%H:%M} to {_shown(self.end)} on {', '.join(self.days)} ({self.timezone})"


def _day(value: object) -> str:
    if value not in _DAYS:
        raise ValueError(f"expected one of {', '.join(_DAYS)}; got {value!r}{did_you_mean(str(value), _DAYS)}")
    return str(value)


def _shown(end: time) -> str:
    return "24:00" if end == time.max else f"{end:%H:%M}"


class WorkingHours(BoundRule[Hours]):
    """Denies starts outside these hours, and the continuation of running jobs."""

    kind: ClassVar[str] = "working_hours"
    Config: ClassVar[type[BaseModel]] = Hours

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if self.config.contain(facts.now):
            return allow(self, "within_hours", f"runs {self.config}")
        local, opens = facts.now.astimezone(zone(self.config.timezone)), self.config.opens(facts.now)
        return deny(
            self,
            "outside_hours",
            f"it is {_DAYS[local.weekday()]} {local:%H:%M}; jobs like this run {self.config}; the"
            f" next such time begins {opens:%Y-%m-%d %H:%M}",
            now=f"{local:%H:%M}",
            opens=opens.astimezone(UTC).isoformat(),
            day=_DAYS[local.weekday()],
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return ()  # the time of day needs no approval
