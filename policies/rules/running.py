"""Rules that stop running jobs: idle ones, expensive ones, and those behind unusual spending."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from pydantic import Field, model_validator

from broker.core.policy.coverage import read_facts, to_microseconds
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, ActionKind, Facts, IdleLimit, Verdict
from broker.core.values.units import Duration, PositiveDuration
from policies.bound_rule import BoundRule, allow, deny, duration_text, guardrail
from policies.fields import AttemptCount, Limit, Percent, PolicyPart


class IdleThreshold(PolicyPart):
    """All accelerators below ``below`` (``5%``) throughout the last ``for`` (``30m``)."""

    below: Percent = Field(description="a percentage such as 5%")
    stretch: PositiveDuration = Field(alias="for", description="a duration such as 30m")


@guardrail("idle_shutdown")
class IdleShutdown(BoundRule[IdleThreshold]):
    """Stops an idle job. Without utilization samples for the whole time it stops nothing."""

    # Callers must provide accelerator utilization.
    needs_usage: ClassVar[bool] = True
    never_asks: ClassVar[str] = "does not apply to idle_shutdown, which judges running jobs only; delete `action`"

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if action.kind is not ActionKind.CONTINUE:
            return allow(self, "does_not_run", "judges running jobs")
        begins = facts.now - self.config.stretch
        earlier = [sample for sample in action.usage if sample.at <= begins]
        recent = [sample for sample in action.usage if sample.at > begins]
        if not earlier or not recent:
            return allow(
                self, "not_long_enough", f"has no utilization samples for {duration_text(self.config.stretch)} yet"
            )
        # The last sample before the window shows the state at its start.
        peak = max(sample.percent for sample in (earlier[-1], *recent))
        if peak >= self.config.below:
            return allow(self, "busy", f"its accelerators are not idle (below {self.config.below:g}%)")
        return deny(
            self,
            "idle",
            f"accelerator utilization was at most {peak:g}% {self._limit}",
            busiest=f"{peak:g}",
            below=f"{self.config.below:g}",
            length=duration_text(self.config.stretch),
        )

    def idle_limit(self, action: Action) -> IdleLimit | None:
        """As `broker.core.ports.LimitsIdleness`."""
        if not self.scope.covers(action):
            return None
        return IdleLimit(self.config.below, self.config.stretch, f"{self._limit} ({self.source})")

    @property
    def _limit(self) -> str:
        return f"for {duration_text(self.config.stretch)}; the limit is {self.config.below:g}%"


class Runaway(PolicyPart):
    """``max_age``: maximum time from submission to end, including waiting and interruptions, such as ``7d``.
    ``max_attempts``: maximum number of starts.
    """

    max_age: PositiveDuration | None = None
    max_attempts: AttemptCount | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Runaway:
        if self.max_age is None and self.max_attempts is None:
            raise ValueError("is empty; expected `max_age` or `max_attempts`")
        return self


@guardrail("runaway")
class RunawayLimit(BoundRule[Runaway]):
    """Denies a start if the job could exceed the age or has used its attempts; stops a running job at the age."""

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        attempts, max_attempts = action.attempts, self.config.max_attempts
        if self._too_many(action):
            return deny(
                self,
                "too_many_attempts",
                f"the job was started {attempts} times; the limit is {max_attempts}; a new submission starts at 1",
                attempts=attempts,
                limit=max_attempts,
            )
        max_age = self.config.max_age
        if max_age is None:
            return allow(self, "within_limit", f"at most {max_attempts} attempts")
        submitted = action.submitted_at or facts.now
        age = action.window[1] - submitted if action.window and action.submitted_at is None else facts.now - submitted
        if age < max_age or (age == max_age and action.submitted_at is None):
            return allow(self, "within_limit", f"at most {duration_text(max_age)} from submission to end")
        phrase = "was submitted" if action.submitted_at else "may run for"
        ago = " ago" if action.submitted_at else ""
        hint = "" if action.submitted_at else f"; set max_duration to at most {duration_text(max_age)}"
        return deny(
            self,
            "runs_away",
            f"the job {phrase} {duration_text(age)}{ago}; the limit is {duration_text(max_age)} from submission to "
            f"end{hint}",
            age=duration_text(age),
            limit=duration_text(max_age),
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        aspects = read_facts(action, Aspect.ATTEMPTS) if self._too_many(action) else ()
        if self.config.max_age is None:
            return aspects
        time_left = action.window[1] - action.window[0] if action.window else timedelta(0)
        return (*aspects, Fact(aspect=Aspect.ENDS_BY, value=to_microseconds(facts.now + time_left)))

    def _too_many(self, action: Action) -> bool:
        """Whether the action starts one attempt too many."""
        starts_attempt = action.kind in (ActionKind.RE_PLACE, ActionKind.EXTEND) and not (
            action.in_place or action.by_owner
        )
        return starts_attempt and self.config.max_attempts is not None and action.attempts >= self.config.max_attempts


class UnusualSpendingLimit(PolicyPart):
    """A running job may spend at most ``above`` more than it usually does while its team's spending of the day is an
    anomaly. People are notified first: the job stops ``answer_within`` (default ``1h``) after the anomaly was found,
    unless a person answers that it is not an anomaly or was planned; and at once if a person confirms it.
    """

    above: Limit = Field(description="an amount such as $50")
    answer_within: Duration = timedelta(hours=1)


@guardrail("unusual_spending")
class UnusualSpendingRule(BoundRule[UnusualSpendingLimit]):
    """Stops a running job that is among the causes of an unanswered anomaly, checkpoint first."""

    # Callers must provide the job's part in anomalies (`Facts.unusual`).
    needs_anomalies: ClassVar[bool] = True
    never_asks: ClassVar[str] = (
        "does not apply to unusual_spending, which asks whether spending was planned; delete `action`"
    )

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if action.kind is not ActionKind.CONTINUE:
            return allow(self, "does_not_run", "judges running jobs")
        anomaly, limit = facts.unusual, self.config.above
        if anomaly is None:
            return allow(self, "usual", "is in no unexplained anomaly")
        spent, limit_text = anomaly.excess.rounded(2), limit
        summary = f"the job spent {spent} above its usual in an anomaly of its team; the limit is {limit_text}"
        figures = {"excess": anomaly.excess, "limit": limit, "known_since": anomaly.known_since.isoformat()}
        if anomaly.excess <= limit:
            return allow(self, "within_limit", summary, **figures)
        if anomaly.said_by:
            return deny(self, "unusual", f"{summary}, and {anomaly.said_by} confirmed the anomaly", **figures)
        deadline = anomaly.known_since + self.config.answer_within
        if facts.now < deadline:
            return allow(self, "awaits_answer", f"{summary}; it stops at {deadline:%Y-%m-%d %H:%M} UTC", **figures)
        waited = duration_text(facts.now - anomaly.known_since)
        message = f"{summary}, and it was not answered within {waited} (`gpubroker report anomalies --answer`)"
        return deny(self, "unusual", message, **figures)
