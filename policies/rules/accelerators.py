"""Limits the accelerators that jobs may use."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from pydantic import BaseModel, field_validator

from broker.core.errors import UnknownName
from broker.core.policy.coverage import seen
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, Facts, Verdict
from broker.core.validation import each
from broker.core.values.accelerators import canonical
from policies.bound_rule import BoundRule
from policies.rules.allowed_locations import Names
from policies.verdicts import allow, deny

_PATTERN_SIGNS = frozenset("*?[")


class AcceleratorNames(Names):
    """``[L4, A100]`` (only these), or ``{allow: [...], deny: [...]}``, where a denial wins. Names as in offers, their
    aliases, or patterns such as ``RTX*``. CPU machines are not affected.
    """

    @field_validator("allow", "deny")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(each(enumerate(names), lambda _, name: _canonical(name)))


def _canonical(name: str) -> str:
    if _PATTERN_SIGNS.intersection(name):
        return name
    try:
        return canonical(name)
    except UnknownName as error:
        raise ValueError(error.message) from error


class AllowedAccelerators(BoundRule[AcceleratorNames]):
    """Denies a placement on an accelerator that is not allowed."""

    kind: ClassVar[str] = "accelerators"
    Config: ClassVar[type[BaseModel]] = AcceleratorNames

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

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return seen(action, Aspect.ACCELERATOR)
