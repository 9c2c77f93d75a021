"""SkyPilot's ``vms.csv`` (skypilot-catalog, schema 5 and later): a row is a machine in a zone, with both its prices.

Pitfalls: the on-demand price repeats for every zone; Google's accelerators are priced separately from their machines,
so neither row is the price of something that can be rented; a part of a card counts as 0.125 (``L4-1of8`` here);
RunPod's ``H100`` is the PCIe card; Vast's memory of one card is that of all cards of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from broker.core.market.offers import CapacityType, Offer
from broker.core.values.accelerators import part_of
from providers.catalogue.fields import Cells
from providers.catalogue.layout import SKYPILOT_CLOUDS, About, ColumnLayout, card, offer
from providers.rows import Unfit, name, short

_NAME = re.compile(r"'Name':\s*'([^']{1,60})'")
_MEMORY = re.compile(r"'SizeInMiB':\s*(\d{3,7})\b", re.ASCII)
_TOTAL = re.compile(r"'TotalGpuMemoryInMiB':\s*(\d{3,8})\b", re.ASCII)
_GOOGLE_GPU_HOST = re.compile(r"[ag]\d[a-z]*-")


def _read(cells: Cells, about: About) -> Iterator[Offer | Unfit]:
    """The row's offers: on demand without a zone, because a list price applies to the region; spot with the zone."""
    listed, (count, parts) = cells.text("acceleratorname"), cells.count_or_part("acceleratorcount")
    if bool(listed) != bool(count):
        raise Unfit("malformed_row", f"{count} accelerators, called {short(listed)}")
    called = cells.text("instancetype")
    if not called and not listed.lower().startswith("tpu-"):
        raise Unfit("part_of_a_machine", f"{listed or 'nothing'}: priced apart from the machine it is in")
    if not listed and about.provider == "gcp" and _GOOGLE_GPU_HOST.match(called):
        raise Unfit("part_of_a_machine", f"{called}: the price without its accelerators")
    machine = name(called or listed, "InstanceType")
    region = name(cells.text("region"), "Region")
    zone = name(cells.text("availabilityzone") or region, "AvailabilityZone")
    found = _card(listed, cells.text("gpuinfo"), machine, count) if listed else None
    if found is not None and parts > 1:
        found = part_of(found, parts)
    if not cells.text("price") and not cells.text("spotprice"):
        raise Unfit("no_price", f"{machine} in {region}: no price")
    for kind, column, place in ((CapacityType.ON_DEMAND, "price", None), (CapacityType.SPOT, "spotprice", zone)):
        if not cells.text(column):
            continue
        try:
            yield offer(
                about,
                "skypilot",
                region=region,
                zone=place,
                instance_type=machine,
                accelerator=found,
                count=count,
                capacity_type=kind,
                price=cells.price(column, f"{machine} in {region}, {kind}"),
                cpus=cells.figure("vcpus"),
                memory_gib=cells.figure("memorygib"),
                engine="skypilot" if about.provider in SKYPILOT_CLOUDS else None,
            )
        except Unfit as error:
            yield error


def _card(listed: str, info: str, machine: str, count: int) -> str:
    """The column's name, made more exact by the name and the memory in ``GpuInfo`` (a Python literal)."""
    memory, total, told = _MEMORY.search(info), _TOTAL.search(info), _NAME.search(info)
    shared = count if memory and total and memory[1] == total[1] else 1
    gib = int(memory[1]) / 1024 / shared if memory else None
    return card(listed, memory_gib=gib, told=told[1] if told else "", machine=machine)


SKYPILOT = ColumnLayout(
    name="skypilot",
    needs=("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region"),
    knows=("vCPUs", "MemoryGiB", "GpuInfo", "SpotPrice", "AvailabilityZone"),
    read=_read,
)
