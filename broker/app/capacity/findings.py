"""Findings on owned, held and rented capacity, from the hours in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from broker.app.advise.assumptions import active
from broker.app.capacity.plan import HOUR, Stretch, full_hour, has_current_price, hourly, usd
from broker.core.market.offer_order import OfferOrder
from broker.core.market.offers import CapacityType, Offer, OfferQuery
from broker.economics.assumptions import Assumptions
from broker.economics.reserve.capacity_findings import SHORTEST, AcceleratorUse, CapacityFinding, findings
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.economics.units import HOURS_PER_MONTH

if TYPE_CHECKING:
    from broker.app.wiring import Broker

_RENTED = (CapacityType.ON_DEMAND, CapacityType.SPOT)


@dataclass(frozen=True, slots=True)
class CapacityFindings:
    """The findings on usage from ``since`` to ``now`` (UTC). ``uses``: their inputs; ``notes``: assumptions and
    omissions."""

    since: datetime
    now: datetime
    uses: tuple[AcceleratorUse, ...]
    findings: tuple[CapacityFinding, ...]
    notes: tuple[str, ...]

    @property
    def enough(self) -> bool:
        """Whether enough hours of any accelerator are known."""
        return any(len(use.demand) >= SHORTEST for use in self.uses)


@dataclass
class _Ran:
    """The usage of one accelerator: all of it, the rented part, and its cost."""

    every: list[Stretch]
    rented: list[Stretch]
    gpu_hours: float = 0.0
    usd: float = 0.0


def capacity_findings(broker: Broker, since: datetime) -> CapacityFindings:
    """The findings on all usage from ``since`` (UTC) on and on held capacity, by the rules of thumb of the active
    policies.

    Simulated machines do not count. Reads only the store: attempts, holdings and offers."""
    now = broker.clock.now()
    assumptions = active(broker.settings.store_url, lambda: broker)
    ran, held = _ran(broker, since, now), [r.holding for r in broker.store.holdings() if r.holding.active(now)]
    names = sorted({*ran, *(holding.accelerator for holding in held)})
    uses, found, notes = [], list[CapacityFinding](), list[str]()
    for name in names:
        own = [holding for holding in held if holding.accelerator == name]
        use = _use(name, ran.get(name, _Ran([], [])), own, _cheapest(broker, name, now), assumptions, since, now, notes)
        if use is None:
            continue
        uses.append(use)
        said = findings(use, assumptions)
        found += said
    if not names:
        notes.append("no GPU job ran and nothing is on record as held")
    return CapacityFindings(since, now, tuple(uses), tuple(found), tuple(notes))


def _ran(broker: Broker, since: datetime, now: datetime) -> dict[str, _Ran]:
    found: dict[str, _Ran] = {}
    with broker.store.reading() as look:
        for one in look.machine_time(since=since):
            end = one.until or now
            if not one.accelerator or end <= since:
                continue
            ran = found.setdefault(one.accelerator, _Ran([], []))
            stretch = (max(one.since, since), end, one.gpus)
            ran.every.append(stretch)
            if one.capacity_type in _RENTED and (price := one.price_per_gpu) is not None:
                ran.rented.append(stretch)
                hours = stretch[2] * ((end - stretch[0]) / HOUR)
                ran.gpu_hours += hours
                ran.usd += hours * (price.micros / 1_000_000)
    return found


def _cheapest(broker: Broker, accelerator: str, now: datetime) -> dict[CapacityType, Offer]:
    """The cheapest offer per GPU-hour, on demand and for a term, with a price that holds now."""
    found = {}
    with broker.store.reading() as look:
        for kind in (CapacityType.ON_DEMAND, CapacityType.RESERVED):
            query = OfferQuery(accelerators=(accelerator,), capacity_types=(kind,))
            for offer in look.offers_by_price(query, OfferOrder.GPU_PRICE):
                if has_current_price(offer, now) and (offer.term_months or kind is CapacityType.ON_DEMAND):
                    found[kind] = offer
                    break
    return found


def _use(
    name: str,
    ran: _Ran,
    held: Sequence[Holding],
    cheapest: Mapping[CapacityType, Offer],
    assumptions: Assumptions,
    since: datetime,
    now: datetime,
    notes: list[str],
) -> AcceleratorUse | None:
    """The hours of one accelerator with its prices; None if no rent is known."""
    on_demand, offer = cheapest.get(CapacityType.ON_DEMAND), cheapest.get(CapacityType.RESERVED)
    rent = ran.usd / ran.gpu_hours if ran.usd else None
    if rent is not None:
        notes.append(f"{name}: renting costs ${rent:.4g} per GPU-hour, as was paid on average for what ran")
    elif on_demand is not None:
        rent = usd(on_demand)
        kind = "the list price" if on_demand.reference else "the cheapest price"
        notes.append(f"{name}: renting costs ${rent:.4g} per GPU-hour, {kind} on demand")
    else:
        notes.append(f"{name}: left out, no price of renting is known")
        return None
    owned = [holding for holding in held if holding.kind is HoldingKind.OWNED]
    reserved = [holding for holding in held if holding.kind is not HoldingKind.OWNED]
    # Use counts as known from the first recorded hour on; capacity added later does not shorten that time.
    known = [*(stretch[0] for stretch in ran.every), *(holding.starts for holding in held)]
    begins = full_hour(max(since, min(known, default=since)))
    until = full_hour(now)
    hours = (until - begins) // HOUR
    if hours < 1:
        notes.append(f"{name}: left out, less than an hour of use is known")
        return None
    if hours < SHORTEST:
        notes.append(f"{name}: {hours} h of use are known; findings need at least a week of use")

    def there(holding: Holding) -> int:
        """The number of these hours for which it is held."""
        return min(max((until - holding.starts) // HOUR, 0), hours)

    owned.sort(key=there, reverse=True)
    reserved.sort(key=there, reverse=True)
    if hours >= SHORTEST:
        notes += [
            f"{name}: the {h.gpus} held since {h.starts:%Y-%m-%d} ({h.kind.value}) are evaluated once they have been "
            "held for a week"
            for h in (*owned, *reserved)
            if there(h) < SHORTEST
        ]
    # Judged capacity has its own price; if none is judged yet, more of it would cost as much as what was added.
    judged, paid = ([h for h in some if there(h) >= SHORTEST] or some for some in (owned, reserved))
    energy = _mean(judged, [h.energy_usd_per_gpu_hour(assumptions.kwh_usd, assumptions.pue) for h in judged]) or 0.0
    if energy:
        notes.append(
            f"{name}: energy of owned ones is ${energy:.4g} per GPU-hour at work (${assumptions.kwh_usd:g} a kWh, PUE"
            f" {assumptions.pue:g}); what they draw idle is not counted"
        )
    return AcceleratorUse(
        accelerator=name,
        demand=hourly(ran.every, begins, hours),
        rented=hourly(ran.rented, begins, hours),
        owned=sum(holding.gpus for holding in owned),
        reserved=sum(holding.gpus for holding in reserved),
        rent=rent,
        held_usd=_mean(paid, [holding.usd_per_gpu_hour for holding in paid]),
        reserve_usd=None if offer is None else usd(offer),
        own_usd=_mean(judged, [holding.usd_per_gpu_hour for holding in judged]),
        term_hours=None if offer is None else (offer.term_months or 0) * HOURS_PER_MONTH,
        owned_for=[there(holding) for holding in owned for _ in range(holding.gpus)],
        reserved_for=[there(holding) for holding in reserved for _ in range(holding.gpus)],
        energy_usd=energy,
    )


def _mean(holdings: Sequence[Holding], prices: Sequence[float]) -> float | None:
    """The mean price of a GPU in these holdings; None without any."""
    gpus = sum(holding.gpus for holding in holdings)
    if not gpus:
        return None
    return sum(holding.gpus * price for holding, price in zip(holdings, prices, strict=True)) / gpus
