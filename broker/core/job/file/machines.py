"""The ``resources`` of a job file, in all of SkyPilot's forms, into the machines that would do; and back."""

from __future__ import annotations

from typing import Any

from broker.core.documents import Document, Path
from broker.core.errors import Problem
from broker.core.job.file.fields import Accelerators
from broker.core.job.file.schema import Machine, Resources
from broker.core.job.jobs import MachineRequest
from broker.core.market.offers import CapacityType
from broker.core.values.units import print_minimum

SPOT = (CapacityType.SPOT,)
NOT_SPOT = (CapacityType.OWNED, CapacityType.RESERVED, CapacityType.ON_DEMAND)
_PLACES = ("cloud", "region", "zone")


def machine_requests(
    resources: Resources, document: Document
) -> tuple[tuple[MachineRequest, ...], bool, list[Problem]]:
    """Acceptable machines, whether their order is a preference, and contradictions.

    Without ``any_of`` and ``ordered`` there is one machine per accelerator; with them, each entry inherits the keys
    beside the list and overrides them.
    """
    reading = _Reading(document)
    base = reading.given(resources, ("resources",))
    if resources.any_of and resources.ordered:
        reading.found(("resources", "ordered"), "give either `any_of` or `ordered`, not both")
        return (), False, reading.problems
    group, entries = ("any_of", resources.any_of) if resources.any_of else ("ordered", resources.ordered)
    if entries is None:
        wanted = base.get("accelerators")
        requests = reading.requests(base, ("resources",))
        return requests, bool(wanted and wanted.preferred), reading.problems
    found: list[MachineRequest] = []
    for index, entry in enumerate(entries):
        path: Path = ("resources", group, index)
        own = reading.given(entry, path)
        merged = base | own
        wanted = merged.get("accelerators")
        if wanted and len(wanted.machines) > 1 and (wanted.preferred or group == "ordered"):
            reading.found(
                (*path, "accelerators") if "accelerators" in own else ("resources", "accelerators"),
                f"several accelerators in an order do not go with `{group}`; give each its own entry there",
            )
            continue
        found += reading.requests(merged, path)
    return tuple(dict.fromkeys(found)), group == "ordered", reading.problems


class _Reading:
    """Turns checked sections into requests, collecting contradictions."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []

    def found(self, path: Path, message: str) -> None:
        self.problems.append(self.document.problem(path, message, at_key=True))

    def given(self, machine: Machine, path: Path) -> dict[str, Any]:
        """The fields named in one mapping, with two spellings of one thing reduced to one."""
        fields = {name: value for name, value in machine.given().items() if name in Machine.model_fields}
        for other, name in (("gpus", "accelerators"), ("use_spot", "capacity_types")):
            if other not in fields:
                continue
            if name in fields:
                self.found((*path, other), f"repeats `{name}`; give one of them")
            value = fields.pop(other)
            fields[name] = (SPOT if value else NOT_SPOT) if other == "use_spot" else value
        if "infra" in fields and any(place in fields for place in _PLACES):
            self.found((*path, "infra"), "repeats `cloud`, `region` and `zone`; give one or the other")
        return fields

    def requests(self, fields: dict[str, Any], path: Path) -> tuple[MachineRequest, ...]:
        # With a problem found already, this may be the same one.
        if "infra" in fields and any(place in fields for place in _PLACES) and not self.problems:
            self.found(path, "`infra` does not go with `cloud`, `region` or `zone` given beside the list")
        wanted: Accelerators | None = fields.get("accelerators")
        return tuple(
            MachineRequest(
                accelerator=accelerator,
                count=count,
                cpus=fields.get("cpus"),
                memory_gib=fields.get("memory"),
                instance_type=fields.get("instance_type"),
                infra=_infra(fields),
                capacity_types=fields.get("capacity_types", ()),
                disk_gib=fields.get("disk_size"),
                image=fields.get("image_id"),
            )
            for accelerator, count in (wanted.machines if wanted else ((None, 0),))
        )


def _infra(fields: dict[str, Any]) -> str | None:
    parts = fields["infra"].split("/") if "infra" in fields else [fields.get(place, "*") for place in _PLACES]
    parts[0] = parts[0].lower()
    while parts and parts[-1] == "*":
        parts.pop()
    return "/".join(parts) or None


def print_resources(requests: tuple[MachineRequest, ...], ordered: bool) -> dict[str, Any]:
    """The inverse of `machine_requests`."""
    machines = [_printed(request) for request in requests]
    if len(machines) == 1 and not ordered:
        return machines[0]
    return {"ordered" if ordered else "any_of": machines}


def _printed(request: MachineRequest) -> dict[str, Any]:
    use_spot = {SPOT: True, NOT_SPOT: False}.get(request.capacity_types)
    fields = {
        "accelerators": request.machine if request.accelerator else None,
        "cpus": request.cpus and print_minimum(request.cpus),
        "memory": request.memory_gib and print_minimum(request.memory_gib),
        "infra": request.infra,
        "instance_type": request.instance_type,
        "use_spot": use_spot,
        "capacity_types": [kind.value for kind in request.capacity_types] if use_spot is None else None,
        "disk_size": int(request.disk_gib) if request.disk_gib and request.disk_gib.is_integer() else request.disk_gib,
        "image_id": request.image,
    }
    return {name: value for name, value in fields.items() if value is not None and value != []}
