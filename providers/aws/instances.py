"""Machines of the account with gpubroker's tag, and their termination; with a login.

Whatever starts machines on AWS for gpubroker sets the tags ``gpubroker`` (the attempt's key) and ``gpubroker-store``
(the id of the requesting store).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from broker.core.errors import Refused
from broker.core.market.capacity import Instance
from broker.core.market.machines import STORE_TAG, TAG
from broker.core.market.offers import CapacityType
from providers.aws.login import AwsLogin
from providers.aws.settings import NAME

# Everything but "terminated". A stopped machine is billed for its disks only.
_STATES = ("pending", "running", "shutting-down", "stopping", "stopped")
_BILLED = ("running", "stopping")


def tagged_instances(login: AwsLogin, region: str, zones: Mapping[str, str]) -> Iterator[Instance]:
    """The machines of one region that carry the tag and are not gone. ``zones``: names to IDs. Raises what
    `AwsLogin.rows` raises."""
    rows = login.rows(
        "ec2",
        region,
        "describe_instances",
        "Reservations",
        Filters=[{"Name": "tag-key", "Values": [TAG]}, {"Name": "instance-state-name", "Values": list(_STATES)}],
    )
    for reservation in rows:
        for row in reservation.get("Instances") or ():
            yield from _instance(row, region, zones)


def _instance(row: Mapping[str, Any], region: str, zones: Mapping[str, str]) -> Iterator[Instance]:
    tags = {tag.get("Key"): tag.get("Value", "") for tag in row.get("Tags") or ()}
    state = (row.get("State") or {}).get("Name", "")
    if TAG not in tags or state not in _STATES or not row.get("InstanceId"):
        return
    zone_name = (row.get("Placement") or {}).get("AvailabilityZone", "")
    launched = row.get("LaunchTime")
    kind = {"spot": CapacityType.SPOT, "capacity-block": CapacityType.RESERVED}.get(
        row.get("InstanceLifecycle", ""), CapacityType.ON_DEMAND
    )
    yield Instance(
        id=f"{region}/{row['InstanceId']}",
        provider=NAME,
        region=region,
        zone=zones.get(zone_name, zone_name) or None,
        instance_type=row.get("InstanceType", ""),
        key=tags[TAG],
        state=state,
        billed=state in _BILLED,
        since=launched.astimezone(UTC) if isinstance(launched, datetime) else None,
        capacity_type=kind,
        store=tags.get(STORE_TAG, ""),
    )


def terminate(login: AwsLogin, id: str) -> None:
    """End a machine (``region/i-…``, as in `tagged_instances`) for good. Idempotent: an unknown one is not an error.
    Raises what `AwsLogin.call` raises, and `Refused` for another form of name.
    """
    region, _, instance = id.partition("/")
    if not region or not instance.startswith("i-"):
        raise Refused(f"not the name of a machine: {id!r}", where=NAME, hint="expected region/i-…")
    try:
        login.call("ec2", region, "terminate_instances", InstanceIds=[instance])
    except Refused as error:
        if error.code != "InvalidInstanceID.NotFound":
            raise
