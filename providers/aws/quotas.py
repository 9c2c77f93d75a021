"""EC2's quotas on running machines with accelerators, per region, from Service Quotas; with a login.

They count vCPUs, separately on demand and spot, for groups of families in their names: "Running On-Demand P instances",
"All P4, P3 and P2 Spot Instance Requests". New accounts have 0 for most of them. Current use is unknown here, so the
machines that a quota allows are an upper bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from broker.core.market.capacity import Quota
from broker.core.market.offers import Availability, CapacityType, Offer
from providers.aws.login import AwsLogin
from providers.aws.settings import NAME

_NAMES = (
    (re.compile(r"Running On-Demand (.+) instances"), CapacityType.ON_DEMAND),
    (re.compile(r"All (.+) Spot Instance Requests"), CapacityType.SPOT),
)
_SEPARATOR = re.compile(r",\s*|\s+and\s+|,\s*and\s+")
_FAMILY = re.compile(r"[A-Za-z]{1,4}\d{0,2}")
_TYPE = re.compile(r"([a-z]+)(\d*)")
# Families that count as another: gr6 is a G machine with more memory.
_COUNTS_AS = {"gr": "g"}


def read_quotas(login: AwsLogin, region: str) -> Iterator[Quota]:
    """The quotas of one region that are about running machines. Raises what `AwsLogin.rows` raises."""
    for row in login.rows("service-quotas", region, "list_service_quotas", "Quotas", ServiceCode="ec2"):
        name, limit = row.get("QuotaName"), row.get("Value")
        if not isinstance(name, str) or not isinstance(limit, int | float) or not 0 <= limit < 10**9:
            continue
        for pattern, kind in _NAMES:
            if found := pattern.fullmatch(name):
                families = _SEPARATOR.split(found[1])
                if all(_FAMILY.fullmatch(family) for family in families):  # excludes "Standard (A, C, D, …)"
                    lower = tuple(family.lower() for family in families)
                    yield Quota(NAME, region, name, float(limit), "vCPU", lower, kind)


def judged(offer: Offer, quotas: Iterable[Quota]) -> Offer:
    """The offer under the account's quotas: ``no_quota`` if not even one machine fits, otherwise at most as many
    machines as fit.
    """
    quota = _quota_of(offer, quotas)
    if quota is None or not offer.cpus:
        return offer
    machines = int(quota.limit // offer.cpus)
    if machines:
        return replace(offer, slots=machines)
    if offer.availability is Availability.UNAVAILABLE:
        return offer
    because = f"quota {quota.name!r}: {quota.limit:g} vCPUs, and this machine has {offer.cpus:g}"
    return replace(offer, availability=Availability.NO_QUOTA, unavailable_because=because, slots=None)


def _quota_of(offer: Offer, quotas: Iterable[Quota]) -> Quota | None:
    """The quota that counts it; one that names the generation (P5) before one that names the family (P)."""
    parts = _TYPE.match(offer.instance_type)
    if parts is None:
        return None
    family = _COUNTS_AS.get(parts[1], parts[1])
    fitting = [
        quota
        for quota in quotas
        if quota.capacity_type is offer.capacity_type
        and quota.region == offer.region
        and (family in quota.families or family + parts[2] in quota.families)
    ]
    return max(fitting, key=lambda quota: family + parts[2] in quota.families, default=None)
