"""Machines of the project with gpubroker's label, and their deletion.

Whatever starts machines on Google Cloud for gpubroker sets the labels ``gpubroker`` (the attempt's key) and
``gpubroker-store`` (the id of the requesting store).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from broker.core.errors import Refused
from broker.core.market.capacity import Instance
from broker.core.market.machines import STORE_TAG, TAG
from broker.core.market.offers import CapacityType, SkippedRow
from providers.gcp.calls import GcpCaller, ListMethod, last, region_of, utc
from providers.gcp.refusals import NotFound
from providers.gcp.settings import NAME

_INSTANCES = ListMethod("InstancesClient", "aggregated_list", "InstanceAggregatedList", "instances", scoped=True)
_PER_PAGE = 500
# Cores and GPUs cost in these states; a stopped machine ("TERMINATED", still there) is billed for its disks only.
_BILLED = ("RUNNING", "STOPPING", "PENDING_STOP", "SUSPENDING", "REPAIRING", "DEPROVISIONING")
_KINDS = {"SPOT": CapacityType.SPOT, "RESERVATION_BOUND": CapacityType.RESERVED}
_ID = re.compile(r"([a-z]+-[a-z]+\d+-[a-z0-9]+)/([a-z][-a-z0-9]{0,62})")


def labelled(asking: GcpCaller) -> Iterator[Instance]:
    """Labelled machines of all zones. Raises what `GcpCaller.rows` raises."""
    rows = asking.rows(_INSTANCES, project=asking.login.project, filter=f"labels.{TAG}:*", max_results=_PER_PAGE)
    for found in rows:
        if isinstance(found, SkippedRow) or TAG not in found.row.labels or not found.row.name:
            continue
        row, zone = found.row, found.place
        kind = CapacityType.SPOT if row.scheduling.preemptible else CapacityType.ON_DEMAND
        yield Instance(
            id=f"{zone}/{row.name}",
            provider=NAME,
            region=region_of(zone),
            zone=zone,
            instance_type=last(row.machine_type),
            key=row.labels[TAG],
            state=row.status,
            billed=row.status in _BILLED,
            since=utc(row.last_start_timestamp) or utc(row.creation_timestamp),
            capacity_type=_KINDS.get(row.scheduling.provisioning_model, kind),
            store=row.labels.get(STORE_TAG, ""),
        )


def terminate(asking: GcpCaller, id: str) -> None:
    """Delete a machine (``zone/name``, as in `labelled`). Idempotent: a missing one is no error. Does not wait. Raises
    what `GcpCaller.call` raises, and `Refused` for another form of name.
    """
    parts = _ID.fullmatch(id)
    if parts is None:
        raise Refused(f"not the name of a machine: {id!r}", where=NAME, hint="expected zone/name")
    try:
        asking.call(
            "InstancesClient", "delete_unary", parts[1], project=asking.login.project, zone=parts[1], instance=parts[2]
        )
    except NotFound:
        return
