"""Contents of Azure machines: ``machines.toml``, read once on first use. Azure's prices name machines, not cards."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from broker.core.market.accelerators import card_share, is_part
from broker.core.market.offers import Interconnect
from providers.azure.settings import ENGINE
from providers.rows import RowRejected

_GPU_FAMILY = re.compile(r"Standard_N[A-Z]*\d", re.IGNORECASE)
_SAME_MACHINE = re.compile(r"_(?:noib|flex)(?=_)")  # suffixes of other ways of sale, and of machines without InfiniBand
_VCPUS = re.compile(r"Standard_[A-Z]+?(?:\d+-)?(\d+)[a-z]*_(?:\w+_)?v[3-9]")


@dataclass(frozen=True, slots=True)
class AzureMachine:
    """The contents of one machine: ``n`` cards, or one part of a card; no ``gpu`` for a CPU machine. ``retired``: the
    year Azure retired it.
    """

    gpu: str | None = None
    n: int = 0
    vcpus: float | None = None
    gib: float | None = None
    link: Interconnect | None = None
    retired: int | None = None

    @property
    def engine(self) -> str | None:
        """The engine that starts it. Of machines with a part of a card, SkyPilot knows those with an A10 (`fetch_azure`
        of 0.14); the others are compared but not started."""
        return None if is_part(self.gpu) and card_share(self.gpu)[0] != "A10" else ENGINE


def machine(instance_type: str) -> AzureMachine:
    """The table's entry, ignoring case and the suffixes `_noIB` and `_flex`; for CPU machines, the data in their name.

    Raises `RowRejected` for GPU machines that are not in the table.
    """
    machines = _tables()
    key = _SAME_MACHINE.sub("", instance_type.lower())
    if key in machines:
        return machines[key][1]
    if _GPU_FAMILY.match(instance_type):
        raise RowRejected("unknown_machine", instance_type)
    vcpus = _VCPUS.fullmatch(instance_type)
    return AzureMachine(vcpus=float(vcpus[1]) if vcpus else None)


def find_type(instance_type: str) -> str | None:
    """The table's spelling of a machine with accelerators; None for other machines. Azure's own spelling varies."""
    entry = _tables().get(instance_type.lower())
    return entry[0] if entry else None


def accelerated_types() -> tuple[str, ...]:
    """The instance types that the table knows and Azure has not retired, in the table's order."""
    return tuple(name for name, shape in _tables().values() if not shape.retired)


@cache
def _tables() -> dict[str, tuple[str, AzureMachine]]:
    document = tomllib.loads(files("providers.azure").joinpath("machines.toml").read_text("utf-8"))
    return {
        key.lower(): (key, AzureMachine(**{**row, "link": Interconnect(row["link"]) if "link" in row else None}))
        for key, row in document["machines"].items()
    }
