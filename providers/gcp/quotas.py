"""The project's quotas and their use: those of each region, and the one on GPUs in all regions.

Google counts GPUs by kind, separately on demand and preemptible; spot machines use the on-demand quota if the
preemptible one is 0 ("Allocation quotas", GPU quota). New projects have ``GPUS_ALL_REGIONS`` 0. Some of the newest GPUs
have quotas only in the Cloud Quotas API, which is not queried, so their quotas are unknown here.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from broker.core.market.capacity import Quota
from broker.core.market.offers import Availability, CapacityType, Offer, SkippedRow
from providers.gcp.accelerators import quota_names
from providers.gcp.calls import GcpCaller, ListMethod
from providers.gcp.machines import GcpMachine
from providers.gcp.settings import NAME

ALL_REGIONS = "*"
ALL_GPUS = "GPUS_ALL_REGIONS"

_REGIONS = ListMethod("RegionsClient", "list", "RegionList", "items")
_METRIC = re.compile(r"(PREEMPTIBLE_|COMMITTED_)?(NVIDIA_\w+_GPUS)")
_KINDS = {None: CapacityType.ON_DEMAND, "PREEMPTIBLE_": CapacityType.SPOT, "COMMITTED_": CapacityType.RESERVED}
_MAX_AMOUNT = 10**9


@dataclass(frozen=True, slots=True)
class GcpQuota:
    """A quota, and how much of it is in use."""

    quota: Quota
    usage: float

    @property
    def left(self) -> float:
        return max(0.0, self.quota.limit - self.usage)


def read_limits(caller: GcpCaller) -> Iterator[GcpQuota]:
    """The quotas on accelerators. Raises what `GcpCaller.call` raises, possibly after some."""
    for row in caller.call("ProjectsClient", "get", project=caller.login.project).quotas:
        if row.metric == ALL_GPUS and (limit := _limit(row, ALL_REGIONS, None)):
            yield limit
    for listed_row in caller.rows(_REGIONS, project=caller.login.project):
        if not isinstance(listed_row, SkippedRow):
            for row in listed_row.row.quotas:
                if limit := _read_quota(row, listed_row.row.name):
                    yield limit


def _read_quota(row: Any, region: str) -> GcpQuota | None:
    parts = _METRIC.fullmatch(row.metric)
    if parts is None or not region:
        return None
    return _limit(row, region, _KINDS[parts[1]]) if parts[2] in quota_names() else None


def _limit(row: Any, region: str, kind: CapacityType | None) -> GcpQuota | None:
    if not 0 <= row.limit < _MAX_AMOUNT or not 0 <= row.usage < _MAX_AMOUNT:
        return None
    return GcpQuota(Quota(NAME, region, row.metric, row.limit, "GPU", (), kind), row.usage)


class QuotaLimits:
    """The quotas' limits on an offer."""

    def __init__(self, limits: Iterable[GcpQuota] = ()) -> None:
        self._all: GcpQuota | None = None
        self._by_card: dict[tuple[str, str, CapacityType], GcpQuota] = {}
        for limit in limits:
            quota = limit.quota
            card = quota_names().get(quota.name.removeprefix("PREEMPTIBLE_"))
            if quota.name == ALL_GPUS:
                self._all = limit
            elif card is not None and quota.capacity_type is not None:
                self._by_card[quota.region, card, quota.capacity_type] = limit

    def with_limits(self, offer: Offer, shape: GcpMachine) -> Offer:
        """The offer with ``no_quota`` where not even one machine fits, otherwise with at most as many as fit."""
        limits = [limit for limit in (self._of_card(offer, shape), self._of_all(offer)) if limit is not None]
        if not limits or offer.availability is Availability.UNAVAILABLE or shape.slices:
            return offer  # the count of a part of a card or a chip is unknown
        tightest = min(limits, key=lambda limit: limit.left)
        machines = int(tightest.left // offer.count)
        if machines:
            return replace(offer, slots=machines)
        quota = tightest.quota
        because = f"quota {quota.name}: {quota.limit:g} GPUs, {tightest.usage:g} in use, this machine has {offer.count}"
        return replace(offer, availability=Availability.NO_QUOTA, unavailable_because=because, slots=None)

    def _of_card(self, offer: Offer, shape: GcpMachine) -> GcpQuota | None:
        limit = self._by_card.get((offer.region, shape.accelerator_type, offer.capacity_type))
        if offer.capacity_type is CapacityType.SPOT and (limit is None or not limit.quota.limit):
            return self._by_card.get((offer.region, shape.accelerator_type, CapacityType.ON_DEMAND), limit)
        return limit

    def _of_all(self, offer: Offer) -> GcpQuota | None:
        return self._all if offer.capacity_type is CapacityType.ON_DEMAND else None
