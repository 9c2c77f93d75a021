"""The AWS provider: which source is asked for what, and what happens when one of them fails."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from broker.core.clock import Clock
from broker.core.offers import CapacityType, OfferQuery, SkippedRow
from providers.aws import spot_advisor
from providers.aws.failures import Failures
from providers.aws.price_list import PriceList
from providers.aws.settings import KEYLESS_REGIONS, NAME, AwsSettings
from providers.http import endpoint
from providers.rows import Found, distinct

_LISTED = (CapacityType.ON_DEMAND, CapacityType.RESERVED)


class Aws:
    """EC2 machines with accelerators.

    Without a login: list prices on demand and of reserved terms, and spot pools without a price.
    """

    name = NAME
    Settings: ClassVar = AwsSettings

    def __init__(self, *, clock: Clock, settings: AwsSettings | None = None) -> None:
        self._clock = clock
        self._settings = settings or AwsSettings()
        self._list = PriceList(self._settings, clock)

    def offers(self, query: OfferQuery) -> Found:
        """One source and region after the other. What fails does not hold back the rest: it is raised at the end, as
        one error that names each failure."""
        if query.providers and not any(fnmatchcase(NAME, pattern) for pattern in query.providers):
            return
        failures = Failures()
        yield from distinct(self._offers(query, failures))
        failures.raise_any()

    def _offers(self, query: OfferQuery, failures: Failures) -> Found:
        regions = self._regions(query, KEYLESS_REGIONS)
        if _wants(query, *_LISTED):
            for region in regions:
                yield from failures.kept(self._list.offers(region))
        if _wants(query, CapacityType.SPOT):
            yield from failures.kept(self._advised(regions))

    def _advised(self, regions: tuple[str, ...]) -> Found:
        now = self._clock.now()
        for advice in spot_advisor.read_advice(self._settings, self._clock, regions):
            if isinstance(advice, SkippedRow):
                yield advice
            else:
                yield from spot_advisor.offers_of(advice, now)

    def _regions(self, query: OfferQuery, default: tuple[str, ...]) -> tuple[str, ...]:
        regions = self._settings.regions or default
        if not query.regions:
            return regions
        return tuple(region for region in regions if any(fnmatchcase(region, pattern) for pattern in query.regions))

    def describe_setup(self) -> Mapping[str, Any]:
        """See `broker.app.doctor.DescribesSetup`."""
        settings = self._settings
        return {
            "endpoints": {
                "price_list": endpoint(NAME, "price_list_url", settings.price_list_url),
                "spot_advisor": endpoint(NAME, "spot_advisor_url", settings.spot_advisor_url),
            },
            "logins": {},
        }


def _wants(query: OfferQuery, *kinds: CapacityType) -> bool:
    return not query.capacity_types or any(kind in query.capacity_types for kind in kinds)
