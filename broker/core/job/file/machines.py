"""Converts the ``resources`` of a job file, in all of SkyPilot's forms, to acceptable machines, and back."""

from typing import Any

from broker.core.documents import Document, Path
from broker.core.errors import Problem
from broker.core.job.file.accelerator_requests import AcceleratorRequest, Accelerators, with_shared
from broker.core.job.file.schema import MachineSection, Resources
from broker.core.job.jobs import MachineRequest
from broker.core.market.accelerators import card_share, is_shared
from broker.core.market.offers import CapacityType
from broker.core.values.provider_names import provider_name
from broker.core.values.units import print_minimum

SPOT = (CapacityType.SPOT,)
NOT_SPOT = (CapacityType.OWNED, CapacityType.RESERVED, CapacityType.ON_DEMAND)
_PLACES = ("cloud", "region", "zone")
_CPU = AcceleratorRequest("", 0)


def machine_requests(
    resources: Resources, document: Document, *, default_types: tuple[CapacityType, ...] = ()
) -> tuple[tuple[MachineRequest, ...], bool, list[Problem]]:
    """The acceptable machines, whether their order is a preference, and the contradictions found.

    Without ``any_of`` and ``ordered`` there is one machine per accelerator. With them, each entry inherits and
    overrides the keys next to the list; null unsets one. ``default_types``: the capacity types of machines that state
    none (empty: any).
    """
    converter = _MachineConverter(document, default_types)
    base = converter.given(resources, ("resources",))
    if resources.any_of and resources.ordered:
        converter.found(("resources", "ordered"), "give either `any_of` or `ordered`, not both")
        return (), False, converter.problems
    group, entries = ("any_of", resources.any_of) if resources.any_of else ("ordered", resources.ordered)
    if entries is None:
        accelerators = base.get("accelerators")
        requests = converter.requests(base, ("resources",))
        return requests, bool(accelerators and accelerators.preferred), converter.problems
    machines: list[MachineRequest] = []
    for index, entry in enumerate(entries):
        path: Path = ("resources", group, index)
        own = converter.given(entry, path)
        merged = base | own
        if base.get("labels") and own.get("labels"):
            merged["labels"] = tuple(sorted((dict(base["labels"]) | dict(own["labels"])).items()))
        accelerators = merged.get("accelerators")
        if accelerators and len(accelerators.requests) > 1 and (accelerators.preferred or group == "ordered"):
            converter.found(
                (*path, "accelerators") if "accelerators" in own else ("resources", "accelerators"),
                f"several accelerators in an order cannot be combined with `{group}`; give each its own entry there",
            )
            continue
        machines += converter.requests(merged, path)
    return tuple(dict.fromkeys(machines)), group == "ordered", converter.problems


class _MachineConverter:
    """Converts validated sections to requests and collects contradictions."""

    def __init__(self, document: Document, default_types: tuple[CapacityType, ...]) -> None:
        self.document = document
        self.default_types = default_types
        self.problems: list[Problem] = []

    def found(self, path: Path, message: str) -> None:
        self.problems.append(self.document.problem(path, message, at_key=True))

    def given(self, machine: MachineSection, path: Path) -> dict[str, Any]:
        """The fields given in one mapping, with alternative spellings reduced to one."""
        fields = {name: value for name, value in machine.given().items() if name in MachineSection.model_fields}
        for other, name in (("gpus", "accelerators"), ("use_spot", "capacity_types")):
            if other not in fields:
                continue
            if name in fields:
                self.found((*path, other), f"repeats `{name}`; give one of them")
            value = fields.pop(other)
            fields[name] = (SPOT if value else NOT_SPOT) if other == "use_spot" and value is not None else value
        if _has_two_places(fields):
            self.found((*path, "infra"), "repeats `cloud`, `region` and `zone`; give one or the other")
        return fields

    def requests(self, fields: dict[str, Any], path: Path) -> tuple[MachineRequest, ...]:
        # If a problem was found already, this may be the same one.
        if _has_two_places(fields) and not self.problems:
            self.found(path, "`infra` cannot be combined with `cloud`, `region` or `zone` outside the list")
        accelerators: Accelerators | None = fields.get("accelerators")
        requests = accelerators.requests if accelerators else ()
        shared = next((request.name for request in requests if is_shared(request.name)), "")
        if fields.get("sharing"):
            accelerators = self._sharing(accelerators, fields, path)
        elif shared:
            message = f"nothing keeps programs on a card apart in `{shared}`: add `sharing: soft`"
            self.found((*path, "accelerators"), message)
        return tuple(
            MachineRequest(
                accelerator=request.name or None,
                count=request.count,
                at_least=request.at_least,
                cpus=fields.get("cpus"),
                memory_gib=fields.get("memory"),
                instance_type=fields.get("instance_type"),
                infra=infra,
                capacity_types=self.default_types if fields.get("capacity_types") is None else fields["capacity_types"],
                disk_gib=fields.get("disk_size"),
                disk_tier=fields.get("disk_tier"),
                network_tier=fields.get("network_tier"),
                image=image,
                ports=fields.get("ports") or (),
                labels=fields.get("labels") or (),
            )
            for request in (accelerators.requests if accelerators else (_CPU,))
            for infra, image in self._images(fields, path)
        )

    def _sharing(self, accelerators: Accelerators | None, fields: dict[str, Any], path: Path) -> Accelerators | None:
        """The accelerators with the parts that software shares."""
        place = (_infra(fields) or "*").partition("/")[0]
        try:
            if place not in ("*", "slurm"):
                name = card_share(accelerators.requests[0].name)[0] if accelerators else "H100"
                raise ValueError(
                    f"works on an owned Slurm cluster with shards alone, and not on {place}: delete the line for parts"
                    f" that hardware cuts, or write `accelerators: {name}:1` for a whole card"
                )
            return with_shared(accelerators or Accelerators(()))
        except ValueError as error:
            self.found((*path, "sharing"), str(error))
            return accelerators

    def _images(self, fields: dict[str, Any], path: Path) -> list[tuple[str | None, str | None]]:
        """The place and the image; several pairs if the image depends on the region."""
        image, infra = fields.get("image_id"), _infra(fields)
        if not isinstance(image, dict):
            return [(infra, image)]
        provider, region, *zone = [*(infra or "*").split("/"), "*"][:3]
        if zone == ["*"]:
            zone = []
        pairs: list[tuple[str | None, str | None]] = [
            ("/".join([provider, name, *zone]), of_region) for name, of_region in image.items() if region in ("*", name)
        ]
        if not pairs:
            self.found((*path, "image_id"), f"has no image for the region {region}; add a line `{region}: IMAGE`")
        return pairs


def _has_two_places(fields: dict[str, Any]) -> bool:
    return bool(fields.get("infra")) and any(fields.get(place) for place in _PLACES)


def _infra(fields: dict[str, Any]) -> str | None:
    infra = fields.get("infra")
    parts = infra.split("/") if infra else [fields.get(place) or "*" for place in _PLACES]
    parts[0] = provider_name(parts[0].lower())
    while parts and parts[-1] == "*":
        parts.pop()
    return "/".join(parts) or None


def print_resources(requests: tuple[MachineRequest, ...], ordered: bool) -> dict[str, Any]:
    """The inverse of `machine_requests`."""
    machines = [_print_machine(request) for request in requests]
    if len(machines) == 1 and not ordered:
        return machines[0]
    return {"ordered" if ordered else "any_of": machines}


def _print_machine(request: MachineRequest) -> dict[str, Any]:
    use_spot = {SPOT: True, NOT_SPOT: False}.get(request.capacity_types)
    fields = {
        "accelerators": request.machine if request.accelerator else None,
        "sharing": "soft" if is_shared(request.accelerator) else None,
        "cpus": request.cpus and print_minimum(request.cpus),
        "memory": request.memory_gib and print_minimum(request.memory_gib),
        "infra": request.infra,
        "instance_type": request.instance_type,
        "use_spot": use_spot,
        "capacity_types": [kind.value for kind in request.capacity_types] if use_spot is None else None,
        "disk_size": int(request.disk_gib) if request.disk_gib and request.disk_gib.is_integer() else request.disk_gib,
        "disk_tier": request.disk_tier and request.disk_tier.value,
        "network_tier": request.network_tier and request.network_tier.value,
        "image_id": request.image,
        "ports": list(request.ports),
        "labels": dict(request.labels),
    }
    return {name: value for name, value in fields.items() if value is not None and value not in ([], {})}
