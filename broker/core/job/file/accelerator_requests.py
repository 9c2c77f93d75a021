"""The accelerators that a job file requests, in all of SkyPilot's forms: names, counts, fractions, and memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

from broker.core.errors import UnknownName
from broker.core.validation import each
from broker.core.values.accelerators import canonical, known, lookup
from broker.core.values.units import parse_accelerators, split_machine

_MEMORY = r"(?P<memory>\d{1,6})(?P<unit>[gmt])b(?P<plus>\+?)"
# `80GB+`, `80GB:8`, `nvidia:80GB+`, `nvidia:80GB+:8`.
_BY_MEMORY = re.compile(rf"(?:(?P<vendor>[a-z]+)\s*:\s*)?{_MEMORY}(?:\s*:\s*(?P<count>\S+))?", re.IGNORECASE)
_GIGABYTES = {"m": 1 / 1000, "g": 1.0, "t": 1000.0}
_AT_LEAST = re.compile(r"(?P<count>.*\d)\s*\+\s*", re.DOTALL)
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
        found, preferred = each(enumerate(value), lambda _, item: _one(item)), True
    elif isinstance(value, dict):
        found, preferred = each(value.items(), _counted), False
    else:
        found, preferred = [_one(value)], False
    requests = tuple(dict.fromkeys(request for alternatives in found for request in alternatives))
    if not requests:
        raise ValueError("is empty; name an accelerator such as H100:8, or delete the line for a CPU job")
    return Accelerators(requests, preferred and len(requests) > 1)


def accelerator(name: str) -> str:
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
    return accelerator(name), count


def _one(value: object) -> list[AcceleratorRequest]:
    if isinstance(value, str):
        if by_memory := _BY_MEMORY.fullmatch(value.strip()):
            return _with_memory(by_memory)
        name, colon, count = value.partition(":")
        if colon and name.strip():
            return [_request(name.strip(), count.strip())]
    return [AcceleratorRequest(*parse_machine(value))]


def _counted(key: str, count: object) -> list[AcceleratorRequest]:
    """One entry of the mapping form: ``H100: 8``, or ``H100:8`` without a value."""
    if count is None:
        return _one(key)
    if by_memory := _BY_MEMORY.fullmatch(f"{key}:{count}"):
        return _with_memory(by_memory)
    if ":" in key:
        raise ValueError("names its number twice; write `H100: 8`")
    return [_request(key, count)]


def _request(name: str, count: object) -> AcceleratorRequest:
    text = str(count)
    if more := _AT_LEAST.fullmatch(text):
        return AcceleratorRequest(accelerator(name), parse_accelerators(more["count"]), at_least=True)
    if _SHARE.fullmatch(text):
        raise ValueError(_whole_cards(accelerator(name), float(text)))
    if isinstance(count, str):
        return AcceleratorRequest(*parse_machine(f"{name}:{count}"))
    return AcceleratorRequest(accelerator(name), parse_accelerators(count))


def _whole_cards(card: str, fraction: float) -> str:
    """What to write instead of a fraction of a card."""
    parts = f"{card}-1of{round(1 / fraction)}"
    listed = (
        f", or `{parts}` for a machine with that part of a card"
        if abs(round(1 / fraction) * fraction - 1) < 0.01
        else ""
    )
    whole = f"write `{card}:1` for a whole card (`gpubroker offers --gpu {card}` lists their prices)"
    return f"{fraction:g} of a card cannot be requested: {whole}{listed}"


def _with_memory(given: re.Match[str]) -> list[AcceleratorRequest]:
    """Every accelerator with that much memory, as sold; with a ``+``, that much or more. TPUs are left out: they are
    rented as slices."""
    wanted = float(given["memory"]) * _GIGABYTES[given["unit"].lower()]
    vendor, count = (given["vendor"] or "").lower(), parse_accelerators(given["count"] or 1)
    vendors = {lookup(name).vendor for name in known()}
    if vendor and vendor not in vendors:
        raise ValueError(f"unknown vendor {given['vendor']!r}; known: {', '.join(sorted(vendors))}")
    found = [
        AcceleratorRequest(name, count)
        for name in known()
        if (card := lookup(name)).slice_chips is None
        and (not vendor or card.vendor == vendor)
        and (card.memory_gb >= wanted if given["plus"] else card.memory_gb == wanted)
    ]
    if not found:
        raise ValueError(
            f"no accelerator has {given['memory']}{given['unit'].upper()}B of memory; for at least that much, write "
            f"{given['memory']}{given['unit'].upper()}B+"
        )
    return found
