"""Catalogue files in the three layouts, with the irregularities of the published ones."""

import csv
import io

GPU_INFO = (
    "{{'Gpus': [{{'Name': '{name}', 'Manufacturer': 'NVIDIA', 'Count': {count}, "
    "'MemoryInfo': {{'SizeInMiB': {mib}}}}}], 'TotalGpuMemoryInMiB': {total}}}"
)
SKYPILOT_COLUMNS = (
    "InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "GpuInfo", "Price", "SpotPrice",
    "Region", "AvailabilityZone",
)  # fmt: skip
GPUHUNT_COLUMNS = (
    "instance_name", "location", "price", "cpu", "memory", "gpu_count", "gpu_name", "gpu_memory", "spot", "disk_size",
    "gpu_vendor", "flags", "cpu_arch", "provider_data",
)  # fmt: skip
OURS_COLUMNS = (
    "provider", "region", "zone", "instance_type", "accelerator", "count", "capacity_type", "term_months",
    "price_per_hour", "availability", "unavailable_because", "as_of", "source", "engine", "money", "cpus",
    "memory_gib", "interconnect", "reference",
)  # fmt: skip


def gpu_info(name: str, count: float, gib: int) -> str:
    """The value of SkyPilot's column of that name: a Python literal."""
    return GPU_INFO.format(name=name, count=count, mib=gib * 1024, total=int(gib * 1024 * count))


SKYPILOT_ROWS = [
    ["p4d.24xlarge", "A100", "8.0", "96.0", "1152.0", gpu_info("A100", 8.0, 40), "32.7726", "9.8318", "us-east-1",
     "us-east-1a"],
    ["p4d.24xlarge", "A100", "8.0", "96.0", "1152.0", gpu_info("A100", 8.0, 40), "32.7726", "9.9001", "us-east-1",
     "us-east-1b"],
    ["p5.48xlarge", "H100", "8.0", "192.0", "2048.0", gpu_info("H100", 8.0, 80), "98.32000000000001", "", "us-east-2",
     "us-east-2a"],
    ["g6.xlarge", "L4", "1.0", "4.0", "16.0", gpu_info("L4", 1.0, 22), "0.8048", "0.3121", "eu-west-1", "eu-west-1c"],
    ["c6i.large", "", "", "2.0", "4.0", "", "0.085", "0.0331", "us-east-1", "us-east-1a"],
]  # fmt: skip
GPUHUNT_ROWS = [
    ["ND96amsr_A100_v4", "eastus", "32.77", "96", "1900.0", "8", "A100", "80.0", "False", "", "nvidia", "", "x86",
     "{}"],
    ["ND96asr_v4", "eastus", "27.197", "96", "900.0", "8", "A100", "40.0", "False", "", "nvidia", "", "x86", "{}"],
    ["NC40ads_H100_v5", "westus", "2.0940000000000003", "40", "320.0", "1", "H100NVL", "94.0", "True", "", "nvidia",
     "", "x86", "{}"],
    ["E4s_v5", "eastus", "0.252", "4", "32.0", "0", "", "", "False", "", "", "", "x86", "{}"],
]  # fmt: skip
OURS_ROWS = [
    ["acme", "north", "", "big-8", "H100", "8", "on_demand", "", "19.92", "available", "", "2026-11-19T08:00:00Z", "",
     "", "cash", "192", "2048", "nvlink", "False"],
    ["acme", "north", "n1", "big-8", "H100", "8", "spot", "", "9.5", "unavailable", *[""] * 9],
    ["acme", "north", "", "big-8", "H100", "8", "reserved", "12", "14.25", "", "", "", "quote-2026-11", *[""] * 6],
    ["", "south", "", "cpu-4", "", "0", "on_demand", "", "0.2", *[""] * 6, "4", "16", "", ""],
]  # fmt: skip


def table(columns: tuple[str, ...] | list[str], rows: list[list[str]]) -> str:
    """The text of the file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([list(columns), *rows])
    return text.getvalue()
