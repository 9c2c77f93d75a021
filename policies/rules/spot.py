"""Limits spot capacity: forbidden, only for jobs with checkpoints, or a minimum share of what could use it."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import ceil
from typing import Literal

from pydantic import model_validator

from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType
from broker.core.policy.coverage import read_facts
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, Facts, SpotShare, Verdict
from broker.ledger.budgets import period_containing, period_name
from policies.bound_rule import BoundRule, allow, deny, guardrail
from policies.fields import GpuHours, Percent, PolicyPart, TimeZone
from policies.rules.concurrency import starts_attempt

_RENTED = (CapacityType.SPOT, CapacityType.ON_DEMAND)
_HOUR = timedelta(hours=1)
_ROUNDING = 1e-6  # percent of GPU-hours: 99.9 and many hours have no exact floats


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


@guardrail("spot")
class Spot(BoundRule[SpotUse]):
    """Denies spot that is not allowed, and on-demand that would keep the spot share below the minimum."""

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
            return self._judge_spot(action)
        return self._judge_on_demand(action, facts)

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        kind, placement = read_facts(action, Aspect.CAPACITY_TYPE), action.placement
        if placement is None or placement.offer.capacity_type is not CapacityType.ON_DEMAND:
            return kind
        share = self._share(action, placement, facts)
        return kind if share is None else (*kind, Fact(aspect=Aspect.SPOT_SHARE, value=100 * share.spot / share.total))

    def _share(self, action: Action, placement: Placement, facts: Facts) -> SpotShare | None:
        """The share with what the on-demand start asks for; None if none is demanded of it."""
        share = facts.spot_shares.get(self.name)
        if share is None or not placement.gpus or not starts_attempt(action) or action.in_place:
            return None
        longest = (
            action.window[1] - action.window[0] if action.window else action.job.max_duration or placement.duration
        )
        requested_hours = max(longest or _HOUR, timedelta(minutes=1)) / _HOUR * placement.gpus
        return SpotShare(share.spot, share.total + requested_hours)

    def _judge_spot(self, action: Action) -> Verdict:
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

    def _judge_on_demand(self, action: Action, facts: Facts) -> Verdict:
        config, placement = self.config, action.placement
        share = None if placement is None else self._share(action, placement, facts)
        if config.min_share is None or share is None:
            return allow(self, "no_share", "starts no GPU of a job that could run on spot")
        minimum, hours = config.min_share, f"{share.total:,.0f} GPU-hours of jobs that could run on spot"
        window_text = f"in {period_name(config.window, config.timezone, self.since(facts.now))}"
        if share.total < config.min_gpu_hours:
            return allow(
                self, "too_few_hours", f"{hours} {window_text}; a share is required from {config.min_gpu_hours:,} on"
            )
        missing = minimum * share.total - 100 * share.spot
        if missing <= _ROUNDING:
            return allow(self, "share_kept", f"at least {minimum:g}% of {hours} {window_text} are on spot")
        # Rounded up, so that so many are enough.
        missing_hours = None if minimum >= 100 else ceil(missing / (100 - minimum) * 10 - _ROUNDING) / 10
        hint = "" if missing_hours is None else f", or on demand once {missing_hours:,.10g} more are on spot"
        return deny(
            self,
            "too_little_spot",
            f"{share.spot:,.0f} of {hours} {window_text}, including this request, would be on spot"
            f" ({100 * share.spot / share.total:.0f}%); the minimum is {minimum:g}%; allowed on spot{hint}",
            spot_gpu_hours=f"{share.spot:g}",
            gpu_hours=f"{share.total:g}",
            min_share=f"{minimum:g}",
            **({} if missing_hours is None else {"more_spot_gpu_hours": f"{missing_hours:.1f}".removesuffix(".0")}),
        )
