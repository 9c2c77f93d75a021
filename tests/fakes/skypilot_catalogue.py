"""The places and machines that SkyPilot 0.14.1 accepts, with a catalogue of one machine per cloud.

`write` stores that catalogue where the real SkyPilot reads its own; `check` refuses requests that the real one refused
with it. `tests/system/test_skypilot_places.py` makes the same requests to both.
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# By cloud: regions, zones by name, machines with the accelerators that the real SkyPilot finds in them.
_PLACES: Mapping[str, tuple[str, str]] = {
    "aws": ("us-east-1", "us-east-1a"),
    "gcp": ("us-central1", "us-central1-a"),
    "azure": ("eastus", ""),
    "runpod": ("US", "US-KS-2"),
    "oci": ("us-ashburn-1", "us-ashburn-1-AD-1"),
}
MACHINES: Mapping[str, Mapping[str, Mapping[str, int]]] = {
    "aws": {"p5.48xlarge": {"H100": 8}},
    "gcp": {"a3-megagpu-8g": {"H100-MEGA": 8}, "n1-standard-8": {}},
    "azure": {"Standard_NC40ads_H100_v5": {"H100": 1}},
    "runpod": {"1x_A100-80GB_SECURE": {"A100-80GB": 1}},
    "oci": {"VM.GPU.A10.1": {"A10": 1}},
}
COLUMNS = (
    "InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "Price", "Region", "GpuInfo",
    "SpotPrice", "AvailabilityZone",
)  # fmt: skip


def check(wanted: Mapping[str, Any]) -> None:
    """Raises the `ValueError` of the real SkyPilot for ``resources`` of a task with a region, zone or machine that the
    catalogue lacks. Clouds without instance types, and clouds not listed here, are not checked.
    """
    cloud, _, rest = str(wanted.get("infra", "")).partition("/")
    region, _, zone = rest.partition("/")
    if cloud not in _PLACES:
        return
    known_region, known_zone = _PLACES[cloud]
    if region and region != known_region:
        raise ValueError(f"Invalid region {region!r}")
    if zone and zone != known_zone:
        raise ValueError(f"Invalid zone {zone!r} for region {region!r}")
    machine = wanted.get("instance_type")
    if machine is not None and machine not in MACHINES[cloud]:
        raise ValueError(f"Invalid instance type {machine!r} for cloud {cloud}.")


def write(home: Path) -> None:
    """Write the catalogue as files below ``home/.sky``, with AWS zone IDs by the zone names of an account."""
    for cloud, machines in MACHINES.items():
        region, zone = _PLACES[cloud]
        zone = "use1-az6" if cloud == "aws" else zone
        rows: list[list[object]] = []
        for machine, cards in machines.items():
            ((card, count),) = cards.items() or [("", "")]
            apart = cloud == "gcp"  # its accelerators have separate rows
            built_in = ["", ""] if apart else [card, count]
            rows.append([machine, *built_in, 8, 64, 2.0, region, "" if apart else gpu_info(card, count), 1.0, zone])
            if apart and card:
                rows.append(["", card, count, "", "", 2.0, region, gpu_info(card, count), 1.0, zone])
        if cloud == "gcp":
            rows.append(["", "T4", 1, "", "", 0.4, region, gpu_info("T4", 1), 0.1, zone])
        write_file(home, f"{cloud}/vms.csv", COLUMNS, rows)
    write_common(home, {"us-east-1a": "use1-az6"})


def write_common(home: Path, zones: Mapping[str, str], cards: Mapping[str, str] | None = None) -> None:
    """The files that all clouds share: AWS zone IDs by an account's zone names, and accelerators with the cloud that
    has them.
    """
    names = ["AvailabilityZoneName", "AvailabilityZone"]
    write_file(home, "aws/az_mappings-default.csv", names, [[name, id] for name, id in zones.items()])
    known = {"H100": "AWS", "T4": "GCP"} if cards is None else cards
    rows = [[card, f"['{cloud}']"] for card, cloud in known.items()]
    write_file(home, "common/accelerators.csv", ["AcceleratorName", "Clouds"], rows)


def gpu_info(card: object, count: object) -> str:
    """The value of the column ``GpuInfo`` for a machine with those accelerators."""
    gpu = {"Name": card, "Manufacturer": "NVIDIA", "Count": count, "MemoryInfo": {"SizeInMiB": 81920}}
    return str({"Gpus": [gpu], "TotalGpuMemoryInMiB": 81920}) if card else ""


def write_file(home: Path, name: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write one file of the catalogue where SkyPilot reads it. Without a checksum file, SkyPilot downloads none."""
    place = home / ".sky" / "catalogs" / "v8" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
