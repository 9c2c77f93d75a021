"""Rules on machines: accelerators, their connection, and how they are paid for."""

from functools import cached_property
from typing import Any, Literal

from pydantic import Field, model_validator

from broker.core.market.offers import CapacityType, Interconnect
from broker.core.policy.facts import Aspect
from broker.core.policy.policy import Action, Facts, Verdict
from policies.bound_rule import BoundRule, allow, deny, guardrail
from policies.fields import AcceleratorPatterns, GpuCount, PolicyPart, names_accelerator
from policies.rules.places import Names


class AcceleratorNames(Names):
    """``[L4, A100]`` (only these), or ``{allow: [...], deny: [...]}``, where a denial wins. Names as in offers, their
    aliases, or patterns such as ``RTX*``. A name stands for its variants, too (``A100`` for A100-80GB, ``H100`` for
    H100-NVL); ``=A100`` for that card alone. CPU machines are not affected.
    """

    allow: AcceleratorPatterns = ()
    deny: AcceleratorPatterns = ()

    def _match(self, patterns: tuple[str, ...], names: tuple[str, ...]) -> bool:
        return any(names_accelerator(pattern, name) for pattern in patterns for name in names)


@guardrail("accelerators")
class AllowedAccelerators(BoundRule[AcceleratorNames]):
    """Denies a placement on an accelerator that is not allowed."""

    reads = (Aspect.ACCELERATOR,)

    @cached_property
    def _objections(self) -> dict[str, str | None]:
        """Cached objections by accelerator: few accelerators, many offers."""
        return {}

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        accelerator = action.placement.offer.accelerator if action.placement else None
        if accelerator is None:
            return allow(self, "no_accelerator", "no accelerator is requested")
        if accelerator not in self._objections:
            self._objections[accelerator] = self.config.objection(accelerator)
        if objection := self._objections[accelerator]:
            return deny(
                self, "accelerator_not_allowed", f"{accelerator} is not allowed: {objection}", accelerator=accelerator
            )
        return allow(self, "allowed", f"{accelerator} is allowed")


_STRENGTH = {Interconnect.NONE: 0, Interconnect.PCIE: 1, Interconnect.NVLINK: 2}


class Link(PolicyPart):
    """``nvlink`` or ``pcie``, or ``{at_least: nvlink, from_gpus: 4}``: for machines with that many accelerators or more
    (default 2). An unknown interconnect is denied.
    """

    at_least: Literal["nvlink", "pcie"] = Field(description="one of nvlink, pcie")
    from_gpus: GpuCount = 2

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> Any:
        return {"at_least": value} if isinstance(value, str) else value


@guardrail("min_interconnect")
class MinInterconnect(BoundRule[Link]):
    """Denies a placement on a machine with a weaker interconnect."""

    reads = (Aspect.INTERCONNECT, Aspect.GPUS_PER_MACHINE)

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        offer = action.placement.offer if action.placement else None
        if offer is None or offer.count < self.config.from_gpus:
            return allow(self, "too_small", f"applies to machines with {self.config.from_gpus} or more accelerators")
        required, actual = Interconnect(self.config.at_least), offer.interconnect
        if actual is not None and _STRENGTH[actual] >= _STRENGTH[required]:
            return allow(self, "strong_enough", f"is joined by {actual.value}")
        actual_text = actual.value if actual else "an unknown interconnect"
        return deny(
            self,
            "interconnect_too_weak",
            f"{offer.count} accelerators of {offer.instance_type} are joined by {actual_text}; the minimum is "
            f"{required.value}",
            interconnect=actual.value if actual else "unknown",
            at_least=required.value,
        )


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
            value = {key: [item] if isinstance(item, str) else item for key, item in value.items()}
            if not value or [] in value.values():
                raise ValueError(f"names no capacity type; expected some of {', '.join(CapacityType)}")
        return value


@guardrail("capacity_types")
class CapacityTypes(BoundRule[Types]):
    """Denies a placement on another capacity type."""

    reads = (Aspect.CAPACITY_TYPE,)

    @property
    def forbids_spot(self) -> bool:
        config = self.config
        return CapacityType.SPOT in config.deny or (bool(config.allow) and CapacityType.SPOT not in config.allow)

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if action.placement is None:
            return allow(self, "no_place", "no capacity is requested")
        capacity_type, config = action.placement.offer.capacity_type, self.config
        if capacity_type in config.deny or (config.allow and capacity_type not in config.allow):
            rule_text = (
                f"denied: {_words(config.deny)}" if capacity_type in config.deny else f"allowed: {_words(config.allow)}"
            )
            return deny(
                self,
                "capacity_type_not_allowed",
                f"{capacity_type.value} capacity is not allowed: {rule_text}",
                capacity_type=capacity_type.value,
            )
        return allow(self, "allowed", f"{capacity_type.value} capacity is allowed")


def _words(types: tuple[CapacityType, ...]) -> str:
    return ", ".join(kind.value for kind in types)
