"""The machines with accelerators in each zone: machine types, and N1 machines with attached GPUs."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

from broker.core.market.accelerators import lookup, part_of
from broker.core.market.offers import Interconnect, SkippedRow
from providers.gcp.accelerators import Family, attachable, eighth, family_of, is_chip, link_of
from providers.gcp.calls import GcpCaller, ListMethod, region_of, resource_name
from providers.gcp.settings import GcpSettings
from providers.rows import RowRejected, accelerator, name, short, whole

_MACHINES = ListMethod(
    "MachineTypesClient", "aggregated_list", "MachineTypeAggregatedList", "machineTypes", scoped=True
)
_ACCELERATORS = ListMethod(
    "AcceleratorTypesClient", "aggregated_list", "AcceleratorTypeAggregatedList", "acceleratorTypes", scoped=True
)
_PER_PAGE = 500  # the maximum of any machine
# What is left out from the start: families without accelerators, four fifths of the list. Only to save calls.
_CPU_FAMILIES = "c2|c2d|c3|c3d|c4|c4a|c4d|c4n|e2|f1|g1|h3|h4d|m1|m2|m3|m4|m4n|n2|n2d|n4|n4a|n4d|t2a|t2d|x4|z3"
_NAME_FILTER = f'name ne "({_CPU_FAMILIES})-.*"'
_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z0-9]+")
_ACCELERATOR = re.compile(r"(?:nvidia|amd|ct|tpu|v)[a-z0-9-]+")
_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)+")
_FRACTION = re.compile(r"\b1/(\d{1,2})\b")
_PARTS = (2, 4, 8)  # the numbers of equal parts into which a card may be divided
_DELETED_STATES = ("OBSOLETE", "DELETED")
_TPU = ("ct", "tpu")
_MAX_CPUS, _MAX_MIB = 4096, 2**27


@dataclass(frozen=True, slots=True)
class GcpMachine:
    """One kind of machine in one zone: ``count`` accelerators (Google's type and the canonical name), vCPUs, GiB of
    memory, and GiB of local SSDs that always come with it. ``slices`` of ``slice_of``: the only unit of its price; 0 if
    it may be priced by its parts."""

    zone: str
    name: str
    family: Family
    accelerator_type: str
    accelerator: str
    count: int
    cpus: int
    memory_gib: Decimal
    ssd_gib: int = 0
    attached: bool = False
    slices: int = 0
    slice_of: str = ""

    @property
    def region(self) -> str:
        return region_of(self.zone)

    @property
    def link(self) -> Interconnect | None:
        """The link between the accelerators; None for a link without a name here."""
        return link_of(self.family, self.accelerator_type, self.count)


def machines(caller: GcpCaller, settings: GcpSettings) -> Iterator[GcpMachine | SkippedRow]:
    """Every machine with accelerators in the settings' regions, and malformed rows. Raises what `GcpCaller.rows`
    raises, possibly after some.
    """
    regions = settings.regions
    hosts: defaultdict[str, list[GcpMachine]] = defaultdict(list)
    for entry in _rows(caller, _MACHINES, regions, filter=_NAME_FILTER):
        if isinstance(entry, SkippedRow):
            yield entry
            continue
        zone, row = entry
        try:
            shape = _shape(zone, row)
        except RowRejected as error:
            yield error.skipped
            continue
        if shape is None:
            continue
        if shape.count:
            yield shape
        elif any(fnmatchcase(shape.name, pattern) for pattern in settings.n1_hosts):
            hosts[zone].append(shape)
    if not hosts:
        return
    has_rows = False
    for entry in _rows(caller, _ACCELERATORS, ()):
        has_rows = True
        if isinstance(entry, SkippedRow):
            yield entry
        elif matches_any(region_of(entry[0]), regions):
            yield from _attached_machines(entry[1], hosts.get(entry[0], ()))
    if not has_rows:
        yield SkippedRow("incomplete_answer", "no zone has an accelerator type, so no N1 machine has GPUs")


def matches_any(region: str, patterns: tuple[str, ...]) -> bool:
    """Whether the region matches a pattern; without patterns every region does."""
    return not patterns or any(fnmatchcase(region, pattern) for pattern in patterns)


def _rows(
    caller: GcpCaller, listing: ListMethod, regions: tuple[str, ...], **request: Any
) -> Iterator[tuple[str, Any] | SkippedRow]:
    for listed_row in caller.rows(listing, project=caller.login.project, max_results=_PER_PAGE, **request):
        if isinstance(listed_row, SkippedRow):
            yield listed_row
        elif not _ZONE.fullmatch(listed_row.place):
            yield SkippedRow("malformed_row", f"{short(listed_row.row.name)}: not a zone: {short(listed_row.place)}")
        elif matches_any(region_of(listed_row.place), regions):
            yield listed_row.place, listed_row.row


def _shape(zone: str, row: Any) -> GcpMachine | None:
    """A machine type; an N1 still without accelerators (``count`` 0). None for types that cannot have any."""
    type_name = row.name
    if not _NAME.fullmatch(type_name):
        raise RowRejected("malformed_row", f"{zone}: a machine type called {short(type_name)}")
    if row.deprecated.state in _DELETED_STATES:
        return None
    family = family_of(type_name)
    if family is None:
        if type_name.startswith(_TPU):
            raise RowRejected("tpu", f"{zone}: {type_name}: an older or unknown TPU")
        if not row.accelerators:
            return None
        raise RowRejected("unknown_machine", f"{zone}: {type_name}: an unknown machine family")
    label = f"{zone}: {type_name}"
    bare = GcpMachine(
        zone=zone,
        name=name(type_name, label),
        family=family,
        accelerator_type="",
        accelerator="",
        count=0,
        cpus=whole(row.guest_cpus, f"{label}: vCPUs", _MAX_CPUS),
        memory_gib=Decimal(whole(row.memory_mb, f"{label}: memory", _MAX_MIB)) / 1024,
        ssd_gib=_disks(row, label) * family.ssd_gib,
    )
    if not row.accelerators:
        if family.parts == "n1":
            return bare
        raise RowRejected("unknown_accelerator", f"{label}: none is named")
    if len(row.accelerators) > 1:
        raise RowRejected("unknown_accelerator", f"{label}: accelerators of more than one kind")
    card = row.accelerators[0]
    kind, count = (
        resource_name(card.guest_accelerator_type),
        whole(card.guest_accelerator_count, f"{label}: accelerators"),
    )
    fraction = _FRACTION.search(row.description)
    if bare.cpus < family.whole_cpus or fraction:
        return _part(_with_accelerator(bare, kind, count), int(fraction[1]) if fraction else 0, label)
    return _chips(_with_accelerator(bare, kind, count)) if is_chip(kind) else _with_accelerator(bare, kind, count)


def _part(whole_card: GcpMachine, denominator: int, label: str) -> GcpMachine:
    """The machine with a part of one card: one of ``denominator`` (0: not told), and by its vCPUs."""
    parts, remainder = divmod(whole_card.family.whole_cpus, whole_card.cpus)
    if remainder or parts not in _PARTS or denominator not in (0, parts) or whole_card.count != 1:
        raise RowRejected(
            "fraction_of_an_accelerator", f"{label}: {whole_card.cpus} vCPUs, and 1/{denominator} of a card"
        )
    card, eighths = part_of(whole_card.accelerator, parts), max(_PARTS) // parts
    return replace(whole_card, accelerator=card, slices=eighths, slice_of=eighth(whole_card.accelerator_type))


def _chips(machine: GcpMachine) -> GcpMachine:
    """The machine with TPU chips: a slice of one host, which is rented as a unit, where that has a name."""
    chip = lookup(machine.accelerator)
    sliced = replace(machine, slices=machine.count, slice_of=machine.accelerator_type)
    if not chip.slice_chips:
        return sliced
    return replace(sliced, accelerator=lookup(f"{chip.name}-{machine.count / chip.slice_chips:g}").name, count=1)


def _disks(row: Any, label: str) -> int:
    count = row.bundled_local_ssds.partition_count
    return whole(count, f"{label}: local SSDs") if count else 0


def _with_accelerator(bare: GcpMachine, accelerator_type: str, count: int) -> GcpMachine:
    canonical = accelerator(accelerator_type)
    return replace(bare, accelerator_type=accelerator_type, accelerator=canonical, count=count)


def _attached_machines(row: Any, hosts: list[GcpMachine] | tuple[()]) -> Iterator[GcpMachine | SkippedRow]:
    """The N1 machines of a zone with that GPU, in every count that Google allows."""
    try:
        limits = _limits(row)
    except RowRejected as error:
        yield error.skipped
        return
    for count, (cpus, gib) in limits.items():
        for host in hosts:
            if host.cpus <= cpus and host.memory_gib <= gib:
                try:
                    yield replace(_with_accelerator(host, row.name, count), attached=True)
                except RowRejected as error:
                    yield error.skipped


def _limits(row: Any) -> Mapping[int, tuple[int, int]]:
    if row.deprecated.state in _DELETED_STATES:
        return {}
    max_cards = row.maximum_cards_per_instance
    if not _ACCELERATOR.fullmatch(row.name):
        raise RowRejected("malformed_row", f"{resource_name(row.zone)}: an accelerator type called {short(row.name)}")
    if not attachable(row.name) and row.name.startswith("nvidia-"):
        accelerator(row.name.removesuffix("-vws"))  # an unknown name may be a new GPU, or damaged
    if max_cards < 1 and attachable(row.name):
        raise RowRejected("incomplete_row", f"{resource_name(row.zone)}: {row.name}: the number per machine is missing")
    return {count: limit for count, limit in attachable(row.name).items() if count <= max_cards}
