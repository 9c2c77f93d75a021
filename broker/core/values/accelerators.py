"""Accelerators: one canonical name for each, and its properties.

The table is ``gpus.toml`` beside this file, read once on first use. Names are SkyPilot's (``H100`` is the SXM card,
``A100`` the 40 GB one); names used by providers, drivers and clusters are aliases. A Google TPU slice, rented as one
unit (``tpu-v5p-8``), is an accelerator with the sums of its chips.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from broker.core.errors import UnknownName

_VENDOR_PREFIX = re.compile(r"^(nvidia|amd|intel|habana|google|aws|amazon|tesla|geforce|instinct)+(?=.)")
_NOT_COUNTED = re.compile(r"[\s_\-/().,]+")
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
    ``mig_slices``: maximum MIG instances. ``street_price``: lowest and highest indicative price of one, USD.
    ``maturity``: of its software, 1 to 5. ``family``: cards with one provider name, distinguished by memory.
    ``inference_only``: cannot train.
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
    mig_slices: int = 0
    street_price: tuple[float, float] | None = None
    slice_chips: float | None = None
    inference_only: bool = False

    @property
    def tflops_16bit(self) -> float | None:
        """Peak dense TFLOPS in BF16, or in FP16 where the card has no BF16 (T4, V100)."""
        return self.tflops_bf16 or self.tflops_fp16

    @property
    def consumer(self) -> bool:
        """A gaming card: no error-correcting memory worth the name, no fast link, built for an open case."""
        return self.form_factor == "consumer"


def canonical(name: str, memory_gib: float | None = None) -> str:
    """The canonical name of ``name``; case, spaces and punctuation do not count.

    ``memory_gib``: the memory per card given with the name, if any: AWS uses ``A100`` for both, and only the memory
    identifies an ``A100-80GB``. Raises UnknownName with the nearest known name.
    """
    found = _find(name)
    if found is None:
        raise UnknownName("accelerator", name, _every_name(), meant=_with_count(name))
    if memory_gib is not None and found.family and not _close(found.memory_gb, memory_gib):
        for other in _table().values():
            if other.family == found.family and _close(other.memory_gb, memory_gib):
                return other.name
    return found.name


def lookup(name: str) -> Accelerator:
    """The accelerator of a canonical name or alias. Raises UnknownName."""
    found = _find(name)
    if found is None:
        raise UnknownName("accelerator", name, _every_name(), meant=_with_count(name))
    return found


_COUNTED = re.compile(
    r"(?:(?P<first>\d{1,4})\s*[x×*]\s*)?(?P<name>.+?)(?:\s*[x×*]\s*(?P<last>\d{1,4}))?", re.IGNORECASE
)


def _with_count(text: str) -> str:
    """``H100x8`` and ``8xH100`` in this program's form, ``H100:8``; empty for anything else."""
    found = _COUNTED.fullmatch(text.strip())
    if found is None or bool(found["first"]) == bool(found["last"]) or (card := _find(found["name"])) is None:
        return ""
    return f"{card.name}:{found['first'] or found['last']}"


def known() -> tuple[str, ...]:
    """The canonical names, in the table's order."""
    return tuple(_table())


def relative_throughput(accelerator: str, reference: str) -> float | None:
    """The speed of one ``accelerator`` relative to one ``reference``: the ratio of their peak dense 16-bit TFLOPS
    (BF16; FP16 without BF16). None if either is unknown.

    A rule of thumb for compute-bound work such as training, used to convert ``work: 48h on A100-80GB:8`` to other
    cards; it assumes equal utilisation. Work bound by memory bandwidth scales with ``bandwidth_gb_s`` instead. Raises
    UnknownName.
    """
    ours, theirs = lookup(accelerator), lookup(reference)
    if ours.name == theirs.name:
        return 1.0
    if ours.tflops_16bit is None or theirs.tflops_16bit is None:
        return None
    return ours.tflops_16bit / theirs.tflops_16bit


def _key(name: str) -> str:
    return _VENDOR_PREFIX.sub("", _NOT_COUNTED.sub("", name).lower())


def _close(memory: float, reported: float) -> bool:
    return abs(memory - reported) <= _SAME_MEMORY * memory


def _find(name: str) -> Accelerator | None:
    table = _table()
    found = _names().get(_key(name))
    if found is not None:
        return table[found]
    slice_of = _TPU_SLICE.match(name.strip().lower())
    if slice_of and (chip := _names().get(slice_of[1])):
        return _slice(table[chip], int(slice_of[2]))
    return None


def _slice(chip: Accelerator, number: int) -> Accelerator | None:
    """The slice of ``number`` TensorCores or chips, as Google counts that generation."""
    if chip.slice_chips is None or (chips := number * chip.slice_chips) < 1:
        return None

    def times(value: float | None) -> float | None:
        return None if value is None else value * chips

    return replace(
        chip,
        name=f"{chip.name}-{number}",
        memory_gb=chip.memory_gb * chips,
        memory_gib=chip.memory_gib * chips,
        bandwidth_gb_s=chip.bandwidth_gb_s * chips,
        tflops_bf16=times(chip.tflops_bf16),
        tflops_fp16=times(chip.tflops_fp16),
        tflops_fp8=times(chip.tflops_fp8),
        tops_int8=times(chip.tops_int8),
        tdp_w=times(chip.tdp_w),
        street_price=None,
        slice_chips=None,
        aliases=(),
    )


@cache
def _table() -> dict[str, Accelerator]:
    text = resources.files("broker.core.values").joinpath("gpus.toml").read_text(encoding="utf-8")
    return {name: _row(name, row) for name, row in tomllib.loads(text).items()}


def _row(name: str, row: dict[str, Any]) -> Accelerator:
    capability = row.pop("compute_capability", None)
    price = row.pop("street_price_usd", None)
    return Accelerator(
        name=name,
        memory_gib=row.pop("memory_gib", row["memory_gb"]),
        aliases=tuple(row.pop("aliases", ())),
        compute_capability=_capability(capability) if capability else None,
        street_price=(price[0], price[1]) if price else None,
        **row,
    )


def _capability(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


@cache
def _names() -> dict[str, str]:
    """The canonical name of every name, by its normalised form."""
    return {_key(name): row.name for row in _table().values() for name in (row.name, *row.aliases)}


def _every_name() -> set[str]:
    return {name for row in _table().values() for name in (row.name, *row.aliases)}
