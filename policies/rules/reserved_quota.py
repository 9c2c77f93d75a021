"""Limits each team's share of prepaid capacity."""

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

from pydantic import field_validator

from broker.core.market.offers import CapacityType
from broker.core.policy.coverage import read_facts
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, Facts, Verdict
from broker.core.validation import parse_each
from policies.bound_rule import BoundRule, allow, deny, guardrail
from policies.fields import AcceleratorPatterns, GpuCount, PolicyPart, names_accelerator, parse_name
from policies.rules.concurrency import OtherAttempts, room_hint, starts_attempt

_PAID = (CapacityType.OWNED, CapacityType.RESERVED)


class Shares(PolicyPart):
    """``gpus``: maximum GPUs per team at once; ``others``: for each unlisted team, and for all jobs without a team
    together (default 0). ``accelerators``: names or patterns (default: all). ``capacity_types``: the types that are
    shared.
    """

    gpus: dict[str, GpuCount]
    others: GpuCount | None = None
    accelerators: AcceleratorPatterns = ()
    capacity_types: tuple[CapacityType, ...] = (CapacityType.RESERVED,)

    @field_validator("gpus", mode="before")
    @classmethod
    def _teams(cls, value: object) -> object:
        if not isinstance(value, Mapping) or not value:
            raise ValueError("expected a number of GPUs for each team, such as {nlp: 16, vision: 8}")
        parse_each(value.items(), lambda name, _: parse_name(name))
        return value

    @field_validator("capacity_types")
    @classmethod
    def _paid(cls, types: tuple[CapacityType, ...]) -> tuple[CapacityType, ...]:
        if not types or any(kind not in _PAID for kind in types):
            raise ValueError(f"expected some of {', '.join(_PAID)}; budgets limit rented capacity")
        return types


@guardrail("reserved_quota")
class ReservedQuota(BoundRule[Shares]):
    """Denies a team more prepaid capacity than its share. Further jobs wait or burst."""

    counts_live: ClassVar[bool] = True

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        placement = action.placement
        if placement is None or not starts_attempt(action):
            return allow(self, "starts_none", "applies to starts")
        if not self._shares_quota(placement.offer.capacity_type, placement.offer.accelerator):
            return allow(self, "not_shared", "is not shared capacity")
        team = action.job.team
        limit = self._limit(team)
        in_use = self._in_use(action, facts)
        if in_use + placement.gpus <= limit:
            return allow(self, "within_share", f"at most {limit} GPUs at once")
        team_text = f"team {team}" if team else "jobs without a team"
        kinds = " or ".join(self.config.capacity_types)
        return deny(
            self,
            "over_share",
            f"{team_text} would use {in_use + placement.gpus} {kinds} GPUs; the share is {limit}"
            f"{room_hint(placement.gpus, in_use, limit)}",
            in_use=in_use,
            asked=placement.gpus,
            limit=limit,
            team=team or "",
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        gpus = self._in_use(action, facts) + (action.placement.gpus if action.placement else 0)
        shared = read_facts(action, Aspect.CAPACITY_TYPE, Aspect.ACCELERATOR)
        return (*shared, Fact(aspect=Aspect.GPUS_AT_ONCE, value=gpus))

    def _in_use(self, action: Action, facts: Facts) -> int:
        """GPUs that other jobs of the job's team use."""
        return sum(
            attempt.gpus
            for attempt in self._others.beside(action, facts).attempts
            if attempt.team == action.job.team and self._shares_quota(attempt.capacity_type, attempt.accelerator)
        )

    @cached_property
    def _others(self) -> OtherAttempts:
        return OtherAttempts(self.scope)

    def _limit(self, team: str | None) -> int:
        others = self.config.others or 0
        return others if team is None else self.config.gpus.get(team, others)

    def _shares_quota(self, kind: CapacityType | None, accelerator: str | None) -> bool:
        return (
            kind in self.config.capacity_types
            and accelerator is not None
            and any(names_accelerator(pattern, accelerator) for pattern in self.config.accelerators or ("*",))
        )
