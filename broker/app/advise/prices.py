"""Current prices for advice, each with its basis; and the places that advice is limited to: providers, regions, and
where data must stay."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Annotated, Any

from broker.app.market.market import freshen
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, UnknownName, did_you_mean
from broker.core.market.offers import CapacityType, Interconnect, MoneyKind, Offer, OfferQuery
from broker.core.market.places import TERRITORIES, lies_in
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
from broker.core.values.provider_names import provider_name
from broker.core.values.units import split_machine
from broker.economics.figures import HIDDEN, Usd
from broker.economics.reserve.holdings import HoldingKind
from broker.store import is_missing

RESIDENCIES = tuple(TERRITORIES)
_AGREEMENT_HINT = (
    "record the providers with which you have such an agreement in gpubroker.toml: `[agreements]`, then "
    '`hipaa = ["aws", "gcp"]`'
)


@dataclass(frozen=True, slots=True)
class Places:
    """``providers`` and ``regions`` (``eu-*`` or ``aws/eu-*``): shell-style patterns in lower case; empty: any;
    ``not_in``: regions that are left out; ``residencies``: territories in which a place is known to lie."""

    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    not_in: tuple[str, ...] = ()
    residencies: tuple[str, ...] = ()

    @property
    def limited(self) -> bool:
        return bool(self.providers or self.regions or self.not_in)

    def has(self, offer: Offer) -> bool:
        names = (offer.region.lower(), f"{offer.provider}/{offer.region}".lower())

        def matches_any(patterns: tuple[str, ...]) -> bool:
            return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)

        provider = offer.provider.lower()
        location = f"{offer.provider}/{offer.region}"
        if not all(lies_in(residency, location) for residency in self.residencies):
            return False
        provider_matches = not self.providers or any(fnmatchcase(provider, pattern) for pattern in self.providers)
        return provider_matches and (not self.regions or matches_any(self.regions)) and not matches_any(self.not_in)

    @property
    def beyond_job_files(self) -> tuple[str, ...]:
        """A warning about places that a job file cannot exclude."""
        if not self.not_in:
            return ()
        return (f"the job file cannot leave out {', '.join(self.not_in)}: the policy file does, so apply it first",)


def resolve_places(
    providers: Sequence[str] = (),
    regions: Sequence[str] = (),
    residencies: Sequence[str] = (),
    compliance: Sequence[str] = (),
    agreements: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Places:
    """The places that meet all of these options. ``agreements``: by name (``hipaa``), the providers with which the
    organization has one; ``compliance``: the names that are required.

    Raises `UnknownName` for a residency without a list of regions, `InvalidInput` for an agreement that is not recorded
    and if no provider is left.
    """
    provider_names, recorded = tuple(requested.lower() for requested in providers), agreements
    for requested in dict.fromkeys(requested.lower() for requested in compliance):
        if requested not in recorded:
            raise InvalidInput(
                f"no agreement {requested!r} is recorded{did_you_mean(requested, recorded)}",
                where="--where compliance",
                hint=_AGREEMENT_HINT,
            )
        agreed_providers = [provider_name(name.lower()) for name in recorded[requested]]
        provider_names = tuple(
            name
            for name in agreed_providers
            if not provider_names or any(fnmatchcase(name, pattern) for pattern in provider_names)
        )
        if not provider_names:
            raise InvalidInput(
                f"no provider is left: the agreement {requested!r} names {', '.join(agreed_providers) or 'none'}",
                where="--where compliance",
            )
    allowed = tuple(requested.lower() for requested in regions)
    denied: tuple[str, ...] = ()
    for residency in residencies:
        if residency.lower() not in TERRITORIES:
            raise UnknownName("residency", residency, RESIDENCIES)
        territory, beyond = TERRITORIES[residency.lower()]
        denied = (*denied, *beyond)
        allowed = _intersect(allowed, territory, residency) if allowed else territory
    return Places(provider_names, allowed, denied, tuple(residency.lower() for residency in residencies))


def _intersect(regions: Iterable[str], territory: Iterable[str], residency: str) -> tuple[str, ...]:
    """Patterns of the regions that are both in ``regions`` and in the territory: those of ``regions`` that a pattern of
    the territory covers, and those of the territory that a pattern of ``regions`` covers. Patterns of the territory
    have ``*`` as their only wildcard. Raises `InvalidInput` if there are none."""
    patterns: list[str] = []
    for pattern in regions:
        provider, slash, region = pattern.rpartition("/")
        if any(
            fnmatchcase(region, territory_pattern) for territory_pattern in territory
        ):  # a `*` in it is covered by a `*`
            patterns.append(pattern)
        elif not set("?[") & set(region):
            patterns += [
                f"{provider}{slash}{territory_pattern}"
                for territory_pattern in territory
                if fnmatchcase(territory_pattern, region)
            ]
    if not patterns:
        raise InvalidInput(
            f"none of {', '.join(regions)} is known to lie in {residency.upper()}", where="--where region",
            hint="leave region out, or name regions of that territory, such as 'eu-west-*'",
        )  # fmt: skip
    return tuple(patterns)


def check_providers(patterns: Iterable[str], known: Collection[str]) -> None:
    """Raises `UnknownName` for a provider name or pattern that matches no known provider."""
    for pattern in patterns:
        if not any(fnmatchcase(provider, pattern) for provider in known):
            raise UnknownName("provider", pattern, known, where="--where provider")


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
        """The prices of the offers that are for rent."""
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
