"""``H100``, ``H100:8`` and ``cpu`` as filters of machines."""

from __future__ import annotations

from collections.abc import Iterable

from broker.core.errors import InvalidInput
from broker.core.values.accelerators import canonical
from broker.core.values.units import split_machine


def counts_by_accelerator(texts: Iterable[str], where: str) -> dict[str, set[int]]:
    """The requested counts by canonical accelerator name; an empty set means any count. ``where``: the option or
    parameter, for errors. Raises `InvalidInput`, `UnknownName`."""
    found: dict[str, set[int]] = {}
    for text in texts:
        if text.lower() == "cpu":
            found.setdefault("cpu", set())
            continue
        try:
            name, count = split_machine(text)
        except ValueError as error:
            raise InvalidInput(str(error), where=where) from error
        counts = found.setdefault(canonical(name), set())
        if ":" in text:
            counts.add(count)
    return found
