"""The place of an offer in SkyPilot's names of regions, zones and accelerators; and Google's flex start. Pure.

Flex start: machines that are started once there is capacity, for a requested time of up to seven days, at separate
prices. The machine type of such an offer ends in `SUFFIX` (`providers/gcp/provider.py`). SkyPilot requests its machines
through a managed instance group with a resize request of `requested_run_duration`: Google starts all of them or none,
and deletes them at the end of that time. Limits: Compute Engine documentation, "About Flex-start VMs", read 2026-11-26:
the run duration is ten minutes to seven days.
"""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from broker.core.errors import TryAnotherOffer
from broker.core.market.offers import Offer
from broker.core.ports import Launch

# SkyPilot's clouds by provider. Vast is missing: SkyPilot rents the cheapest listing at that moment, which may differ
# from the offer in machine and price.
CLOUDS: Mapping[str, str] = {
    name: name for name in ("aws", "azure", "gcp", "oci", "lambda", "runpod", "nebius", "kubernetes", "ssh", "slurm")
}
# Clouds without instance types: machines are requested by size.
BY_SIZE = frozenset({"kubernetes", "ssh", "slurm"})
_WITHOUT_ZONES = frozenset({"azure", "lambda", "nebius", "kubernetes", "ssh"})
# Providers list prices that are equal in all regions under these region names; SkyPilot then chooses the region.
_NO_REGION = "global"
_NO_REGIONS_OF = frozenset({("runpod", "secure")})
# ``use1-az6``, ``usw2-lax1-az1``: a zone ID means the same place for every account; a zone name, such as
# ``us-east-1a``, depends on the account.
_ZONE_ID = re.compile(r"[a-z0-9-]+-az[0-9]+")

ZoneNames = Callable[[str], Mapping[str, str]]
"""The zone names of SkyPilot's AWS account by zone ID, of one region."""


def infra(offer: Offer, cloud: str, aws_zones: ZoneNames) -> str:
    """``cloud[/region[/zone]]``.

    For a zone ``region:zone``, such as a Slurm partition, only the latter part. ``aws_zones`` is called only for AWS
    offers with a zone ID. Raises `TryAnotherOffer` if the account lacks that zone, and what ``aws_zones`` raises.
    """
    if offer.region == _NO_REGION or (cloud, offer.region) in _NO_REGIONS_OF:
        return cloud
    zone = None if cloud in _WITHOUT_ZONES else offer.zone
    if cloud == "aws" and zone and _ZONE_ID.fullmatch(zone):
        names = aws_zones(offer.region)
        if zone not in names:
            available = ", ".join(sorted(names)) or "none"
            raise TryAnotherOffer(
                f"the AWS account has no zone {zone} in {offer.region}; it has {available}",
                where="skypilot",
                hint="zones of AWS differ between accounts; `aws ec2 describe-availability-zones` lists them",
            )
        zone = names[zone]
    return "/".join([cloud, offer.region, *([zone.removeprefix(f"{offer.region}:")] if zone else [])])


def accelerators(offer: Offer, cloud: str) -> dict[str, int]:
    """The accelerators to request in addition to the instance type: none if the type includes them, since SkyPilot
    rejects names other than its own (``H100-MEGA`` for a3-megagpu, ``H100`` for Azure's NCads H100 v5).
    """
    is_attached = cloud == "gcp" and offer.instance_type.startswith("n1-")
    return {offer.accelerator: offer.count} if offer.accelerator and (is_attached or cloud in BY_SIZE) else {}


SUFFIX = "+flex-start"
_SHORTEST, _LONGEST = timedelta(minutes=10), timedelta(days=7)
# Added to the job's time: Google's time begins with the machine, the job's begins later, and a job that is stopped at
# its end still saves a checkpoint.
_MARGIN = timedelta(minutes=20)
# How long a launch waits for machines; then the job is placed again.
_PROVISION_TIMEOUT = timedelta(minutes=15)


def machine_type(offer: Offer) -> str:
    return offer.instance_type.removesuffix(SUFFIX)


def flex_settings(launch: Launch) -> dict[str, Any]:
    """SkyPilot's settings for a launch with flex start; empty for other launches.

    The requested time is the job's maximum running time plus its start and end, as shorter requests are served sooner.
    """
    if not launch.placement.offer.instance_type.endswith(SUFFIX):
        return {}
    longest = min(max((launch.job.max_duration or _LONGEST) + _MARGIN, _SHORTEST), _LONGEST)
    group = {"run_duration": int(longest.total_seconds()), "provision_timeout": int(_PROVISION_TIMEOUT.total_seconds())}
    return {"gcp": {"managed_instance_group": group}}
