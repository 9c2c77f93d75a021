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
from providers.catalogue.layout import SKYPILOT_CLOUDS, ColumnLayout, RowContext, card, offer
from providers.rows import RowRejected, name, short

_NAME = re.compile(r"'Name':\s*'([^']{1,60})'")
_MEMORY = re.compile(r"'SizeInMiB':\s*(\d{3,7})\b", re.ASCII)
_TOTAL = re.compile(r"'TotalGpuMemoryInMiB':\s*(\d{3,8})\b", re.ASCII)
_GOOGLE_GPU_HOST = re.compile(r"[ag]\d[a-z]*-")


def _read_row(cells: Cells, context: RowContext) -> Iterator[Offer | RowRejected]:
    """The row's offers: on demand without a zone, because a list price applies to the region; spot with the zone."""
    accelerator_name, (count, parts) = cells.text("acceleratorname"), cells.count_or_part("acceleratorcount")
    if bool(accelerator_name) != bool(count):
        raise RowRejected("malformed_row", f"{count} accelerators, called {short(accelerator_name)}")
    type_name = cells.text("instancetype")
    if not type_name and not accelerator_name.lower().startswith("tpu-"):
        raise RowRejected(
            "part_of_a_machine", f"{accelerator_name or 'nothing'}: priced apart from the machine it is in"
        )
    if not accelerator_name and context.provider == "gcp" and _GOOGLE_GPU_HOST.match(type_name):
        raise RowRejected("part_of_a_machine", f"{type_name}: the price without its accelerators")
    machine = name(type_name or accelerator_name, "InstanceType")
    region = name(cells.text("region"), "Region")
    zone = name(cells.text("availabilityzone") or region, "AvailabilityZone")
    card_name = _card(accelerator_name, cells.text("gpuinfo"), machine, count) if accelerator_name else None
    if card_name is not None and parts > 1:
        card_name = part_of(card_name, parts)
    if not cells.text("price") and not cells.text("spotprice"):
        raise RowRejected("no_price", f"{machine} in {region}: no price")
    for kind, column, place in ((CapacityType.ON_DEMAND, "price", None), (CapacityType.SPOT, "spotprice", zone)):
        if not cells.text(column):
            continue
        try:
            yield offer(
                context,
                "skypilot",
                region=region,
                zone=place,
                instance_type=machine,
                accelerator=card_name,
                count=count,
                capacity_type=kind,
                price=cells.price(column, f"{machine} in {region}, {kind}"),
                cpus=cells.figure("vcpus"),
                memory_gib=cells.figure("memorygib"),
                engine="skypilot" if context.provider in SKYPILOT_CLOUDS else None,
            )
        except RowRejected as error:
            yield error


def _card(accelerator_name: str, info: str, machine: str, count: int) -> str:
    """The column's name, made more exact by the name and the memory in ``GpuInfo`` (a Python literal)."""
    memory, total, description = _MEMORY.search(info), _TOTAL.search(info), _NAME.search(info)
    sharing = count if memory and total and memory[1] == total[1] else 1
    gib = int(memory[1]) / 1024 / sharing if memory else None
    return card(accelerator_name, memory_gib=gib, description=description[1] if description else "", machine=machine)


SKYPILOT = ColumnLayout(
    name="skypilot",
    needs=("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region"),
    knows=("vCPUs", "MemoryGiB", "GpuInfo", "SpotPrice", "AvailabilityZone"),
    read=_read_row,
)
