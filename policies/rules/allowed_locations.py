"""Limits the providers and regions where jobs may run."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Any, ClassVar

from pydantic import BaseModel, Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from broker.core.policy.coverage import seen
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, Facts, Verdict
from policies.bound_rule import BoundRule
from policies.fields import Patterns, PlacePatterns, PolicyPart, ProviderPatterns
from policies.verdicts import allow, deny


class Names(PolicyPart):
    """``[aws, gcp]`` (only these), or ``{allow: [...], deny: [...]}``, where a denial wins."""

    allow: Patterns = ()
    deny: Patterns = ()

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, str | list):
            return {"allow": value}
        if value == {}:
            raise ValueError("is empty; expected a list of names to allow, or {allow: [...]} or {deny: [...]}")
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        names = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
        both = {"type": "object", "properties": {"allow": names, "deny": names}, "additionalProperties": False}
        return {"anyOf": [*names["anyOf"], both], "description": cls.__doc__}

    def objection(self, *names: str) -> str | None:
        """The objection to any of these names of one thing, or None."""
        if self.deny and self._match(self.deny, names):
            return f"denied: {', '.join(self.deny)}"
        if self.allow and not self._match(self.allow, names):
            return f"allowed: {', '.join(self.allow)}"
        return None

    def _match(self, patterns: tuple[str, ...], names: tuple[str, ...]) -> bool:
        pattern = re.compile("|".join(map(translate, patterns)), re.IGNORECASE)
        return any(pattern.match(name) for name in names)


class ProviderNames(Names):
    """Providers by their names in offers, or by an alias such as ``google``."""

    allow: ProviderPatterns = ()
    deny: ProviderPatterns = ()


class RegionNames(Names):
    """Regions, alone or as ``provider/region``."""

    allow: PlacePatterns = ()
    deny: PlacePatterns = ()


class LocationPatterns(PolicyPart):
    """Shell-style patterns, case-insensitive. Write a region as ``eu-*`` or with its provider, ``aws/eu-*``. Owned and
    simulated machines have a provider and a region too.
    """

    providers: ProviderNames = Field(default_factory=ProviderNames.model_construct)
    regions: RegionNames = Field(default_factory=RegionNames.model_construct)

    @model_validator(mode="after")
    def _says_something(self) -> LocationPatterns:
        if not any((self.providers.allow, self.providers.deny, self.regions.allow, self.regions.deny)):
            raise ValueError("is empty; expected `providers` or `regions`")
        return self


class AllowedLocations(BoundRule[LocationPatterns]):
    """Denies a placement at a provider or in a region that is not allowed."""

    kind: ClassVar[str] = "allowed_locations"
    Config: ClassVar[type[BaseModel]] = LocationPatterns

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if action.placement is None:
            return allow(self, "no_place", "no place is requested")
        return self._at(action.placement.offer.provider, action.placement.offer.region)

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return seen(action, Aspect.PROVIDER, Aspect.REGION)

    @cached_property
    def _at(self) -> Callable[[str, str], Verdict]:
        """The cached verdict on a place: a market has far fewer places than offers."""
        return lru_cache(maxsize=4096)(self._judge_place)

    def _judge_place(self, provider: str, region: str) -> Verdict:
        place = f"{provider}/{region}"
        if objection := self.config.providers.objection(provider):
            return deny(self, "provider_not_allowed", f"{provider} is not allowed: {objection}", provider=provider)
        if objection := self.config.regions.objection(region, place):
            return deny(
                self, "region_not_allowed", f"{place} is not allowed: {objection}", provider=provider, region=region
            )
        return allow(self, "allowed", f"{place} is allowed")
