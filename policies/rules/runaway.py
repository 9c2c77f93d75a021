"""Limits a job's age and attempts, however it is split into attempts."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from pydantic import BaseModel, model_validator

from broker.core.policy.coverage import moment, seen
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, ActionKind, Facts, Verdict
from broker.core.values.units import PositiveDuration
from policies.bound_rule import BoundRule
from policies.fields import AttemptCount, PolicyPart
from policies.verdicts import allow, deny, length


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


class RunawayLimit(BoundRule[Runaway]):
    """Denies a start if the job could exceed the age or has used its attempts; stops a running job at the age."""

    kind: ClassVar[str] = "runaway"
    Config: ClassVar[type[BaseModel]] = Runaway

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        attempts, most = action.attempts, self.config.max_attempts
        if self._too_many(action):
            return deny(
                self,
                "too_many_attempts",
                f"the job was started {attempts} times; the limit is {most}; submitted again it counts from 1",
                attempts=attempts,
                limit=most,
            )
        oldest = self.config.max_age
        if oldest is None:
            return allow(self, "within_limit", f"at most {most} attempts")
        submitted = action.submitted_at or facts.now
        asked = action.window[1] - submitted if action.window and action.submitted_at is None else facts.now - submitted
        if asked < oldest or (asked == oldest and action.submitted_at is None):
            return allow(self, "within_limit", f"at most {length(oldest)} from submission to end")
        said = "was submitted" if action.submitted_at else "may run for"
        ago = " ago" if action.submitted_at else ""
        lower = "" if action.submitted_at else f"; set max_duration to at most {length(oldest)}"
        return deny(
            self,
            "runs_away",
            f"the job {said} {length(asked)}{ago}; the limit is {length(oldest)} from submission to end{lower}",
            age=length(asked),
            limit=length(oldest),
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        found = seen(action, Aspect.ATTEMPTS) if self._too_many(action) else ()
        if self.config.max_age is None:
            return found
        ahead = action.window[1] - action.window[0] if action.window else timedelta(0)
        return (*found, Fact(aspect=Aspect.ENDS_BY, value=moment(facts.now + ahead)))

    def _too_many(self, action: Action) -> bool:
        """Whether the action starts one attempt too many."""
        starts = action.kind in (ActionKind.RE_PLACE, ActionKind.EXTEND) and not (action.in_place or action.by_owner)
        return starts and self.config.max_attempts is not None and action.attempts >= self.config.max_attempts
