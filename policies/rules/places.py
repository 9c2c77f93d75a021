"""Rules on where jobs and their data may be."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Any, Literal

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from broker.core.market.offers import CapacityType
from broker.core.market.places import TERRITORIES, has_public_regions, lies_in, territory_named
from broker.core.policy.facts import Aspect
from broker.core.policy.policy import Action, Facts, Verdict
from policies.bound_rule import BoundRule, allow, deny, guardrail
from policies.fields import Patterns, PlacePatterns, PolicyPart, PolicyValue, ProviderPatterns


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
        mapping = {"type": "object", "properties": {"allow": names, "deny": names}, "additionalProperties": False}
        return {"anyOf": [*names["anyOf"], mapping], "description": cls.__doc__}

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


@guardrail("allowed_locations")
class AllowedLocations(BoundRule[LocationPatterns]):
    """Denies a placement at a provider or in a region that is not allowed."""

    reads = (Aspect.PROVIDER, Aspect.REGION)

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if action.placement is None:
            return allow(self, "no_place", "no place is requested")
        return self._at(action.placement.offer.provider, action.placement.offer.region)

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


class Residency(PolicyPart):
    """Jobs with data (``data.location``, ``data.mounts``) in ``data`` run only where ``run_in`` matches; without
    ``data``, all jobs. Both: patterns of places, or territories (``eu``, ``us``), which are sets of regions. Data of
    unknown place counts as covered. A job with sensitive data must give its location.
    """

    run_in: PlacePatterns = Field(description="allowed places, such as [eu, '*/ca-*', 'owned/*']")
    data: PlacePatterns = ()


@guardrail("data_residency")
class DataResidency(BoundRule[Residency]):
    """Denies a placement elsewhere. Case-insensitive."""

    reads = (Aspect.PROVIDER, Aspect.REGION, Aspect.DATA_LOCATION, Aspect.SENSITIVE_DATA)

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if action.placement is None:
            return allow(self, "no_place", "no place is requested")
        place, is_sensitive = action.placement.offer.location, action.job.data.sensitive
        is_inside = _is_inside(self.config.run_in, place)
        for mount, location in action.job.data_locations:
            if location is None and (is_sensitive or not is_inside):
                covered = f"data in {', '.join(self.config.data)}" if self.config.data else "all data"
                sensitive = "the data is sensitive, and " if is_sensitive else ""
                what, key = (f"the mount {mount}", f"mounts: {{{mount}: ") if mount else ("its data", "location: ")
                return deny(
                    self,
                    "data_location_unknown",
                    f"{sensitive}the job does not give the location of {what}; the rule covers {covered}, so {place} "
                    f"is denied{self._name_hint(place)}; write `data: {{{key}provider/region}}{'}' if mount else ''}`",
                    place=place,
                )
            if location is not None and not is_inside and self._covers(location):
                return deny(
                    self,
                    "outside_of_residency",
                    f"data in {location} may be processed in {', '.join(self.config.run_in)}, not at {place}"
                    f"{self._name_hint(place)}",
                    place=place,
                    data=location,
                )
        if is_inside:
            return allow(self, "within_residency", f"data of any place may be processed at {place}")
        return allow(self, "other_data", "does not cover the places of the job's data")

    def _name_hint(self, place: str) -> str:
        """How to allow a place that is in no territory because people chose its name; else empty."""
        names_territory = any(name.lower() in TERRITORIES for name in self.config.run_in)
        if not names_territory or has_public_regions(place.partition("/")[0]):
            return ""
        places = ", ".join((*self.config.run_in, place))
        return f" (its name does not prove where it is; if it is there, list it: `run_in: [{places}]`)"

    def _covers(self, location: str) -> bool:
        """Whether data there is covered: by a pattern, or because it is not known to lie outside of a territory that a
        pattern names for every provider, so that ``*/eu-*`` covers gcp/europe-west4 and vultr/fra."""
        territories = filter(None, map(territory_named, self.config.data))
        may_be_within = any(lies_in(territory, location) is not False for territory in territories)
        return not self.config.data or may_be_within or _is_inside(self.config.data, location)


@lru_cache(maxsize=4096)
def _is_inside(places: tuple[str, ...], location: str) -> bool:
    """Whether ``provider/region`` is one of these places, or is known to lie in one of these territories."""
    territories = [name for name in map(str.lower, places) if name in TERRITORIES]
    region = location.rpartition("/")[2]
    is_inside = any(lies_in(territory, location) for territory in territories)
    patterns = tuple(name for name in places if name.lower() not in TERRITORIES)
    return is_inside or (bool(patterns) and Names(allow=patterns).objection(location, region) is None)


class Where(PolicyValue[Literal["on_premises"]]):
    """``on_premises``: jobs with ``data: {sensitive: true}`` run on owned capacity only."""


@guardrail("sensitive_data")
class SensitiveData(BoundRule[Where]):
    """Denies a placement of such a job on other capacity."""

    reads = (Aspect.PROVIDER, Aspect.REGION, Aspect.CAPACITY_TYPE, Aspect.SENSITIVE_DATA)

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if not action.job.data.sensitive:
            return allow(self, "not_sensitive", "the job's data is not sensitive")
        if action.placement is None:
            return allow(self, "no_place", "no place is requested")
        offer = action.placement.offer
        if offer.capacity_type is CapacityType.OWNED:
            return allow(self, "on_premises", f"{offer.location} is owned")
        return deny(
            self,
            "sensitive_data_elsewhere",
            f"the job's data is sensitive, so it runs on owned machines only; {offer.location} is not owned",
            place=offer.location,
            capacity_type=offer.capacity_type.value,
        )
