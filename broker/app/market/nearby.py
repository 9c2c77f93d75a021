"""Offers near to a wanted accelerator, or number of accelerators, that nobody offers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.app.wiring import Broker
from broker.core.market.offers import Offer
from broker.core.values.accelerators import nearest

_CPU = "cpu"


def nearby(broker: Broker, wanted: Mapping[str, Iterable[int]], found: Iterable[Offer]) -> dict[str, list[str]]:
    """For each wanted accelerator without a recorded price, the nearest accelerators that have one; for each that has
    prices, but none for the wanted numbers (``H100:3``), the numbers that have one. ``found``: all offers that
    match."""
    counts: dict[str, set[int]] = {}
    for offer in found:
        counts.setdefault(offer.accelerator or _CPU, set()).add(offer.count)
    with broker.store.reading() as look:
        priced = {name for name in look.names_in_market("accelerator") if name}
    near = dict[str, list[str]]()
    for name, numbers in wanted.items():
        if name == _CPU or name in priced - {*counts}:
            continue  # of it, something is offered elsewhere
        if name not in counts:
            near[name] = nearest(name, priced)
        elif numbers and not counts[name] & {*numbers}:
            others = [f"{name}:{number}" for number in sorted(counts[name])]
            near |= {f"{name}:{number}": others for number in sorted(numbers)}
    return {name: others for name, others in near.items() if others}
