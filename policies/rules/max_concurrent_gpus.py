"""No more than so many GPUs at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, RootModel

from broker.core.offers import MoneyKind
from broker.core.policy import Action, ActionKind, Facts, LiveAttempt, Source, Verdict
from policies.fields import GpuCount
from policies.scope import Scope
from policies.verdicts import allow, deny, out_of_scope

# Neither starts anything.
_STARTS_NOTHING = frozenset({ActionKind.CONTINUE, ActionKind.RESERVE})


class Gpus(RootModel[GpuCount]):
    """How many GPUs everybody in the scope together may have running at once."""

    model_config = ConfigDict(frozen=True)


@dataclass(frozen=True, eq=False)
class MaxConcurrentGpus:
    """Denies a start that would make it more. What runs already goes on: of two jobs neither is the one too many.

    Simulated GPUs are counted with simulated ones only. A job that is re-placed does not count twice.
    """

    kind: ClassVar[str] = "max_concurrent_gpus"
    Config: ClassVar[type[BaseModel]] = Gpus
    counts_live: ClassVar[bool] = True

    name: str
    config: Gpus
    scope: Scope
    source: Source
    # The last count and what it was of: a plan asks about hundreds of placements with the same facts.
    _last: list[tuple[tuple[LiveAttempt, ...], str | None, bool, int]] = field(default_factory=list, repr=False)

    def judge(self, action: Action, facts: Facts) -> Verdict:
        if not self.scope.covers(action):
            return out_of_scope(self)
        placement = action.placement
        if action.kind in _STARTS_NOTHING or placement is None or not placement.gpus:
            return allow(self, "starts_none", "no GPU is started")
        running = self._running(facts.live, action.job_id, placement.money is MoneyKind.SANDBOX)
        limit = self.config.root
        if running + placement.gpus <= limit:
            return allow(self, "within_limit", f"at most {limit} GPUs at once")
        whose = str(self.scope)
        return deny(
            self,
            "too_many_gpus",
            f"{placement.gpus} GPUs asked, {running} running{f' for {whose}' if whose else ''}, the limit is {limit}",
            gpus=placement.gpus,
            running=running,
            free=max(limit - running, 0),
            limit=limit,
        )

    def _running(self, live: tuple[LiveAttempt, ...], but: str | None, simulated: bool) -> int:
        """The GPUs of everybody in the scope but one job, real ones or simulated ones."""
        for counted, other, of_these, running in self._last:
            if counted is live and other == but and of_these is simulated:
                return running
        running = sum(
            one.gpus
            for one in live
            if one.job_id != but and (one.money is MoneyKind.SANDBOX) is simulated and self.scope.counts(one)
        )
        self._last[:] = [(live, but, simulated, running)]
        return running
