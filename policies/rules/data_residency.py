"""Limits where jobs on certain data may run."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

from pydantic import BaseModel, Field

from broker.core.market.territories import TERRITORIES, lies_in, territory_named
from broker.core.policy.coverage import seen
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, Facts, Verdict
from policies.bound_rule import BoundRule
from policies.fields import PlacePatterns, PolicyPart
from policies.rules.allowed_locations import Names
from policies.verdicts import allow, deny


class Residency(PolicyPart):
    """Jobs whose ``data.location`` (``provider/region``) matches ``data`` run only where ``run_in`` matches; without
    ``data``, all jobs. Both: patterns of places, or territories (``eu``, ``us``), which are sets of regions. Data of
    unknown place counts as covered. A job with sensitive data must give its location.
    """

    run_in: PlacePatterns = Field(description="allowed places, such as [eu, '*/ca-*', 'owned/*']")
    data: PlacePatterns = ()


class DataResidency(BoundRule[Residency]):
    """Denies a placement elsewhere. Case-insensitive."""

    kind: ClassVar[str] = "data_residency"
    Config: ClassVar[type[BaseModel]] = Residency

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        data, placement = action.job.data, action.placement
        if placement is None:
            return allow(self, "no_place", "no place is requested")
        place = placement.offer.location
        inside = _matches(self.config.run_in, place)
        if data.location is None:
            if inside and not data.sensitive:
                return allow(self, "within_residency", f"data of any place may be processed at {place}")
            covered = f"what {', '.join(self.config.data)} covers" if self.config.data else "limited in place"
            sensitive = "the data is sensitive, and " if data.sensitive else ""
            return deny(
                self,
                "data_location_unknown",
                f"{sensitive}the job does not give the location of its data, which may be {covered}, so {place} is "
                "denied; write `data: {location: provider/region}`",
                place=place,
            )
        if not self._covers(data.location):
            return allow(self, "other_data", f"does not cover data in {data.location}")
        if not inside:
            return deny(
                self,
                "outside_of_residency",
                f"data in {data.location} may be processed in {', '.join(self.config.run_in)}, not at {place}",
                place=place,
                data=data.location,
            )
        return allow(self, "within_residency", f"data in {data.location} may be processed at {place}")

    def _covers(self, location: str) -> bool:
        """Whether data there is covered: by a pattern, or as data of a territory that a pattern names for every
        provider, so that ``*/eu-*`` covers gcp/europe-west4."""
        named = (territory_named(pattern) for pattern in self.config.data)
        alike = any(territory and _matches((territory,), location) for territory in named)
        return not self.config.data or alike or _matches(self.config.data, location)

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return seen(action, Aspect.PROVIDER, Aspect.REGION, Aspect.DATA_LOCATION, Aspect.SENSITIVE_DATA)


@lru_cache(maxsize=4096)
def _matches(places: tuple[str, ...], location: str) -> bool:
    """Whether ``provider/region`` is one of these places, or lies in one of these territories."""
    region = location.rpartition("/")[2]
    territories = [name for name in map(str.lower, places) if name in TERRITORIES]
    inside = any(lies_in(territory, region) for territory in territories)
    return inside or Names(allow=places).objection(location, region) is None
