"""Limits the GPUs in use at once."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, RootModel

from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, Facts, Verdict
from policies.bound_rule import BoundRule
from policies.concurrency import Others, room, starts, whose
from policies.fields import GpuCount
from policies.verdicts import allow, deny


class Gpus(RootModel[GpuCount]):
    """Maximum GPUs in use at once by all jobs in the scope."""

    model_config = ConfigDict(frozen=True)


class MaxConcurrentGpus(BoundRule[Gpus]):
    """Denies a start that would exceed the limit. Running jobs continue: neither of two jobs is the excess one.

    Simulated GPUs count with simulated ones only. A job that moves does not count twice.
    """

    kind: ClassVar[str] = "max_concurrent_gpus"
    Config: ClassVar[type[BaseModel]] = Gpus
    counts_live: ClassVar[bool] = True
    counts_per: ClassVar[bool] = True

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        placement = action.placement
        if placement is None or not placement.gpus or not starts(action):
            return allow(self, "starts_none", "no GPU is started")
        running, limit = self._others.beside(action, facts).gpus, self.config.root
        if running + placement.gpus <= limit:
            return allow(self, "within_limit", f"at most {limit} GPUs at once")
        return deny(
            self,
            "too_many_gpus",
            f"{placement.gpus} GPUs requested, {running} running{whose(self.scope, self.per, action)}; "
            f"the limit is {limit}{room(placement.gpus, running, limit)}",
            gpus=placement.gpus,
            running=running,
            free=max(limit - running, 0),
            limit=limit,
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        gpus = action.placement.gpus if action.placement else 0
        return (Fact(aspect=Aspect.GPUS_AT_ONCE, value=self._others.beside(action, facts).gpus + gpus),)

    @cached_property
    def _others(self) -> Others:
        return Others(self.scope, self.per)
