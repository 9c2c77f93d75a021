"""No more than so many jobs running at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, RootModel

from broker.core.offers import MoneyKind
from broker.core.policy import Action, ActionKind, Facts, Source, Verdict
from policies.fields import JobCount
from policies.scope import Scope
from policies.verdicts import allow, deny, out_of_scope

# Neither starts anything.
_STARTS_NOTHING = frozenset({ActionKind.CONTINUE, ActionKind.RESERVE})


class Jobs(RootModel[JobCount]):
    """How many jobs everybody in the scope together may have running at once."""

    model_config = ConfigDict(frozen=True)


@dataclass(frozen=True, eq=False)
class MaxConcurrentJobs:
    """Denies a start that would make it more. What runs already goes on: of two jobs neither is the one too many.

    Simulated machines are counted with simulated ones only. A job that is re-placed does not count twice.
    """

    kind: ClassVar[str] = "max_concurrent_jobs"
    Config: ClassVar[type[BaseModel]] = Jobs
    counts_live: ClassVar[bool] = True

    name: str
    config: Jobs
    scope: Scope
    source: Source

    def judge(self, action: Action, facts: Facts) -> Verdict:
        if not self.scope.covers(action):
            return out_of_scope(self)
        if action.kind in _STARTS_NOTHING or action.placement is None:
            return allow(self, "starts_none", "no job is started")
        simulated, limit = action.placement.money is MoneyKind.SANDBOX, self.config.root
        jobs = {
            one.job_id
            for one in facts.live
            if one.job_id != action.job_id and (one.money is MoneyKind.SANDBOX) is simulated and self.scope.counts(one)
        }
        if len(jobs) < limit:
            return allow(self, "within_limit", f"at most {limit} jobs at once")
        whose = str(self.scope)
        return deny(
            self,
            "too_many_jobs",
            f"{len(jobs)} jobs are running{f' for {whose}' if whose else ''}, the limit is {limit}",
            running=len(jobs),
            limit=limit,
        )
