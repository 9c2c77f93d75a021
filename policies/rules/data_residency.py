"""Limits where jobs on certain data may run."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, Field

from broker.core.policy.coverage import seen
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, Facts, Verdict
from policies.bound_rule import BoundRule
from policies.fields import PlacePatterns, PolicyPart
from policies.rules.allowed_locations import Names
from policies.verdicts import allow, deny


class Residency(PolicyPart):
    """Jobs whose ``data.location`` (``provider/region``) matches ``data`` run only where ``run_in`` matches; without
    ``data``, all jobs with a data location. A job with sensitive data must give its location.
    """

    run_in: PlacePatterns = Field(description="allowed places, such as ['*/eu-*', 'owned/*']")
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
        if data.location is None:
            if not data.sensitive:
                return allow(self, "no_data", "the job gives no data location")
            return deny(
                self,
                "data_location_unknown",
                f"the data is sensitive and the job does not give its location, so {place} is denied; write "
                "`data: {location: provider/region}`",
                place=place,
            )
        if self.config.data and Names(allow=self.config.data).objection(data.location):
            return allow(self, "other_data", f"does not cover data in {data.location}")
        if Names(allow=self.config.run_in).objection(place, placement.offer.region):
            return deny(
                self,
                "outside_of_residency",
                f"data in {data.location} may be processed in {', '.join(self.config.run_in)}, not at {place}",
                place=place,
                data=data.location,
            )
        return allow(self, "within_residency", f"data in {data.location} may be processed at {place}")

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return seen(action, Aspect.PROVIDER, Aspect.REGION, Aspect.DATA_LOCATION, Aspect.SENSITIVE_DATA)
