"""Limits the accelerators that jobs may use."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from pydantic import BaseModel

from broker.core.policy.coverage import seen
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, Facts, Verdict
from policies.bound_rule import BoundRule
from policies.fields import AcceleratorPatterns, names_accelerator
from policies.rules.allowed_locations import Names
from policies.verdicts import allow, deny


class AcceleratorNames(Names):
    """``[L4, A100]`` (only these), or ``{allow: [...], deny: [...]}``, where a denial wins. Names as in offers, their
    aliases, or patterns such as ``RTX*``. A name stands for its variants, too (``A100`` for A100-80GB, ``H100`` for
    H100-NVL); ``=A100`` for that card alone. CPU machines are not affected.
    """

    allow: AcceleratorPatterns = ()
    deny: AcceleratorPatterns = ()

    def _match(self, patterns: tuple[str, ...], names: tuple[str, ...]) -> bool:
        return any(names_accelerator(pattern, name) for pattern in patterns for name in names)


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
