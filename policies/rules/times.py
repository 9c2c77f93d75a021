"""Rules on when jobs start."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from broker.core.errors import did_you_mean
from broker.core.policy.coverage import to_microseconds
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, ActionKind, Facts, Verdict
from broker.core.validation import parse_each
from broker.core.values.units import zone
from policies.bound_rule import BoundRule, allow, deny, guardrail
from policies.fields import LocalTime, PolicyPart, TimeZone, WallTime, parse_local_time

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def _days(value: object) -> tuple[str, ...]:
    """Days in the order of the week, from one day or range (``mon-fri``) or a list of them."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not items:
        raise ValueError("expected days, such as mon-fri or [mon, tue, sat]")
    selected = {day for days in parse_each(enumerate(items), lambda _, item: _span(item)) for day in days}
    return tuple(day for day in DAYS if day in selected)


def _span(value: object) -> tuple[str, ...]:
    first, _, last = str(value).partition("-")
    if last:
        return days_between(_day(first), _day(last))
    return (_day(value),)


def _day(value: object) -> str:
    if value not in DAYS:
        raise ValueError(f"expected one of {', '.join(DAYS)}; got {value!r}{did_you_mean(str(value), DAYS)}")
    return str(value)


def days_between(first: str, last: str) -> tuple[str, ...]:
    """All days from the first to the last, over the end of the week if the last comes before the first."""
    start = DAYS.index(first)
    return tuple(DAYS[(start + n) % 7] for n in range((DAYS.index(last) - start) % 7 + 1))


_DAYS_SCHEMA = WithJsonSchema(
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
)
Days = Annotated[tuple[str, ...], PlainValidator(_days), _DAYS_SCHEMA]


class Hours(PolicyPart):
    """``from`` and ``to`` (``08:00``, ``20:00``) in ``timezone``, on ``days`` (``mon-fri``, ``[mon, wed, sat-sun]``;
    default Monday to Friday). ``to`` before ``from`` means the next morning.
    """

    start: WallTime = Field(alias="from", description="a time of day such as 08:00")
    end: WallTime = Field(alias="to", description="a time of day such as 20:00")
    timezone: TimeZone = "UTC"
    days: Days = DAYS[:5]

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
            return self.start <= clock < self.end and DAYS[today] in self.days
        return (clock >= self.start and DAYS[today] in self.days) or (clock < self.end and DAYS[today - 1] in self.days)

    def opens(self, now: datetime) -> datetime:
        """The next time after ``now`` at which they begin (in their time zone)."""
        timezone = zone(self.timezone)
        today = now.astimezone(timezone).date()
        starts = (datetime.combine(today + timedelta(days=ahead), self.start, timezone) for ahead in range(9))
        return next(start for start in starts if start > now and self.contain(start))

    def __str__(self) -> str:
        return f"{self.start:%H:%M} to {_end_text(self.end)} on {', '.join(self.days)} ({self.timezone})"


def _end_text(end: time) -> str:
    return "24:00" if end == time.max else f"{end:%H:%M}"


@guardrail("working_hours")
class WorkingHours(BoundRule[Hours]):
    """Denies starts outside these hours, and the continuation of running jobs."""

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if self.config.contain(facts.now):
            return allow(self, "within_hours", f"runs {self.config}")
        local, opens = facts.now.astimezone(zone(self.config.timezone)), self.config.opens(facts.now)
        return deny(
            self,
            "outside_hours",
            f"it is {DAYS[local.weekday()]} {local:%H:%M}; jobs like this run {self.config}; the"
            f" next such time begins {opens:%Y-%m-%d %H:%M}",
            now=f"{local:%H:%M}",
            opens=opens.astimezone(UTC).isoformat(),
            day=DAYS[local.weekday()],
        )


def _parse_end(value: object) -> datetime:
    """The first moment after the end; a day ends when the next one begins."""
    moment = parse_local_time(value)
    return moment + timedelta(days=1) if len(str(value)) == len("2027-01-02") else moment


_End = Annotated[
    datetime,
    PlainValidator(_parse_end),
    WithJsonSchema({"type": "string", "examples": ["2027-01-02", "2027-01-02T06:00"]}),
]


class FreezeWindow(PolicyPart):
    """``from`` and ``to`` in ``timezone``: days, inclusive, or a day and a time. ``end``: the first moment after the
    window. ``running``: ``stop`` stops running jobs; default: they continue.
    """

    start: LocalTime = Field(alias="from", description="a day, or a day and a time, such as 2026-12-24T18:00")
    end: _End = Field(alias="to", description="the last day, or a day and a time, such as 2027-01-02T06:00")
    timezone: TimeZone = "UTC"
    running: Literal["go_on", "stop"] = "go_on"

    @model_validator(mode="after")
    def _some_time(self) -> FreezeWindow:
        if self.end <= self.start:
            parse_each([("to", self.end)], self._too_early)
        return self

    def _too_early(self, _: str, end: datetime) -> None:
        raise ValueError(f"must be later than `from`, {self.start:%Y-%m-%d %H:%M}; it ends {end:%Y-%m-%d %H:%M}")

    def contains(self, now: datetime) -> bool:
        """Whether ``now`` (any time zone) lies within."""
        local = zone(self.timezone)
        return self.start.replace(tzinfo=local) <= now < self.end.replace(tzinfo=local)


@guardrail("freeze")
class Freeze(BoundRule[FreezeWindow]):
    """Denies starts, moves and higher limits during the window, and with ``running: stop`` the continuation of running
    jobs. Jobs that continue get money within their limits.
    """

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        config = self.config
        if not config.contains(facts.now):
            return allow(self, "not_frozen", f"is frozen from {config.start:%Y-%m-%d %H:%M}")
        if (action.kind is ActionKind.CONTINUE or action.in_place) and config.running == "go_on":
            return allow(self, "goes_on", "running jobs continue")
        until = f"{config.end:%Y-%m-%d %H:%M}"
        return deny(
            self,
            "frozen",
            f"nothing {'runs' if config.running == 'stop' else 'starts'} until {until} ({config.timezone})",
            until=until,
            timezone=config.timezone,
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        end = self.config.end.replace(tzinfo=zone(self.config.timezone))
        return (Fact(aspect=Aspect.FREEZE, value=to_microseconds(end)),)
