"""Limits spot capacity: forbidden, only for jobs with checkpoints, or a minimum share of what could use it."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import ceil
from typing import ClassVar, Literal

from pydantic import BaseModel, model_validator

from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType
from broker.core.policy.coverage import seen
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, Facts, SpotShare, Verdict
from broker.ledger.budgets import period_containing, period_name
from policies.bound_rule import BoundRule, allow, deny
from policies.fields import GpuHours, Percent, PolicyPart, TimeZone
from policies.rules.concurrency import starts

_RENTED = (CapacityType.SPOT, CapacityType.ON_DEMAND)
_HOUR = timedelta(hours=1)


class SpotUse(PolicyPart):
    """``use``: ``forbidden``, or ``with_checkpoints`` (only for jobs with ``checkpoint: {every: …}``). ``min_share``:
    minimum share of spot in the GPU-hours rented for eligible jobs in the scope, in each calendar ``window`` in
    ``timezone``. It is judged when such a job starts on demand: the hours since the window began, and those it asks
    for, once these are ``min_gpu_hours`` together (default: 200, about a day of a machine with 8 GPUs). Eligible: it
    saves checkpoints, and neither its file nor another guardrail keeps it off spot.
    """

    use: Literal["forbidden", "with_checkpoints"] | None = None
    min_share: Percent | None = None
    window: Literal["day", "week", "month", "quarter"] = "month"
    timezone: TimeZone = "UTC"
    min_gpu_hours: GpuHours = 200

    @model_validator(mode="after")
    def _says_something(self) -> SpotUse:
        if self.use is None and self.min_share is None:
            raise ValueError("is empty; expected `use` or `min_share`")
        if self.use == "forbidden" and self.min_share is not None:
            raise ValueError("contradicts itself: forbidden spot cannot have a minimum share")
        if self.min_share is None and (idle := sorted(self.model_fields_set - {"use", "min_share"})):
            raise ValueError(f"`{idle[0]}` needs `min_share`")
        return self


class Spot(BoundRule[SpotUse]):
    """Denies spot that is not allowed, and on-demand that would keep the spot share below the minimum."""

    kind: ClassVar[str] = "spot"
    Config: ClassVar[type[BaseModel]] = SpotUse

    @property
    def forbids_spot(self) -> bool:
        return self.config.use == "forbidden"

    def since(self, now: datetime) -> datetime:
        """The beginning (UTC) of the window whose share counts."""
        return period_containing(self.config.window, self.config.timezone, now)[0]

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if action.placement is None or action.placement.offer.capacity_type not in _RENTED:
            return allow(self, "not_rented", "rents nothing")
        if action.placement.offer.capacity_type is CapacityType.SPOT:
            return self._of_spot(action)
        return self._of_on_demand(action, facts)

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        kind, placed = seen(action, Aspect.CAPACITY_TYPE), action.placement
        if placed is None or placed.offer.capacity_type is not CapacityType.ON_DEMAND:
            return kind
        share = self._share(action, placed, facts)
        return kind if share is None else (*kind, Fact(aspect=Aspect.SPOT_SHARE, value=100 * share.spot / share.total))

    def _share(self, action: Action, placed: Placement, facts: Facts) -> SpotShare | None:
        """The share with what the on-demand start asks for; None if none is demanded of it."""
        share = facts.spot_shares.get(self.name)
        if share is None or not placed.gpus or not starts(action) or action.in_place:
            return None
        longest = action.window[1] - action.window[0] if action.window else action.job.max_duration or placed.duration
        asked = max(longest or _HOUR, timedelta(minutes=1)) / _HOUR * placed.gpus
        return SpotShare(share.spot, share.total + asked)

    def _of_spot(self, action: Action) -> Verdict:
        workload = action.job.workload.value
        if self.config.use == "forbidden":
            return deny(
                self, "spot_forbidden", f"spot is forbidden for {workload} jobs in this scope", workload=workload
            )
        if self.config.use == "with_checkpoints" and action.job.checkpoint.every is None:
            return deny(
                self,
                "spot_without_checkpoints",
                f"spot requires checkpoints, and this {workload} job has none; write `checkpoint: {{every: "
                "10m}` if it saves them",
                workload=workload,
            )
        return allow(self, "spot_allowed", "spot is allowed")

    def _of_on_demand(self, action: Action, facts: Facts) -> Verdict:
        config, placed = self.config, action.placement
        share = None if placed is None else self._share(action, placed, facts)
        if config.min_share is None or share is None:
            return allow(self, "no_share", "starts no GPU of a job that could run on spot")
        least, hours = config.min_share, f"{share.total:,.0f} GPU-hours of jobs that could run on spot"
        when = f"in {period_name(config.window, config.timezone, self.since(facts.now))}"
        if share.total < config.min_gpu_hours:
            return allow(self, "too_few_hours", f"{hours} {when}; a share is required from {config.min_gpu_hours:,} on")
        if 100 * share.spot >= least * share.total:
            return allow(self, "share_kept", f"at least {least:g}% of {hours} {when} are on spot")
        # Rounded up, so that so many are enough.
        more = None if least >= 100 else ceil((least * share.total - 100 * share.spot) / (100 - least) * 10) / 10
        later = "" if more is None else f", or on demand once {more:,g} more are on spot"
        return deny(
            self,
            "too_little_spot",
            f"{share.spot:,.0f} of {hours} {when}, including this request, would be on spot"
            f" ({100 * share.spot / share.total:.0f}%); the minimum is {least:g}%; allowed on spot{later}",
            spot_gpu_hours=f"{share.spot:g}",
            gpu_hours=f"{share.total:g}",
            min_share=f"{least:g}",
            **({} if more is None else {"more_spot_gpu_hours": f"{more:g}"}),
        )
