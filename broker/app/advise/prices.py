"""Current prices for advice, each with its basis."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any

from broker.app.advise.places import Places
from broker.app.market.market import freshen
from broker.app.wiring import Broker
from broker.core.market.offers import CapacityType, Interconnect, MoneyKind, Offer, OfferQuery
from broker.core.market.price_basis import (
    MachineClass,
    PriceBasis,
    Standing,
    is_for_rent,
    is_obtainable,
    machine_order,
    machine_usd,
    price_basis,
    standing,
)
from broker.core.values.clock import SystemClock
from broker.core.values.money import MICROS_PER_USD
from broker.core.values.units import split_machine
from broker.economics.figures import HIDDEN, Usd
from broker.economics.reserve.holdings import HoldingKind
from broker.store import is_missing

STATED_SOURCE = "given on the command line"
RECORDED = "recorded by `gpubroker capacity add`"
PAID_FOR = (CapacityType.OWNED, CapacityType.RESERVED)


@dataclass(frozen=True, slots=True)
class Quote:
    """The rent of ``gpus`` accelerators: ``machines`` of ``machine`` (``H100:8``), each with at least the requested
    number of accelerators. USD per hour for all machines; ``usd_per_gpu_hour`` divides by the requested accelerators.

    ``launchable``: an engine starts jobs there. ``reference``: a list price, not live. ``stale``: too old by
    `is_stale`; no newer one is known.
    ``source`` and ``as_of`` (UTC, None for a stated price): the origin of the price, in words ``origin``; ``left_out``:
    a cheaper offer that does not count, with the reason. ``private``: of private hosts on a marketplace.
    """

    accelerator: str
    gpus: int
    capacity_type: CapacityType
    usd_per_hour: Usd
    usd_per_gpu_hour: Usd
    machine: str
    machines: int
    where: str
    instance_type: str
    interconnect: Interconnect | None
    source: str
    as_of: datetime | None
    reference: bool
    stale: bool
    launchable: bool = True
    origin: str = STATED_SOURCE
    left_out: str = ""
    private: Annotated[bool, HIDDEN] = False
    standing: Annotated[Standing, HIDDEN] = Standing.LAUNCHABLE

    @property
    def text(self) -> str:
        """``$17.20/h, aws/us-east-1, on-demand, pricebook: list price of 2026-09-20``"""
        return f"${self.usd_per_hour:,.2f}/h, {self.origin}"

    @property
    def basis(self) -> str:
        """The origin, and what does not count."""
        return "; ".join(filter(None, (self.origin, self.left_out)))

    @property
    def usd_per_gpu_there(self) -> float:
        """USD per hour for each accelerator of the machines, also those that were not requested. Price limits per GPU
        are compared with it."""
        return self.usd_per_hour / (split_machine(self.machine)[1] * self.machines)

    @property
    def not_launched_on(self) -> str:
        """Why no job starts at this price, and what would allow it; empty if jobs start."""
        if not self.launchable:
            return f"no engine starts jobs at {self.where}, and no other place has a current price of such a machine"
        if not self.reference:
            return ""
        return (
            "it is a list price: jobs start on one only where a policy says "
            "`defaults: {allow_reference_prices: true}`; logins (`gpubroker doctor`) bring live prices instead"
        )


@dataclass(frozen=True, slots=True)
class HeldGpus:
    """Recorded capacity that is paid for: ``gpus`` of an accelerator at ``where``, owned or reserved.
    ``usd_per_gpu_hour``: the marginal cost of using one for an hour: energy; zero if reserved."""

    accelerator: str
    gpus: int
    capacity_type: CapacityType
    where: str
    usd_per_gpu_hour: float


@dataclass(frozen=True, slots=True)
class CurrentPrices:
    """The offers with a price at ``now`` (UTC), by accelerator. ``stated``: USD per GPU-hour given by the user; these
    take precedence. ``held_gpus``: recorded capacity, at its marginal cost. ``cpus``: machines without accelerators,
    one for each number of vCPUs."""

    now: datetime
    offers: Mapping[str, Sequence[Offer]] = field(default_factory=dict)
    stated: Mapping[str, float] = field(default_factory=dict)
    held: tuple[HeldGpus, ...] = ()
    cpus: tuple[PriceBasis, ...] = ()

    @classmethod
    def of(cls, offers: Iterable[Offer], now: datetime) -> CurrentPrices:
        """Those of these offers that are for rent."""
        by_accelerator: dict[str, list[Offer]] = {}
        cpu_machines = []
        for offer in offers:
            if is_for_rent(offer):
                by_accelerator.setdefault(offer.accelerator or "", []).append(offer)
            elif not offer.accelerator:
                cpu_machines.append(offer)
        return cls(now, by_accelerator, cpus=_cheapest_cpu_machines(cpu_machines, now))

    def paid_for(
        self, accelerator: str, per_machine: int, machines: int, kinds: Collection[CapacityType] = PAID_FOR
    ) -> Quote | None:
        """``machines`` with ``per_machine`` GPUs each of recorded capacity of these ``kinds``, at its marginal cost;
        None if fewer GPUs are held."""
        gpus = per_machine * machines
        matching = [
            holding for holding in self.held if holding.accelerator == accelerator and holding.capacity_type in kinds
        ]
        sufficient = [holding for holding in matching if holding.gpus >= gpus]
        best = min(sufficient, key=lambda holding: holding.usd_per_gpu_hour, default=None)
        if best is None:
            return None
        price, kind = best.usd_per_gpu_hour, best.capacity_type
        return _flat_quote(accelerator, per_machine, machines, kind, price, RECORDED, best.where)

    def with_stated(self, stated: Mapping[str, float]) -> CurrentPrices:
        return replace(self, stated={**self.stated, **stated})

    def quote(
        self, accelerator: str, per_machine: int = 1, machines: int = 1, kind: CapacityType = CapacityType.ON_DEMAND
    ) -> Quote | None:
        """The rent of ``machines`` with at least ``per_machine`` accelerators each, by `price_basis`. None if no price
        is known."""
        if accelerator in self.stated:
            return _flat_quote(accelerator, per_machine, machines, kind, self.stated[accelerator], STATED_SOURCE)
        basis = self.basis(accelerator, kind, per_machine)
        return None if basis is None else _quote(basis, per_machine * machines, machines)

    def gpu_hour(self, accelerator: str, kind: CapacityType = CapacityType.ON_DEMAND) -> Quote | None:
        """The GPU-hour in a machine of any size, by `price_basis`: a quote for that whole machine, with its
        ``usd_per_gpu_hour``. None if no price is known."""
        if accelerator in self.stated:
            return self.quote(accelerator, kind=kind)
        basis = self.basis(accelerator, kind)
        return None if basis is None else _quote(basis, basis.offer.count, 1)

    def basis(
        self,
        accelerator: str,
        kind: CapacityType = CapacityType.ON_DEMAND,
        per_machine: int | None = None,
        machine_class: MachineClass | None = None,
    ) -> PriceBasis | None:
        """As `price_basis` of these offers."""
        return price_basis(self.offers.get(accelerator, ()), self.now, accelerator, kind, per_machine, machine_class)

    def cheapest_gpu_hour(self, accelerator: str) -> Quote | None:
        """The cheaper of `gpu_hour` on demand and on spot, if jobs start on both alike."""
        quotes = (self.gpu_hour(accelerator, kind) for kind in (CapacityType.ON_DEMAND, CapacityType.SPOT))
        return min(filter(None, quotes), default=None, key=lambda quote: (quote.standing, quote.usd_per_gpu_hour))

    def launchable(self, accelerator: str, kind: CapacityType = CapacityType.ON_DEMAND) -> bool:
        """Whether an engine starts jobs on some machine with this accelerator."""
        quote = self.gpu_hour(accelerator, kind)
        return quote is not None and quote.launchable

    def accelerators(self) -> tuple[str, ...]:
        return tuple(sorted({*self.offers, *self.stated}))


def current_prices(
    store_url: str, now: datetime, broker: Callable[[], Broker], places: Places | None = None
) -> CurrentPrices:
    """The stored prices at ``now`` (UTC), limited to ``places``."""
    return CurrentPrices.of(filter((places or Places()).has, _offers(store_url, broker)), now)


def held_gpus(
    store_url: str, now: datetime, broker: Callable[[], Broker], kwh_usd: float, pue: float
) -> tuple[HeldGpus, ...]:
    """Recorded machines and reservations in force at ``now`` (UTC), added up by capacity type, place and accelerator.
    ``kwh_usd``: USD per kWh; ``pue``: power of the data center divided by that of its machines."""
    if is_missing(store_url):
        return ()
    held_by_key: dict[tuple[str, CapacityType, str], HeldGpus] = {}
    for recorded in broker().store.holdings():
        holding = recorded.holding
        if holding.kind is HoldingKind.COMMITMENT or not holding.active(now):
            continue
        kind = CapacityType.OWNED if holding.kind is HoldingKind.OWNED else CapacityType.RESERVED
        where = "/".join(filter(None, (holding.provider, holding.site)))
        key = (holding.accelerator, kind, where)
        earlier = held_by_key.get(key)
        gpus = holding.gpus + (earlier.gpus if earlier else 0)
        energy = holding.energy_usd_per_gpu_hour(kwh_usd, pue)
        if earlier:
            energy = (energy * holding.gpus + earlier.usd_per_gpu_hour * earlier.gpus) / gpus
        held_by_key[key] = HeldGpus(holding.accelerator, gpus, kind, where, energy)
    return tuple(held_by_key.values())


# Types that share cores or are throttled after a while.
_PARTIAL_CORES = re.compile(r"t\d|e2-(micro|small|medium)|[fg]1-|standard_b\d", re.IGNORECASE)


def _cheapest_cpu_machines(offers: Iterable[Offer], now: datetime) -> tuple[PriceBasis, ...]:
    """The machine on demand for each number of vCPUs, in the order of `price_basis`."""
    by_cpus: dict[float, list[Offer]] = {}
    for offer in offers:
        is_priced = offer.cpus and offer.memory_gib and offer.price and offer.money is MoneyKind.CASH
        is_machine = is_obtainable(offer) and not _PARTIAL_CORES.match(offer.instance_type)
        if is_priced and is_machine and offer.capacity_type is CapacityType.ON_DEMAND:
            by_cpus.setdefault(offer.cpus or 0, []).append(offer)

    def order(offer: Offer) -> tuple[Any, ...]:
        return standing(offer, now), offer.engine is None, machine_usd(offer), machine_order(offer)

    return tuple(PriceBasis(min(by_cpus[cpus], key=order), now) for cpus in sorted(by_cpus))


def _offers(store_url: str, broker: Callable[[], Broker]) -> list[Offer]:
    """The current offers. Advice does not create a store: without one, the bundled price lists are
    read."""
    opened_broker = broker()
    if is_missing(store_url):
        return list(_listed_offers(opened_broker))
    freshen(opened_broker)
    return opened_broker.store.offers()


def _flat_quote(
    accelerator: str, per_machine: int, machines: int, kind: CapacityType, usd: float, source: str, where: str = ""
) -> Quote:
    """Machines with exactly the requested GPUs, each at that price per hour."""
    gpus, machine = per_machine * machines, f"{accelerator}:{per_machine}"
    return Quote(
        accelerator, gpus, kind, usd * gpus, usd, machine, machines, where, "", None, source, None,
        reference=False, stale=False, origin=source,
    )  # fmt: skip


def _quote(basis: PriceBasis, gpus: int, machines: int) -> Quote:
    offer = basis.offer
    assert offer.price is not None, "only offers with a price are compared"
    total = offer.price.micros * machines / MICROS_PER_USD
    return Quote(
        accelerator=offer.accelerator or "",
        gpus=gpus,
        capacity_type=offer.capacity_type,
        usd_per_hour=total,
        usd_per_gpu_hour=total / gpus,
        machine=offer.machine,
        machines=machines,
        where=offer.location,
        instance_type=offer.instance_type,
        interconnect=offer.interconnect,
        source=offer.source,
        as_of=offer.as_of,
        reference=offer.reference,
        stale=not basis.is_current,
        launchable=offer.engine is not None,
        origin=basis.origin,
        left_out=basis.left_out,
        private=MachineClass.of(offer).private,
        standing=basis.standing,
    )


def _listed_offers(broker: Broker) -> Iterator[Offer]:
    for name in broker.registries.local_providers:
        settings = broker.settings.providers.get(name, {})
        provider = broker.registries.build_provider(name, clock=SystemClock(), settings=settings)
        if not getattr(provider, "refresh_before_deciding", False):
            yield from (offer for offer in provider.offers(OfferQuery()) if isinstance(offer, Offer))
