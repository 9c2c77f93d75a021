"""The accelerators of AWS instance types: ``machines.toml``, read once on first use.

AWS's price list counts GPUs without naming them.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from broker.core.errors import UnknownName
from broker.core.market.accelerators import canonical, part_of
from broker.core.market.offers import Interconnect
from providers.aws.settings import ENGINE
from providers.rows import RowRejected


@dataclass(frozen=True, slots=True)
class AwsMachine:
    """One instance type: ``count`` accelerators (canonical name), vCPUs, GiB of memory, and their interconnect.

    None: not known.
    """

    instance_type: str
    accelerator: str
    count: int
    cpus: float | None
    memory_gib: float | None
    interconnect: Interconnect | None

    @property
    def engine(self) -> str | None:
        """The engine that starts it. An UltraServer is compared but not started: it is many machines."""
        return None if is_ultraserver(self.instance_type) else ENGINE


def accelerated_types() -> tuple[str, ...]:
    """The instance types that become offers, in the table's order: those with accelerators of a known kind."""
    names = (name for name, row in _machines().items() if isinstance(row, AwsMachine))
    return tuple(name for name in names if not is_ultraserver(name))


def is_ultraserver(name: str) -> bool:
    """Whether it is an UltraServer, which is not an instance type of EC2 but many instances of one."""
    return name.startswith("u-")


def is_listed(instance_type: str) -> bool:
    """Whether the type is in the table, so not a CPU machine."""
    return instance_type in _machines()


def machine(instance_type: str) -> AwsMachine:
    """The type's entry in the table.

    Raises `RowRejected`: ``unknown_machine`` for a type that is not in the table, ``unknown_accelerator`` for one whose
    accelerator is unknown.
    """
    row = _machines().get(instance_type)
    if row is None:
        raise RowRejected("unknown_machine", f"{instance_type}: not in the table of AWS machines")
    if isinstance(row, RowRejected):
        raise RowRejected(row.reason, row.detail)
    return row


@cache
def _machines() -> dict[str, AwsMachine | RowRejected]:
    table = tomllib.loads(files("providers.aws").joinpath("machines.toml").read_text("utf-8"))
    return {
        name: _row(name, row, *shape)
        for family, row in table.items()
        for size, shape in row["sizes"].items()
        for name in [f"{family}.{size}" if size else family]
    }


def _row(
    instance_type: str, family: dict[str, str], count: float, cpus: float | None = None, memory_gib: float | None = None
) -> AwsMachine | RowRejected:
    raw_name = family["accelerator"]
    try:
        accelerator = canonical(raw_name, float(family["gib"]) if "gib" in family else None)
    except UnknownName:
        return RowRejected("unknown_accelerator", f"{instance_type}: {raw_name}")
    if count < 1:
        accelerator, count = part_of(accelerator, round(1 / count)), 1
    link = _link(family.get("link"), accelerator, count)
    return AwsMachine(instance_type, accelerator, int(count), cpus, memory_gib, link)


def _link(link: str | None, accelerator: str, count: float) -> Interconnect | None:
    if count == 1:
        return Interconnect.NONE
    if link is None and accelerator.startswith(("Trainium", "Inferentia")):
        return None  # NeuronLink is neither NVLink nor PCIe
    return Interconnect(link) if link else Interconnect.PCIE
