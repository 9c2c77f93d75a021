"""For a time, nothing new is started."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from broker.core.findings import each
from broker.core.policy import Action, ActionKind, Facts, Source, Verdict
from broker.ledger.budgets import zone
from policies.fields import LocalTime, Part, TimeZone
from policies.scope import Scope
from policies.verdicts import allow, deny, out_of_scope


class Window(Part):
    """``from`` and ``to`` (a day, or a day and a time; ``to`` is the first moment after it) by the clock of
    ``timezone``. ``running``: what happens to what runs already: it goes on (when left out), or ``stop``."""

    start: LocalTime = Field(alias="from", description="a day, or a day and a time, such as 2026-12-24T18:00")
    end: LocalTime = Field(alias="to", description="a day, or a day and a time, such as 2027-01-02")
    timezone: TimeZone = "UTC"
    running: Literal["go_on", "stop"] = "go_on"

    @model_validator(mode="after")
    def _some_time(self) -> Window:
        if self.end <= self.start:
            each([("to", self.end)], self._too_early)
        return self

    def _too_early(self, _: str, end: datetime) -> None:
        raise ValueError(f"must be later than `from`, {self.start:%Y-%m-%d %H:%M}; got {end:%Y-%m-%d %H:%M}")

    def contains(self, now: datetime) -> bool:
        """Whether ``now`` (any time zone) lies within."""
        local = zone(self.timezone)
        return self.start.replace(tzinfo=local) <= now < self.end.replace(tzinfo=local)


@dataclass(frozen=True, eq=False)
class Freeze:
    """Denies starts, moves and higher limits in that time; and, where it says so, that what runs goes on. What may go
    on gets the money for it, within the limits it has."""

    kind: ClassVar[str] = "freeze"
    Config: ClassVar[type[BaseModel]] = Window

    name: str
    config: Window
    scope: Scope
    source: Source

    def judge(self, action: Action, facts: Facts) -> Verdict:
        if not self.scope.covers(action):
            return out_of_scope(self)
        config = self.config
        if not config.contains(facts.now):
            return allow(self, "not_frozen", f"is frozen from {config.start:%Y-%m-%d %H:%M}")
        if (action.kind is ActionKind.CONTINUE or action.in_place) and config.running == "go_on":
            return allow(self, "goes_on", "what runs already goes on")
        until = f"{config.end:%Y-%m-%d %H:%M}"
        return deny(
            self,
            "frozen",
            f"nothing is {'run' if config.running == 'stop' else 'started'} until {until} ({config.timezone})",
            until=until,
            timezone=config.timezone,
        )
