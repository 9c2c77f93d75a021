"""The accelerators that a job file requests, in all of SkyPilot's forms: names, counts, shares, and memory.

A share (``L4:0.25``) means any part with at least that share of a card's memory, on hardware that is cut.
"""

import re
from dataclasses import dataclass

from broker.core.errors import UnknownName
from broker.core.market.accelerators import (
    MAX_PARTS,
    accelerator_names,
    canonical,
    card_share,
    cut_cards,
    is_part,
    lookup,
    mig_profile,
    part_of,
    slices,
    soft_part,
)
from broker.core.validation import parse_each
from broker.core.values.units import parse_accelerators, split_machine

_MEMORY = r"(?P<memory>\d{1,6})(?P<unit>[gmt])b(?P<plus>\+?)"
# `80GB+`, `80GB:8`, `nvidia:80GB+`, `nvidia:80GB+:8`.
_BY_MEMORY = re.compile(rf"(?:(?P<vendor>[a-z]+)\s*:\s*)?{_MEMORY}(?:\s*:\s*(?P<count>\S+))?", re.IGNORECASE)
_GIGABYTES = {"m": 1 / 1000, "g": 1.0, "t": 1000.0}
_MINIMUM_PATTERN = re.compile(r"(?P<count>.*\d)\s*\+\s*", re.DOTALL)
_DECIMAL = re.compile(r"\d{0,9}\.\d*[1-9]\d*")
_ROUNDED = 0.0005  # 0.167 means a sixth: SkyPilot rounds shares to three decimals
_LEAST = 0.015


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
        cut = mig_profile(name)
        if cut and cut[0] and not mig_profile(cut[0]):
            card = canonical_accelerator(cut[0])
            names = ", ".join(f"`{part}:1`" for part, _ in slices(card))
            advice = f"{names}, or `{card}:1` for a whole card" if names else f"`{card}:1` for a whole card"
            raise ValueError(f"{card} has no MIG profile {cut[1]}: write {advice}") from None
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
        if name.strip():
            return _requests(name.strip(), count.strip() if colon else 1)
    return [AcceleratorRequest(*parse_machine(value))]


def _parse_counted(key: str, count: object) -> list[AcceleratorRequest]:
    """One entry of the mapping form: ``H100: 8``, or ``H100:8`` without a value."""
    if count is None:
        return _parse_entry(key)
    if by_memory := _BY_MEMORY.fullmatch(f"{key}:{count}"):
        return _with_memory(by_memory)
    if ":" in key:
        raise ValueError("names its number twice; write `H100: 8`")
    return _requests(key, count)


def _requests(name: str, count: object) -> list[AcceleratorRequest]:
    """The alternatives that a name with a number means: one, or each part of a card that is large enough."""
    text = str(count)
    minimum = _MINIMUM_PATTERN.fullmatch(text)
    number = minimum["count"] if minimum else count
    if (cut := mig_profile(name)) and (profiles := [canonical_accelerator(name)] if cut[0] else cut_cards(cut[1])):
        if parse_accelerators(number) > 1:
            raise ValueError(f"a program sees one MIG slice: write `{profiles[0]}:1` and `num_nodes: {number}`")
        return [AcceleratorRequest(profile) for profile in profiles]
    if minimum:
        return [AcceleratorRequest(canonical_accelerator(name), parse_accelerators(number), at_least=True)]
    if _DECIMAL.fullmatch(text):
        return [AcceleratorRequest(part) for part in _parts(canonical_accelerator(name), float(text))]
    if text == "0":
        raise ValueError(f"0 accelerators: write `{canonical_accelerator(name)}:1`, or delete the line for a CPU job")
    if isinstance(count, str):
        return [AcceleratorRequest(*parse_machine(f"{name}:{count}"))]
    return [AcceleratorRequest(canonical_accelerator(name), parse_accelerators(count))]


def _parts(card: str, share: float) -> list[str]:
    """The parts of a card with at least that share of its memory, smallest first. Raises ``ValueError`` if a card is
    not cut like that."""
    whole = f"`{card}:1` for a whole card (`gpubroker offers --gpu {card}` lists their prices)"
    if share > 1:
        raise ValueError(f"{share:g} cards cannot be requested: write {whole}, or a whole number of them")
    if is_part(card):
        raise ValueError(f"{card} is a part of a card already: write `{card}:1`, or `{card_share(card)[0]}:1`")
    cuts = slices(card)
    larger = [name for name, part in cuts if part + _ROUNDED >= share]
    if cuts and not any(abs(part - share) <= _ROUNDED for _, part in cuts):
        part_advice = f", or `{larger[0]}:1` for the next larger slice" if larger else ""
        shares = ", ".join(dict.fromkeys(f"{float(part):g}" for _, part in cuts))
        raise ValueError(
            f"no slice is {share:g} of the memory of {card}, which is cut into {shares}: write {whole}{part_advice}"
        )
    number = min(int(1 / (share - _ROUNDED)), MAX_PARTS) if share > _LEAST else 0
    if number < 2:
        raise ValueError(f"{share:g} of a card cannot be requested: write {whole}, or a share from 0.016 to 0.5")
    try:
        return [*larger, *(part_of(card, parts) for parts in range(number, 1, -1))]
    except UnknownName:
        raise ValueError(f"{card} is never cut: write {whole}") from None


def with_shared(accelerators: Accelerators) -> Accelerators:
    """The same, and the parts that Slurm shards offer, where nothing keeps programs apart. Raises ``ValueError`` for
    whole cards."""
    names = [request.name for request in accelerators.requests]
    if not names:
        raise ValueError("shares a card, but no accelerators are named: write a share, such as `accelerators: L4:0.25`")
    if whole := next((name for name in names if not is_part(name)), None):
        raise ValueError(f"shares a card, but `{whole}` is a whole one: write its share, such as `{whole}:0.25`")
    equal = [AcceleratorRequest(soft_part(name)) for name in names if re.search(r"-1of\d+$", name)]
    return Accelerators((*accelerators.requests, *equal), accelerators.preferred)


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
