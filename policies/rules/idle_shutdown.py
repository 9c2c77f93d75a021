"""Stops idle jobs."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, Field

from broker.core.policy.facts import Fact
from broker.core.policy.policy import Action, ActionKind, Facts, IdleLimit, Verdict
from broker.core.values.units import PositiveDuration
from policies.bound_rule import BoundRule
from policies.fields import Percent, PolicyPart
from policies.verdicts import allow, deny, length


class IdleThreshold(PolicyPart):
    """All accelerators below ``below`` (``5%``) throughout the last ``for`` (``30m``)."""

    below: Percent = Field(description="a percentage such as 5%")
    stretch: PositiveDuration = Field(alias="for", description="a duration such as 30m")


class IdleShutdown(BoundRule[IdleThreshold]):
    """Stops an idle job. Without utilisation samples for the whole time it stops nothing."""

    kind: ClassVar[str] = "idle_shutdown"
    Config: ClassVar[type[BaseModel]] = IdleThreshold
    # Callers must provide accelerator utilisation.
    needs_usage: ClassVar[bool] = True
    never_asks: ClassVar[str] = "does not apply to idle_shutdown, which judges running jobs only; delete `action`"

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if action.kind is not ActionKind.CONTINUE:
            return allow(self, "does_not_run", "judges running jobs")
        begins = facts.now - self.config.stretch
        before = [one for one in action.usage if one.at <= begins]
        lately = [one for one in action.usage if one.at > begins]
        if not before or not lately:
            return allow(self, "not_long_enough", f"has no utilisation samples for {length(self.config.stretch)} yet")
        # The last sample before the window shows the state at its start.
        most = max(one.percent for one in (before[-1], *lately))
        if most >= self.config.below:
            return allow(self, "busy", f"its accelerators are not idle (below {self.config.below:g}%)")
        return deny(
            self,
            "idle",
            f"accelerator utilisation was at most {most:g}% {self._limit}",
            busiest=f"{most:g}",
            below=f"{self.config.below:g}",
            length=length(self.config.stretch),
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return ()  # no approval involved

    def idle_limit(self, action: Action) -> IdleLimit | None:
        """As `broker.core.ports.LimitsIdleness`."""
        if not self.scope.covers(action):
            return None
        return IdleLimit(self.config.below, self.config.stretch, f"{self._limit} ({self.source})")

    @property
    def _limit(self) -> str:
        return f"for {length(self.config.stretch)}; the limit is {self.config.below:g}%"
