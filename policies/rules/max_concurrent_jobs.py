"""Limits the jobs running at once."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, RootModel

from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, Facts, Verdict
from policies.bound_rule import BoundRule
from policies.concurrency import Others, starts, whose
from policies.fields import JobCount
from policies.verdicts import allow, deny


class Jobs(RootModel[JobCount]):
    """Maximum jobs running at once in the scope."""

    model_config = ConfigDict(frozen=True)


class MaxConcurrentJobs(BoundRule[Jobs]):
    """Denies a start that would exceed the limit. Running jobs continue: neither of two jobs is the excess one.

    Simulated machines count with simulated ones only. A job that moves does not count twice.
    """

    kind: ClassVar[str] = "max_concurrent_jobs"
    Config: ClassVar[type[BaseModel]] = Jobs
    counts_live: ClassVar[bool] = True
    counts_per: ClassVar[bool] = True

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if not starts(action):
            return allow(self, "starts_none", "no job is started")
        running, limit = self._others.beside(action, facts).jobs, self.config.root
        if running < limit:
            return allow(self, "within_limit", f"at most {limit} jobs at once")
        many = running + 1 - limit
        return deny(
            self,
            "too_many_jobs",
            f"{running} jobs are running{whose(self.scope, self.per, action)}; the limit is {limit}; one more "
            f"passes once {many} of them {'has' if many == 1 else 'have'} ended",
            running=running,
            must_end=many,
            limit=limit,
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return (Fact(aspect=Aspect.JOBS_AT_ONCE, value=self._others.beside(action, facts).jobs + 1),)

    @cached_property
    def _others(self) -> Others:
        return Others(self.scope, self.per)
