"""The accelerators that a job file requests, in all of SkyPilot's forms: names, counts, fractions, and memory."""

import re
from dataclasses import dataclass

from broker.core.errors import UnknownName
from broker.core.market.accelerators import accelerator_names, canonical, lookup
from broker.core.validation import parse_each
from broker.core.values.units import parse_accelerators, split_machine

_MEMORY = r"(?P<memory>\d{1,6})(?P<unit>[gmt])b(?P<plus>\+?)"
# `80GB+`, `80GB:8`, `nvidia:80GB+`, `nvidia:80GB+:8`.
_BY_MEMORY = re.compile(rf"(?:(?P<vendor>[a-z]+)\s*:\s*)?{_MEMORY}(?:\s*:\s*(?P<count>\S+))?", re.IGNORECASE)
_GIGABYTES = {"m": 1 / 1000, "g": 1.0, "t": 1000.0}
_MINIMUM_PATTERN = re.compile(r"(?P<count>.*\d)\s*\+\s*", re.DOTALL)
_SHARE = re.compile(r"0?\.\d*[1-9]\d*")


@dataclass(frozen=True, slots=True)
class AcceleratorRequest:
    """Accelerators of one kind, and their number per machine. ``at_least``: machines with more are acceptable."""

    name: str
    count: int = 1
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Accelerators:
    """Acceptable accelerators; ``preferred``: in order of preference."""

    requests: tuple[AcceleratorRequest, ...]
    preferred: bool = False


def parse_alternatives(value: object) -> Accelerators:
    """Reads one name, a list in order of preference, or a mapping of names to counts. Raises ``ValueError``; for lists
    and mappings pydantic's `ValidationError`, with the place of each wrong entry."""
    if isinstance(value, list):
        entries, preferred = parse_each(enumerate(value), lambda _, item: _parse_entry(item)), True
    elif isinstance(value, dict):
        entries, preferred = parse_each(value.items(), _parse_counted), False
    else:
        entries, preferred = [_parse_entry(value)], False
    requests = tuple(dict.fromkeys(request for alternatives in entries for request in alternatives))
    if not requests:
        raise ValueError("is empty; name an accelerator such as H100:8, or delete the line for a CPU job")
    return Accelerators(requests, preferred and len(requests) > 1)


def canonical_accelerator(name: str) -> str:
    """The canonical name. ``ValueError`` with the nearest known one for an unknown name."""
    try:
        return canonical(name)
    except UnknownName as error:
        # With a hint, no known name is close.
        where = "; `gpubroker offers` lists the available ones" if error.hint else ""
        raise ValueError(f"{error.message}{where}") from error


def parse_machine(value: object) -> tuple[str, int]:
    """``H100:8`` as the canonical name and the count. Raises ``ValueError``."""
    name, count = split_machine(value)
    return canonical_accelerator(name), count


def _parse_entry(value: object) -> list[AcceleratorRequest]:
    if isinstance(value, str):
        if by_memory := _BY_MEMORY.fullmatch(value.strip()):
            return _with_memory(by_memory)
        name, colon, count = value.partition(":")
        if colon and name.strip():
            return [_request(name.strip(), count.strip())]
    return [AcceleratorRequest(*parse_machine(value))]


def _parse_counted(key: str, count: object) -> list[AcceleratorRequest]:
    """One entry of the mapping form: ``H100: 8``, or ``H100:8`` without a value."""
    if count is None:
        return _parse_entry(key)
    if by_memory := _BY_MEMORY.fullmatch(f"{key}:{count}"):
        return _with_memory(by_memory)
    if ":" in key:
        raise ValueError("names its number twice; write `H100: 8`")
    return [_request(key, count)]


def _request(name: str, count: object) -> AcceleratorRequest:
    text = str(count)
    if minimum := _MINIMUM_PATTERN.fullmatch(text):
        return AcceleratorRequest(canonical_accelerator(name), parse_accelerators(minimum["count"]), at_least=True)
    if _SHARE.fullmatch(text):
        raise ValueError(_fraction_advice(canonical_accelerator(name), float(text)))
    if isinstance(count, str):
        return AcceleratorRequest(*parse_machine(f"{name}:{count}"))
    return AcceleratorRequest(canonical_accelerator(name), parse_accelerators(count))


def _fraction_advice(card: str, fraction: float) -> str:
    """What to write instead of a fraction of a card."""
    parts = round(1 / fraction)
    part_advice = (
        f", or `{card}-1of{parts}` for a machine with that part of a card"
        if parts > 1 and abs(parts * fraction - 1) < 0.01
        else ""
    )
    advice = f"write `{card}:1` for a whole card (`gpubroker offers --gpu {card}` lists their prices)"
    return f"{fraction:g} of a card cannot be requested: {advice}{part_advice}"


def _with_memory(match: re.Match[str]) -> list[AcceleratorRequest]:
    """Every accelerator with that much memory, as sold; with a ``+``, that much or more. TPUs are left out: they are
    rented as slices."""
    memory_gb = float(match["memory"]) * _GIGABYTES[match["unit"].lower()]
    vendor, count = (match["vendor"] or "").lower(), parse_accelerators(match["count"] or 1)
    vendors = {lookup(name).vendor for name in accelerator_names()}
    if vendor and vendor not in vendors:
        raise ValueError(f"unknown vendor {match['vendor']!r}; known: {', '.join(sorted(vendors))}")
    requests = [
        AcceleratorRequest(name, count)
        for name in accelerator_names()
        if (card := lookup(name)).slice_chips is None
        and (not vendor or card.vendor == vendor)
        and (card.memory_gb >= memory_gb if match["plus"] else card.memory_gb == memory_gb)
    ]
    if not requests:
        raise ValueError(
            f"no accelerator has {match['memory']}{match['unit'].upper()}B of memory; for at least that much, write "
            f"{match['memory']}{match['unit'].upper()}B+"
        )
    return requests
