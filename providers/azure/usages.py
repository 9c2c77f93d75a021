"""The subscription's quotas on vCPUs and their use (compute usages), per region; with a login.

Three of them limit a machine: all vCPUs of the region, those of its family (named by Resource SKUs), and, for spot
machines, all spot vCPUs of the region, whatever their family. Machines that are stopped count as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from broker.core.market.offers import Availability, CapacityType, Offer
from providers.azure.fields import count, inside
from providers.azure.login import AzureLogin
from providers.azure.skus import Sku

_ALL = "cores"
_SPOT = "lowprioritycores"


@dataclass(frozen=True, slots=True)
class AzureQuota:
    """One quota: the limit and the use, in vCPUs."""

    name: str
    limit: int
    used: int


def read_usages(login: AzureLogin, region: str) -> Mapping[str, AzureQuota]:
    """The quotas of one region, by their names in lower case. Raises what `AzureLogin.rows` raises."""
    found = {}
    for row in login.rows(f"{region}: usages", lambda client: client.usage.list(region)):
        name = inside(row, "name").get("value")
        limit, used = count(row.get("limit")), count(row.get("currentValue"))
        if isinstance(name, str) and name and limit is not None and used is not None:
            found[name.lower()] = AzureQuota(name, limit, used)
    return found


def judged(offer: Offer, skus: Mapping[str, Sku], usages: Mapping[str, AzureQuota]) -> Offer:
    """The offer within the quotas: `no_quota` if not even one machine fits, otherwise at most as many machines as fit
    beside the running ones."""
    sku = skus.get(offer.instance_type)
    if not offer.cpus or sku is None or offer.availability in (Availability.UNAVAILABLE, Availability.NO_QUOTA):
        return offer
    names = (_SPOT,) if offer.capacity_type is CapacityType.SPOT else (sku.family.lower(), _ALL)
    limits = [usages[name] for name in names if name in usages]
    if not limits:
        return offer
    tightest = min(limits, key=lambda usage: usage.limit - usage.used)
    machines = int((tightest.limit - tightest.used) // offer.cpus)
    if machines >= 1:
        return replace(offer, slots=machines)
    because = (
        f"quota {tightest.name!r}: {tightest.used} of {tightest.limit} vCPUs in use, "
        f"and this machine has {offer.cpus:g}"
    )
    return replace(offer, availability=Availability.NO_QUOTA, unavailable_because=because, slots=None)
