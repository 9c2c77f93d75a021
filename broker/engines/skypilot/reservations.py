"""Launches into bought capacity: inside the named reservations, or not at all.

If a reservation lacks room, SkyPilot launches the rest outside of it, at the on-demand price. So the room is queried
before the launch, and the place of the machines afterwards. Only on AWS, where a capacity block is a reservation, too.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from broker.core.errors import BrokerError, NoCapacity, TryAnotherOffer
from broker.core.market.capacity import TAG, MachineOutside
from broker.engines.detached import Slot
from broker.engines.skypilot.machine_ends import ec2

log = logging.getLogger(__name__)
OUTSIDE = "outside.json"  # in the slot of a launch: its machines outside bought capacity
_PURPOSE = "launching into a reservation"
# A machine that is ending occupies no room, and is ignored.
_EXISTING = frozenset({"pending", "running", "stopping", "stopped"})


def reservation_settings(reservations: Sequence[str]) -> dict[str, Any]:
    """SkyPilot's settings for a launch into these reservations."""
    return {"aws": {"specific_reservations": list(reservations)}} if reservations else {}


def check_room(cloud: str | None, region: str, reservations: Sequence[str], machines: int) -> None:
    """Raises `NoCapacity` unless the reservations are active and have room for ``machines`` machines, `TryAnotherOffer`
    on a cloud for which SkyPilot has no such setting, and what `ec2` raises.
    """
    if cloud != "aws":
        raise TryAnotherOffer(f"gpubroker cannot pass reservations to SkyPilot on {cloud}", where="skypilot")
    # By filter and not by id: an unknown id would raise an error.
    filters = [{"Name": "capacity-reservation-id", "Values": list(reservations)}]
    rows = ec2(region, "DescribeCapacityReservations", _PURPOSE, Filters=filters).get("CapacityReservations") or ()
    free = sum(int(row.get("AvailableInstanceCount") or 0) for row in rows if row.get("State") == "active")
    if free < machines:
        states = (
            ", ".join(f"{row.get('CapacityReservationId')} is {row.get('State')}" for row in rows) or "none is known"
        )
        raise NoCapacity(
            f"the bought capacity has {free} free machines, {machines} are needed ({states})",
            where=f"aws {region} {', '.join(reservations)}",
            hint="nothing is launched outside of it; `gpubroker capacity purchases` has its period",
        )


def check_outside(slot: Slot, key: str, now: datetime) -> str:
    """The fault of a launch into bought capacity with machines outside of it; empty if it has none, or while EC2 does
    not answer.

    Stores these machines in the slot, each with the time from which it is billed: ``now`` (UTC) if EC2 does not tell.
    More of them may appear while they are being ended.
    """
    launch = slot.read("launch.json") or {}
    reservations = launch.get("reservations")
    if not reservations or slot.read("inside.json") is not None:
        return ""
    stored = slot.read(OUTSIDE) or {}
    known_machines = {item["id"]: item for item in stored.get("machines", ())}
    if len(known_machines) >= int(launch["nodes"]):
        return str(stored["failure"])
    try:
        outside_machines, inside = machines_outside(key, str(launch["region"]), now)
    except BrokerError as error:
        log.warning("whether the machines of %s are in %s is not known: %s", key, ", ".join(reservations), error)
        return str(stored.get("failure", ""))
    new_rows = {
        item.id: {"id": item.id, "since": item.since.isoformat()}
        for item in outside_machines
        if item.id not in known_machines
    }
    if new_rows:
        known_machines |= new_rows
        failure = (
            f"{', '.join(known_machines)} came outside of the bought capacity {', '.join(reservations)}; all are ended"
        )
        record = {"status": "failed", "failure": failure, "refused": False, "machines": list(known_machines.values())}
        slot.write(OUTSIDE, record)
        return failure
    if not stored and inside >= int(launch["nodes"]):
        slot.keep_first("inside.json", {"machines": inside})
    return str(stored.get("failure", ""))


def machines_outside(key: str, region: str, now: datetime) -> tuple[list[MachineOutside], int]:
    """The machines of that key that are in no reservation, and so cost the on-demand price, and the number of the
    others. A machine of an open reservation may be in another reservation of the account, as EC2 chooses; that one is
    paid for, too. Raises what `ec2` raises.
    """
    tag = [{"Name": f"tag:{TAG}", "Values": [key]}]
    answer = ec2(region, "DescribeInstances", _PURPOSE, Filters=tag)
    machines = [instance for part in answer.get("Reservations") or () for instance in part.get("Instances") or ()]
    existing = [instance for instance in machines if _state(instance) in _EXISTING]
    found_outside = [
        MachineOutside(str(instance.get("InstanceId")), instance.get("LaunchTime") or now)
        for instance in existing
        if not instance.get("CapacityReservationId")
    ]
    return found_outside, len(existing) - len(found_outside)


def _state(machine: Mapping[str, Any]) -> str:
    return str((machine.get("State") or {}).get("Name") or "")
