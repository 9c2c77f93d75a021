"""gpuhunt's catalogue files (versions 1 to 3): a row is a machine in one place with one capacity type.

Pitfalls: Google's places are zones, all others regions; only the memory distinguishes an A100 from an A100-80GB; a TPU
is ``tpu-v5p-8`` in old files, and ``v5p-8`` of the vendor ``google`` in new ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from broker.core.market.offers import CapacityType, Offer
from providers.catalogue.fields import Cells
from providers.catalogue.layout import About, ColumnLayout, card, offer, whole_or_part
from providers.rows import Unfit, name

_GOOGLE_ZONE = re.compile(r"([a-z]+-[a-z]+\d+)-[a-z]")
# The clouds for which gpuhunt and SkyPilot use the same names of machines.
_STARTED_BY_SKYPILOT = ("aws", "azure", "gcp", "oci")


def _read(cells: Cells, about: About) -> Iterator[Offer | Unfit]:
    machine, place = name(cells.text("instance_name"), "instance_name"), name(cells.text("location"), "location")
    zone = _GOOGLE_ZONE.fullmatch(place) if about.provider == "gcp" else None
    kind = CapacityType.SPOT if cells.flag("spot") else CapacityType.ON_DEMAND
    listed, count = cells.text("gpu_name"), cells.count("gpu_count")
    if count and not listed:
        raise Unfit("malformed_row", f"{machine}: {count} accelerators without a name")
    names = [f"tpu-{listed}", listed] if cells.text("gpu_vendor").lower() == "google" else [listed]
    memory = cells.figure("gpu_memory")
    found = whole_or_part(card(*names, memory_gib=memory, machine=machine), memory) if count else None
    yield offer(
        about,
        "gpuhunt",
        region=zone[1] if zone else place,
        zone=place,
        instance_type=machine,
        accelerator=found,
        count=count,
        capacity_type=kind,
        price=cells.price("price", f"{machine} in {place}, {kind}"),
        cpus=cells.figure("cpu"),
        memory_gib=cells.figure("memory"),
        engine="skypilot" if about.provider in _STARTED_BY_SKYPILOT else None,
    )


GPUHUNT = ColumnLayout(
    name="gpuhunt",
    needs=("instance_name", "location", "price", "gpu_count", "gpu_name", "spot"),
    knows=("cpu", "memory", "gpu_memory", "gpu_vendor"),
    read=_read,
)
