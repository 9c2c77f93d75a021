"""Accelerators: one canonical name for each, and its properties.

The table is ``gpus.toml`` next to this file, read once on first use. Names are SkyPilot's (``H100`` is the SXM card,
``A100`` the 40 GB one); names used by providers, drivers and clusters are aliases. A Google TPU slice, rented as one
unit (``tpu-v5p-8``), is an accelerator with the sums of its chips. A part of a card is one with its share of the card's
figures, and never the card: ``A10-1of6`` where hardware cuts it into equal parts, ``H100-1g.10gb`` as NVIDIA calls its
MIG slices, ``H100-1of4-shared`` where programs share the whole card and nothing keeps them apart.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, lru_cache
from math import log
from typing import Any

from broker.core.errors import UnknownName
from broker.core.extras import load_packaged_toml

_VENDOR_PREFIX = re.compile(r"^(nvidia|amd|intel|habana|google|aws|amazon|tesla|geforce|instinct)+(?=.)")
_PUNCTUATION = re.compile(r"[\s_\-/().,]+")
_PART = re.compile(r"(.+)-1of([2-9]|[1-5]\d|6[0-4])(-shared)?", re.IGNORECASE)
MAX_PARTS = 64
"""The most equal parts of a card that have a name."""
_SHARED = "-shared"
_LONGEST = 100  # letters of a name of a slice, as anybody may submit longer ones
# ``H100-1g.10gb``, ``NVIDIA H100 80GB HBM3 MIG 1g.10gb+me``, ``nvidia.com/mig-1g.10gb.me``, Slurm's ``1g.10gb``.
_SLICE = re.compile(
    r"(?:nvidia\.com/)?(?P<card>.*?)[-_\s]*(?:mig[-_\s]*)?(?<![0-9a-z])(?P<profile>[1-7]g\.\d+gb)(?:[+.-]me)?",
    re.IGNORECASE,
)
_TPU_SLICE = re.compile(r"^(?:tpu-)?(v\d[a-z]*)-(\d+)$")
# A provider may report 4-12 % less memory than the card is sold with (error correction, driver, GB for GiB).
_SAME_MEMORY = 0.13


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One card, module or chip, by its vendor's data. None: unknown or not supported.

    ``memory_gb``: as sold. ``memory_gib``: addressable by a program, in GiB (2**30 bytes): the driver's figure where it
    differs. ``tflops_*`` and ``tops_int8``: 10**12 operations per second at peak, dense. ``bandwidth_gb_s``: memory
    bandwidth, 10**9 bytes/s. ``link`` and ``link_gb_s``: the direct connection between cards (``nvlink``,
    ``infinity_fabric``, ``ici``, ``neuronlink``, ``roce``) and its bandwidth per card, both directions together, 10**9
    bytes/s; None for PCIe only. ``tdp_w``: board power, W. ``compute_capability``: CUDA's, as (major, minor).
    ``mig_profiles``: the MIG slices into which it is cut, the whole card last. ``street_price``: lowest and highest
    indicative price of one, USD; ``street_price_source``: with its date. ``price_note``: why none is known, or which
    was the last. ``maturity``: of its software, 1 to 5. ``family``: cards with one provider name, distinguished by
    memory.
    ``inference_only``: cannot train. ``price_like``: a card whose prices are of the same order.
    """

    name: str
    vendor: str
    memory_gb: float
    memory_gib: float
    bandwidth_gb_s: float
    form_factor: str
    year: int
    maturity: int
    source: str
    aliases: tuple[str, ...] = ()
    family: str | None = None
    tflops_bf16: float | None = None
    tflops_fp16: float | None = None
    tflops_fp8: float | None = None
    tops_int8: float | None = None
    link: str | None = None
    link_gb_s: float | None = None
    tdp_w: float | None = None
    compute_capability: tuple[int, int] | None = None
    mig_profiles: tuple[str, ...] = ()
    street_price: tuple[float, float] | None = None
    street_price_source: str = ""
    price_note: str = ""
    slice_chips: float | None = None
    inference_only: bool = False
    price_like: str | None = None

    @property
    def tflops_16bit(self) -> float | None:
        """Peak dense TFLOPS in BF16, or in FP16 where the card has no BF16 (T4, V100)."""
        return self.tflops_bf16 or self.tflops_fp16

    @property
    def consumer(self) -> bool:
        """Whether it is a gaming card, built for a desktop computer: no full error correction of its memory, no fast
        link."""
        return self.form_factor == "consumer"

    @property
    def is_cpu(self) -> bool:
        """Whether it stands for a machine without accelerators."""
        return self.form_factor == "cpu"


def canonical(name: str, memory_gib: float | None = None) -> str:
    """The canonical name of ``name``; case, spaces and punctuation do not count.

    ``memory_gib``: the memory per card given with the name, if any: AWS calls both the 40 GB and the 80 GB card
    ``A100``, so that only the memory identifies an ``A100-80GB``. A memory in the name counts more. Raises
    UnknownName with the nearest known name.
    """
    card = lookup(name)
    # Some give the memory of all cards.
    memory_in_name = re.search(rf"(?<!\d){card.memory_gb:g}\s*GB", name, re.IGNORECASE)
    if memory_gib is not None and card.family and not memory_in_name and not _is_close(card.memory_gb, memory_gib):
        for other in _table().values():
            if other.family == card.family and _is_close(other.memory_gb, memory_gib):
                return other.name
    return card.name


def lookup(name: str) -> Accelerator:
    """The accelerator of a canonical name or alias. Raises UnknownName."""
    card = _find(name)
    if card is None:
        raise UnknownName("accelerator", name, _every_name(), meant=_suggest_count(name) or _suggest_part(name))
    return card


def part_of(name: str, number: int) -> str:
    """The canonical name of one of ``number`` equal parts (2 to 64) of a card. Raises UnknownName."""
    return lookup(f"{lookup(name).name}-1of{number}").name


def siblings(name: str) -> list[tuple[str, float]]:
    """The models with which a price of ``name`` can be compared, and how many of each it is: the cards of its family,
    the whole card of a part, the chip of a slice; then the card that it is priced like. Raises UnknownName."""
    card = lookup(name)
    whole, part = card_share(card.name)
    if (match := _TPU_SLICE.match(card.name)) and (chip := _find(match[1])) is not None and chip.name != card.name:
        whole, part = chip.name, Fraction(card.memory_gb / chip.memory_gb)
    if whole != card.name:
        share = float(part)
        return [(whole, share), *((other, number * share) for other, number in siblings(whole))]
    family = [(other.name, 1.0) for other in _table().values() if card.family and other.family == card.family]
    return family + ([(card.price_like, 1.0)] if card.price_like else [])


def card_share(name: str | None) -> tuple[str, Fraction]:
    """The card and the share of its memory that an accelerator is; itself and 1 unless it is a part of one."""
    part = _part(name) if name else None
    return (part.card.name, part.memory) if part else (name or "", Fraction(1))


def is_part(name: str | None) -> bool:
    return name is not None and _part(name) is not None


def is_shared(name: str | None) -> bool:
    """Whether programs of several jobs share the card, and nothing keeps them apart."""
    return name is not None and name.endswith(_SHARED)


def soft_part(part: str) -> str:
    """The name of the same part where the card is shared by software alone."""
    return part + _SHARED


def slices(card: str) -> list[tuple[str, Fraction]]:
    """The MIG slices of a card by name, each with its share of the memory, smallest first. Raises UnknownName."""
    row = lookup(card)
    names = [f"{row.name}-{profile}" for profile in row.mig_profiles[:-1]]
    return sorted(((name, card_share(name)[1]) for name in names), key=lambda item: item[1])


def mig_profile(name: str) -> tuple[str, str] | None:
    """The card as ``name`` has it (empty for a profile alone) and the MIG profile; None if it names none."""
    match = _SLICE.fullmatch(name.strip()) if len(name) <= _LONGEST else None
    return (match["card"], match["profile"].lower()) if match else None


def cut_cards(profile: str) -> list[str]:
    """The canonical names of the slices of that profile, of every card that is cut so."""
    return [f"{row.name}-{profile}" for row in _table().values() if profile in row.mig_profiles]


_COUNTED = re.compile(
    r"(?:(?P<first>\d{1,4})\s*[x×*]\s*)?(?P<name>.+?)(?:\s*[x×*]\s*(?P<last>\d{1,4}))?", re.IGNORECASE
)


def _suggest_count(text: str) -> str:
    """``H100x8`` and ``8xH100`` in this program's form, ``H100:8``; empty for anything else."""
    match = _COUNTED.fullmatch(text.strip())
    if match is None or bool(match["first"]) == bool(match["last"]) or (card := _find(match["name"])) is None:
        return ""
    return f"{card.name}:{match['first'] or match['last']}"


_FRACTION = re.compile(r"(?P<name>.+?)[-\s:]*\b(?P<top>\d{1,2})\s*(?:of|/)\s*(?P<bottom>\d{1,2})", re.IGNORECASE)


def _suggest_part(text: str) -> str:
    """``A10-1/6`` and ``A10 2of6`` as the part is called here (``A10-1of6``, ``A10-1of3``); empty for anything else."""
    match = _FRACTION.fullmatch(text.strip())
    if match is None or (card := _find(match["name"])) is None or not int(match["bottom"]):
        return ""
    part = Fraction(int(match["top"]), int(match["bottom"]))
    name = f"{card.name}-1of{part.denominator}"
    return card.name if part == 1 else name if part.numerator == 1 and _find(name) else ""


def nearest(name: str, names: Iterable[str], limit: int = 4) -> list[str]:
    """Of the accelerators ``names``, those nearest to ``name``: the card itself and parts of it, then cards of its
    vendor, then others; each by memory and speed. Names that are unknown are left out. Raises UnknownName."""
    target = lookup(name)

    def distance(other: Accelerator) -> tuple[bool, bool, float]:
        pairs = ((target.memory_gb, other.memory_gb), (target.tflops_16bit, other.tflops_16bit))
        difference = sum(abs(log(own / others_value)) if own and others_value else 1.0 for own, others_value in pairs)
        return card_share(target.name)[0] != card_share(other.name)[0], target.vendor != other.vendor, difference

    candidates = {row.name: row for other in names if (row := _find(other)) is not None and row.name != target.name}
    return [row.name for row in sorted(candidates.values(), key=distance)[:limit]]


def accelerator_names() -> tuple[str, ...]:
    """The canonical names, in the table's order."""
    return tuple(_table())


def relative_throughput(accelerator: str, reference: str) -> float | None:
    """The speed of one ``accelerator`` relative to one ``reference``: the ratio of their peak dense 16-bit TFLOPS
    (BF16; FP16 without BF16). None if either is unknown.

    A rule of thumb for compute-bound work such as training, used to convert ``work: 48h on A100-80GB:8`` to other
    cards; it assumes equal utilization. Work bound by memory bandwidth scales with ``bandwidth_gb_s`` instead. Raises
    UnknownName.
    """
    card, reference_card = lookup(accelerator), lookup(reference)
    if card.name == reference_card.name:
        return 1.0
    if card.tflops_16bit is None or reference_card.tflops_16bit is None:
        return None
    return card.tflops_16bit / reference_card.tflops_16bit


def _normalized_name(name: str) -> str:
    return _VENDOR_PREFIX.sub("", _PUNCTUATION.sub("", name).lower())


def _is_close(memory: float, reported: float) -> bool:
    return abs(memory - reported) <= _SAME_MEMORY * memory


def _find(name: str) -> Accelerator | None:
    table = _table()
    canonical_name = _names().get(_normalized_name(name))
    if canonical_name is not None:
        return table[canonical_name]
    slice_of = _TPU_SLICE.match(name.strip().lower())
    if slice_of and (chip := _names().get(slice_of[1])):
        return _slice(table[chip], int(slice_of[2]))
    part = _part(name)
    if part is None:
        return None
    scaled = _scale(part.card, float(part.memory), float(part.compute), part.name)
    return replace(scaled, family=None, link=None, link_gb_s=None, mig_profiles=())


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a card: its shares of memory and of compute."""

    name: str
    card: Accelerator
    memory: Fraction
    compute: Fraction


@lru_cache(maxsize=4096)  # reports ask for each attempt
def _part(name: str) -> _Part | None:
    """The part of a card that ``name`` means; None for anything else."""
    if (match := _PART.fullmatch(name.strip())) and (card := _names().get(_normalized_name(match[1]))):
        whole, share = _table()[card], Fraction(1, int(match[2]))
        return _Part(f"{card}-1of{int(match[2])}{(match[3] or '').lower()}", whole, share, share)
    if not (cut := mig_profile(name)) or not (card := _names().get(_normalized_name(cut[0]))):
        return None
    # Some say A100 for both the card of 40 GB and that of 80 GB: the profile tells which.
    whole = _table()[card]
    family = [row for row in _table().values() if whole.family and row.family == whole.family]
    row = next((row for row in (whole, *family) if cut[1] in row.mig_profiles), None)
    if row is None:
        return None
    # NVIDIA cuts compute into sevenths and memory into eighths, on smaller cards both into as many.
    (compute, memory), (all_compute, all_memory) = map(_amounts, (cut[1], row.mig_profiles[-1]))
    of = 8 if all_compute == 7 else all_compute
    share = Fraction(round(memory * of / all_memory), of)
    return _Part(f"{row.name}-{cut[1]}", row, share, Fraction(compute, all_compute))


def _amounts(profile: str) -> tuple[int, int]:
    """The compute slices and the gigabytes of a profile."""
    compute, _, memory = profile.partition("g.")
    return int(compute), int(memory.removesuffix("gb"))


def _slice(chip: Accelerator, number: int) -> Accelerator | None:
    """The slice of ``number`` TensorCores or chips, as Google counts that generation."""
    if chip.slice_chips is None or (chips := number * chip.slice_chips) < 1:
        return None
    return _scale(chip, chips, chips, f"{chip.name}-{number}")


def _scale(unit: Accelerator, memory: float, compute: float, name: str) -> Accelerator:
    """An accelerator with so many times the memory and the compute of ``unit``, rented as a unit."""

    def scale(value: float | None) -> float | None:
        return None if value is None else value * compute

    return replace(
        unit,
        name=name,
        memory_gb=unit.memory_gb * memory,
        memory_gib=unit.memory_gib * memory,
        bandwidth_gb_s=unit.bandwidth_gb_s * memory,
        tflops_bf16=scale(unit.tflops_bf16),
        tflops_fp16=scale(unit.tflops_fp16),
        tflops_fp8=scale(unit.tflops_fp8),
        tops_int8=scale(unit.tops_int8),
        tdp_w=scale(unit.tdp_w),
        street_price=None,
        slice_chips=None,
        aliases=(),
    )


@cache
def _table() -> dict[str, Accelerator]:
    return {name: _row(name, row) for name, row in load_packaged_toml("broker.core.market", "gpus.toml").items()}


def _row(name: str, row: dict[str, Any]) -> Accelerator:
    capability = row.pop("compute_capability", None)
    price = row.pop("street_price_usd", None)
    return Accelerator(
        name=name,
        memory_gib=row.pop("memory_gib", row["memory_gb"]),
        aliases=tuple(row.pop("aliases", ())),
        mig_profiles=tuple(row.pop("mig_profiles", ())),
        compute_capability=_capability(capability) if capability else None,
        street_price=(price[0], price[1]) if price else None,
        **row,
    )


def _capability(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


@cache
def _names() -> dict[str, str]:
    """The canonical name of every name, by its normalized form."""
    return {_normalized_name(name): row.name for row in _table().values() for name in (row.name, *row.aliases)}


def _every_name() -> set[str]:
    return {name for row in _table().values() for name in (row.name, *row.aliases)}
