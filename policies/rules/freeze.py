"""Starts nothing new during a period."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field, PlainValidator, WithJsonSchema, model_validator

from broker.core.policy.coverage import moment
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, ActionKind, Facts, Verdict
from broker.core.validation import each
from broker.ledger.budgets import zone
from policies.bound_rule import BoundRule
from policies.fields import LocalTime, PolicyPart, TimeZone, parse_local_time
from policies.verdicts import allow, deny


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
            each([("to", self.end)], self._too_early)
        return self

    def _too_early(self, _: str, end: datetime) -> None:
        raise ValueError(f"must be later than `from`, {self.start:%Y-%m-%d %H:%M}; it ends {end:%Y-%m-%d %H:%M}")

    def contains(self, now: datetime) -> bool:
        """Whether ``now`` (any time zone) lies within."""
        local = zone(self.timezone)
        return self.start.replace(tzinfo=local) <= now < self.end.replace(tzinfo=local)


class Freeze(BoundRule[FreezeWindow]):
    """Denies starts, moves and higher limits during the window, and with ``running: stop`` the continuation of running
    jobs. Jobs that continue get money within their limits.
    """

    kind: ClassVar[str] = "freeze"
    Config: ClassVar[type[BaseModel]] = FreezeWindow

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
        return (Fact(aspect=Aspect.FREEZE, value=moment(end)),)
