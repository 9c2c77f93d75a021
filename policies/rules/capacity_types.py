"""Limits the capacity types: owned, reserved, on-demand, spot."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, model_validator

from broker.core.market.offers import CapacityType
from broker.core.policy.coverage import seen
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, Facts, Verdict
from policies.bound_rule import BoundRule
from policies.fields import PolicyPart
from policies.verdicts import allow, deny


class Types(PolicyPart):
    """``[owned, reserved]`` (only these), or ``{allow: [...]}`` or ``{deny: [...]}``."""

    allow: tuple[CapacityType, ...] = ()
    deny: tuple[CapacityType, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> Any:
        if isinstance(value, str | list):
            value = {"allow": value}
        if isinstance(value, dict):
            value = {key: [said] if isinstance(said, str) else said for key, said in value.items()}
            if not value or [] in value.values():
                raise ValueError(f"names no capacity type; expected some of {', '.join(CapacityType)}")
        return value


class CapacityTypes(BoundRule[Types]):
    """Denies a placement on another capacity type."""

    kind: ClassVar[str] = "capacity_types"
    Config: ClassVar[type[BaseModel]] = Types

    @property
    def forbids_spot(self) -> bool:
        config = self.config
        return CapacityType.SPOT in config.deny or (bool(config.allow) and CapacityType.SPOT not in config.allow)

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if action.placement is None:
            return allow(self, "no_place", "no capacity is requested")
        asked, config = action.placement.offer.capacity_type, self.config
        if asked in config.deny or (config.allow and asked not in config.allow):
            said = f"denied: {_words(config.deny)}" if asked in config.deny else f"allowed: {_words(config.allow)}"
            return deny(
                self,
                "capacity_type_not_allowed",
                f"{asked.value} capacity is not allowed: {said}",
                capacity_type=asked.value,
            )
        return allow(self, "allowed", f"{asked.value} capacity is allowed")

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return seen(action, Aspect.CAPACITY_TYPE)


def _words(types: tuple[CapacityType, ...]) -> str:
    return ", ".join(one.value for one in types)
