"""Google's names for accelerators and machines: ``accelerators.toml``, read once on first use."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from broker.core.market.offers import Interconnect

_SSD_GIB = 375  # of one local SSD: "About Local SSD disks"


@dataclass(frozen=True, slots=True)
class Family:
    """Common properties of machines with one name prefix; see the head of ``accelerators.toml``."""

    parts: str
    link: str | None = None
    on_demand: bool = True
    ssd_gib: int = _SSD_GIB
    whole_cpus: int = 0


def family_of(machine_type: str) -> Family | None:
    """The family of a machine type, by the longest beginning of its name; None for machines without accelerators and
    for unknown families."""
    words = machine_type.split("-")
    for length in range(len(words), 0, -1):
        if (family := _families().get("-".join(words[:length]))) is not None:
            return family
    return None


def link_of(family: Family, accelerator_type: str, count: int) -> Interconnect | None:
    """Link between the cards of one machine; None for TPUs, which have one of their own. V100s on N1 machines are
    joined by NVLink ("GPU machine types", N1)."""
    if is_chip(accelerator_type):
        return None
    if count == 1:
        return Interconnect.NONE
    if family.link == "nvlink" or accelerator_type == "nvidia-tesla-v100":
        return Interconnect.NVLINK
    return Interconnect.PCIE


def attachable(accelerator_type: str) -> Mapping[int, tuple[int, int]]:
    """How many such GPUs an N1 machine may have → up to how many vCPUs and GiB it may then have; empty for GPUs that
    are not attached."""
    limits = _table()["attachable"].get(accelerator_type, {})
    return {int(count): (cpus, gib) for count, (cpus, gib) in limits.items()}


@cache
def sku_names() -> Mapping[frozenset[str], str]:
    """The words by which SKUs name an accelerator → its type."""
    return {
        frozenset(words.split()): accelerator_type
        for accelerator_type, row in _table()["types"].items()
        for words in row["sku"]
    }


@cache
def slice_names() -> Mapping[frozenset[str], str]:
    """The words of SKUs of a whole machine's share of one TPU chip → its type; of one eighth of a card → `eighth`."""
    chips = {words: name for words, name in sku_names().items() if _table()["types"][name].get("whole")}
    return chips | {frozenset(words.split()): eighth(name) for name, words in _table()["eighths"].items()}


def eighth(accelerator_type: str) -> str:
    """The accelerator of a SKU for an eighth of such a card."""
    return f"{accelerator_type}/8"


def is_chip(accelerator_type: str) -> bool:
    """Whether it is a TPU, priced by the chip with its share of the machine."""
    return bool(_table()["types"].get(accelerator_type, {}).get("whole"))


@cache
def families_in_skus() -> frozenset[str]:
    """The family names of machines with accelerators in SKUs."""
    return frozenset(family.parts for family in _families().values())


@cache
def quota_names() -> Mapping[str, str]:
    """The name of a quota on an accelerator → its type."""
    rows = _table()["types"].items()
    return {row["quota"]: accelerator_type for accelerator_type, row in rows if "quota" in row}


@cache
def _families() -> Mapping[str, Family]:
    return {name: Family(**row) for name, row in _table()["machines"].items()}


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files("providers.gcp").joinpath("accelerators.toml").read_text("utf-8"))
