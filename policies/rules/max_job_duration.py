"""Limits a job's billed time over all attempts."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, RootModel

from broker.core.policy.approvals import lasts
from broker.core.policy.facts import Fact
from broker.core.policy.policy import Action, Facts, Verdict
from broker.core.values.units import PositiveDuration
from policies.bound_rule import BoundRule
from policies.job_limits import JobLimit
from policies.verdicts import length


class Length(RootModel[PositiveDuration]):
    """Maximum billed time of one job over all attempts, such as ``48h``."""

    model_config = ConfigDict(frozen=True)


_DURATION = JobLimit[timedelta](
    "duration",
    lambda *durations: [length(duration) for duration in durations],
    reached=("job_duration_reached", "the job has run for"),
    passes=("job_too_long", "the job may run for"),
    key="max_duration in the job file",
)


class MaxJobDuration(BoundRule[Length]):
    """Denies a job whose ``max_duration`` is longer. A running job stops at the limit."""

    kind: ClassVar[str] = "max_job_duration"
    Config: ClassVar[type[BaseModel]] = Length

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        return _DURATION.judge(self, action, self.config.root, so_far=action.elapsed, in_all=lasts(action))

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return ()  # every request covers the time
