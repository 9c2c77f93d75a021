"""A market drawn from a seed that has what task files ask for, as offers here and as SkyPilot's catalogue: the same
machines at the same places and prices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

from broker.core.errors import UnknownName
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.accelerators import canonical, lookup
from broker.core.values.money import Money
from tests.fakes import skypilot_catalogue

PLACES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "aws": {"us-east-1": ("us-east-1a",), "us-west-2": ("us-west-2a",)},
    "gcp": {"us-central1": ("us-central1-a",)},
    "azure": {"eastus": ()},
    "lambda": {"us-east-1": ()},
    "runpod": {"US": ("US-KS-2",)},
    "nebius": {"eu-north1": ()},
    "kubernetes": {"cluster": ()},
}
WITHOUT_CATALOGUE = frozenset({"kubernetes"})  # SkyPilot asks the cluster itself
COUNTS = (1, 4, 8)
OTHER_CARDS = ("T4", "L40S", "H200")  # beside those that the files name
CPUS = (2, 4, 8, 16, 32, 64, 128)
# What the machines are that files name by their type; others have no accelerators.
NAMED: Mapping[str, tuple[str, int]] = {
    "p3.2xlarge": ("V100", 1),
    "p4d.24xlarge": ("A100", 8),
    "p5.48xlarge": ("H100", 8),
    "p5en.48xlarge": ("H200", 8),
    "g4dn.xlarge": ("T4", 1),
    "g5.xlarge": ("A10G", 1),
    "inf2.8xlarge": ("Inferentia", 2),
    "trn1.32xlarge": ("Trainium", 16),
    "a3-megagpu-8g": ("H100-MEGA", 8),
    "a3-highgpu-8g": ("H100", 8),
}


@dataclass
class Wanted:
    """The places and machine types that files name, by cloud, and their further accelerators."""

    places: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    machines: dict[str, set[str]] = field(default_factory=dict)
    counts: set[tuple[str, int]] = field(default_factory=set)

    def add(self, resources: object) -> None:
        """What one ``resources`` of a file names; anything that is not as expected is left out."""
        if not isinstance(resources, dict):
            return
        for entry in [resources, *_list(resources.get("any_of")), *_list(resources.get("ordered"))]:
            if isinstance(entry, dict):
                self._entry({**{k: v for k, v in resources.items() if k in _PLACE_KEYS}, **entry})

    def _entry(self, entry: Mapping[str, Any]) -> None:
        cloud, region, zone = [*str(entry.get("infra") or "").split("/"), "", "", ""][:3]
        cloud = (cloud or str(entry.get("cloud") or "")).lower()
        cloud = {"k8s": "kubernetes"}.get(cloud, cloud)
        region, zone = region or str(entry.get("region") or ""), zone or str(entry.get("zone") or "")
        machine = entry.get("instance_type")
        for one in [cloud] if cloud and cloud != "*" else list(PLACES):
            if machine:
                self.machines.setdefault(one, set()).add(str(machine))
            images = entry.get("image_id")
            for place in [region, *(images if isinstance(images, dict) else [])]:
                if place and place != "*" and (cloud or place in PLACES.get(one, {})):
                    self.places.setdefault(one, {}).setdefault(place, set()).update({zone} - {"", "*"})
        given = entry.get("accelerators") or entry.get("gpus")
        for name, count in _accelerators(given):
            self.counts.add((name, count))


_PLACE_KEYS = ("infra", "cloud", "region", "zone")


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _accelerators(given: object) -> Iterator[tuple[str, int]]:
    items: list[Any] = [given] if isinstance(given, str) else list(given) if isinstance(given, list | dict) else []
    for item in items:
        name, _, count = str(item).partition(":")
        count = str(given[item]) if isinstance(given, dict) and given[item] is not None else count
        try:
            yield canonical(name.strip()), int(float(count.strip().rstrip("+") or 1)) or 1
        except (ValueError, UnknownName):
            continue


@dataclass(frozen=True, slots=True)
class SeededMachine:
    """One machine at one place: of a cloud, on demand and spot."""

    cloud: str
    region: str
    zone: str
    name: str
    card: str | None
    count: int
    cpus: int
    memory: int
    price: float
    spot: float


def machines(seed: int, wanted: Wanted) -> list[SeededMachine]:
    """The accelerators that files name and some others, in the sizes named and others, at every place."""
    random = Random(seed)
    kinds: list[tuple[str, str | None, int, int, int]] = [(f"cpu-{cpus}", None, 0, cpus, 8 * cpus) for cpus in CPUS]
    named = {card for card, _ in wanted.counts} | set(OTHER_CARDS)
    counts = {(card, count) for card in named if lookup(card).slice_chips is None for count in COUNTS} | wanted.counts
    for card, count in sorted(counts):
        kinds.append((f"{card.lower()}-x{count}", card, count, 16 * count, 160 * count))
        kinds.append((f"{card.lower()}-x{count}-large", card, count, max(128, 32 * count), max(1024, 256 * count)))
    found = []
    for cloud in sorted({*PLACES, *wanted.places, *wanted.machines}):
        places: dict[str, set[str]] = {region: set(zones) for region, zones in PLACES.get(cloud, {}).items()}
        for region, zones in wanted.places.get(cloud, {}).items():
            places.setdefault(region, set()).update(zones)
        own = [
            (name, *NAMED.get(name, (None, 0)), 96, 1152)
            for name in sorted(wanted.machines.get(cloud, ()))
            if name not in {kind[0] for kind in kinds}
        ]
        for region, zones in sorted(places.items()):
            for zone in sorted(zones) or [""]:
                for name, card, count, cpus, memory in [*kinds, *own]:
                    price = (0.05 * cpus + 2.0 * count) * random.uniform(0.6, 1.6)
                    spot = price * random.uniform(0.2, 0.7)
                    found.append(SeededMachine(cloud, region, zone, name, card, count, cpus, memory, price, spot))
    return found


def offers(of: list[SeededMachine], now: datetime) -> list[Offer]:
    """Them as offers that SkyPilot can launch, live at ``now``."""
    return [
        Offer(
            provider=one.cloud,
            region=one.region,
            zone=one.zone or None,
            instance_type=one.name,
            accelerator=one.card,
            count=one.count,
            capacity_type=kind,
            price=Money.usd(f"{price:.4f}"),
            as_of=now,
            source="seeded",
            cpus=one.cpus,
            memory_gib=one.memory,
            availability=Availability.AVAILABLE,
            engine="skypilot",
        )
        for one in of
        for kind, price in ((CapacityType.ON_DEMAND, one.price), (CapacityType.SPOT, one.spot))
    ]


def write_catalogue(of: list[SeededMachine], home: Path) -> None:
    """Them as SkyPilot's catalogue below ``home``."""
    for cloud in {one.cloud for one in of} - WITHOUT_CATALOGUE:
        rows: list[list[object]] = []
        zoned = any(one.zone for one in of if one.cloud == cloud)
        for one in of:
            if one.cloud != cloud:
                continue
            info = skypilot_catalogue.gpu_info(one.card, one.count) if one.card else ""
            apart = cloud == "gcp" and one.card and not one.name.startswith("a3")
            place = [one.price, one.region, "" if apart else info, one.spot, *([one.zone] if zoned else [])]
            card = ["", ""] if apart or not one.card else [one.card, one.count]
            rows.append([one.name, *card, one.cpus, one.memory, *place])
            if apart:
                rows.append(["", one.card, one.count, "", "", one.price, one.region, info, one.spot, one.zone])
        columns = skypilot_catalogue.COLUMNS[: None if zoned else -1]
        skypilot_catalogue.write_file(home, f"{cloud}/vms.csv", columns, rows)
    zones = {one.zone: one.zone for one in of if one.cloud == "aws" and one.zone}
    skypilot_catalogue.write_common(home, zones, {one.card: "AWS" for one in of if one.card})
