"""Current prices for advice: the cheapest of each machine, with its source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from broker.app.advise.places import Places
from broker.app.market.market import freshen
from broker.app.wiring import Broker
from broker.core.market.offers import Availability, CapacityType, Interconnect, MoneyKind, Offer, OfferQuery
from broker.core.values.clock import SystemClock
from broker.core.values.figures import age
from broker.core.values.money import MICROS_PER_USD
from broker.core.values.units import split_machine
from broker.economics.figures import Usd
from broker.economics.reserve.holdings import HoldingKind
from broker.store import is_missing

STATED_SOURCE = "given on the command line"
RECORDED = "recorded by `gpubroker capacity add`"
PAID_FOR = (CapacityType.OWNED, CapacityType.RESERVED)
RENTED = (CapacityType.ON_DEMAND, CapacityType.SPOT, CapacityType.RESERVED)


@dataclass(frozen=True, slots=True)
class Cheapest:
    """The cheapest of ``offers`` current offers of one kind of machine. ``stale``: older than its provider's limit."""

    offer: Offer
    stale: bool
    offers: int = 1

    @property
    def micros(self) -> int:
        """Micro-dollars per hour of the machine."""
        assert self.offer.price is not None, "only offers with a price are compared"
        return self.offer.price.micros

    @property
    def launchable(self) -> bool:
        """Whether an engine starts jobs there."""
        return self.offer.engine is not None


@dataclass(frozen=True, slots=True)
class Quote:
    """The rent of ``gpus`` accelerators: ``machines`` of ``machine`` (``H100:8``), each with at least the requested
    number of accelerators. USD per hour for all machines; ``usd_per_gpu_hour`` divides by the requested accelerators.

    ``launchable``: an engine starts jobs there. ``reference``: a list price, not live. ``stale``: older than its
    provider's maximum age; no newer one is known.
    ``source`` and ``as_of`` (UTC, None for a stated price): the origin of the price.
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

    @property
    def origin(self) -> str:
        """The source of the price: ``aws/us-east-1, on-demand, list price of 2026-09-20``."""
        if self.as_of is None:
            return self.source
        age_text = f"{age(datetime.now(UTC) - self.as_of)} old"
        if self.reference:
            age_text = f"list price of {self.as_of:%Y-%m-%d}"
        kind = self.capacity_type.value.replace("_", "-")
        return f"{self.where}, {kind}, {age_text}{', stale' if self.stale else ''}"

    @property
    def text(self) -> str:
        """``$17.20/h, aws/us-east-1, on-demand, list price of 2026-09-20``"""
        return f"${self.usd_per_hour:,.2f}/h, {self.origin}"

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
    """Current prices by accelerator. ``stated``: USD per GPU-hour given by the user; these take precedence.
    ``held_gpus``: recorded capacity, at its marginal cost."""

    rows: tuple[Cheapest, ...] = ()
    stated: Mapping[str, float] = field(default_factory=dict)
    held: tuple[HeldGpus, ...] = ()

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
        """The lowest rent of ``machines`` with at least ``per_machine`` accelerators each; a machine may be larger than
        needed and is paid in full. Live and list prices compete; stale prices, and those of places where no engine
        starts jobs, count only if there are no others. None if no price is known."""
        gpus = per_machine * machines
        if accelerator in self.stated:
            return _flat_quote(accelerator, per_machine, machines, kind, self.stated[accelerator], STATED_SOURCE)
        matching = [row for row in self._of(accelerator, kind) if row.offer.count >= per_machine]
        best = min(matching, key=lambda row: (row.stale, not row.launchable, row.micros, row.offer.count), default=None)
        return None if best is None else _quote(best, gpus, machines)

    def gpu_hour(self, accelerator: str, kind: CapacityType = CapacityType.ON_DEMAND) -> Quote | None:
        """The cheapest GPU-hour in a machine of any size: a quote for that whole machine, with its
        ``usd_per_gpu_hour``. None if no price is known."""
        if accelerator in self.stated:
            return self.quote(accelerator, kind=kind)
        rows = self._of(accelerator, kind)
        best = min(rows, key=lambda row: (row.stale, not row.launchable, row.micros / row.offer.count), default=None)
        return None if best is None else _quote(best, best.offer.count, 1)

    def cheapest_gpu_hour(self, accelerator: str) -> Quote | None:
        """The cheaper of `gpu_hour` on demand and on spot; one that is stale, or on which no job starts, comes last."""
        quotes = (self.gpu_hour(accelerator, kind) for kind in (CapacityType.ON_DEMAND, CapacityType.SPOT))
        return min(
            filter(None, quotes),
            default=None,
            key=lambda quote: (quote.stale, not quote.launchable, quote.usd_per_gpu_hour),
        )

    def launchable(self, accelerator: str, kind: CapacityType = CapacityType.ON_DEMAND) -> bool:
        """Whether an engine starts jobs on some machine with this accelerator."""
        return accelerator in self.stated or any(row.launchable for row in self._of(accelerator, kind))

    def cheapest(
        self, accelerator: str, gpus: int = 1, per_machine: int = 1, kinds: Iterable[CapacityType] = RENTED
    ) -> Quote | None:
        quotes = [self.quote(accelerator, per_machine, -(-gpus // per_machine), kind) for kind in kinds]
        return min((q for q in quotes if q), key=lambda q: (q.stale, not q.launchable, q.usd_per_hour), default=None)

    def accelerators(self) -> tuple[str, ...]:
        return tuple(sorted({row.offer.accelerator or "" for row in self.rows} | set(self.stated)))

    def machines(self, accelerator: str, at_least: int = 1) -> tuple[Cheapest, ...]:
        """The machines with at least that many of them, of all capacity types."""
        return tuple(row for row in self.rows if row.offer.accelerator == accelerator and row.offer.count >= at_least)

    def _of(self, accelerator: str, kind: CapacityType) -> list[Cheapest]:
        return [row for row in self.rows if row.offer.accelerator == accelerator and row.offer.capacity_type is kind]


def current_prices(
    store_url: str, now: datetime, broker: Callable[[], Broker], places: Places | None = None
) -> CurrentPrices:
    """The stored prices at ``now`` (UTC), limited to ``places``."""
    return CurrentPrices(cheapest_by_machine(filter((places or Places()).has, _offers(store_url, broker)), now))


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


def current_offers(store_url: str, broker: Callable[[], Broker]) -> list[Offer]:
    """The offers that `current_prices` summarizes."""
    return [offer for offer in _offers(store_url, broker) if is_rentable(offer)]


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
        reference=False, stale=False,
    )  # fmt: skip


def _quote(row: Cheapest, gpus: int, machines: int) -> Quote:
    offer, total = row.offer, row.micros * machines / MICROS_PER_USD
    return Quote(
        accelerator=offer.accelerator or "",
        gpus=gpus,
        capacity_type=offer.capacity_type,
        usd_per_hour=total,
        usd_per_gpu_hour=total / gpus,
        machine=offer.machine,
        machines=machines,
        where=f"{offer.provider}/{offer.region}",
        instance_type=offer.instance_type,
        interconnect=offer.interconnect,
        source=offer.source,
        as_of=offer.as_of,
        reference=offer.reference,
        stale=row.stale,
        launchable=row.launchable,
    )


def _listed_offers(broker: Broker) -> Iterator[Offer]:
    for name in broker.registries.local_providers:
        settings = broker.settings.providers.get(name, {})
        provider = broker.registries.build_provider(name, clock=SystemClock(), settings=settings)
        if not getattr(provider, "refresh_before_deciding", False):
            yield from (offer for offer in provider.offers(OfferQuery()) if isinstance(offer, Offer))


def cheapest_by_machine(offers: Iterable[Offer], now: datetime) -> tuple[Cheapest, ...]:
    """The cheapest of these offers that can be rented, by kind of machine, as of ``now`` (UTC)."""
    cheapest_by_key: dict[tuple[object, ...], Cheapest] = {}
    for offer in offers:
        if not is_rentable(offer):
            continue
        is_old = offer.max_age is not None and now - offer.as_of > offer.max_age
        row = Cheapest(offer, is_old and not offer.reference)
        key = (offer.machine, offer.capacity_type, offer.term_months, offer.interconnect, offer.reference, row.stale,
               row.launchable)  # fmt: skip
        best = cheapest_by_key.get(key)
        if best is None:
            cheapest_by_key[key] = row
        else:
            cheapest_by_key[key] = replace(row if row.micros < best.micros else best, offers=best.offers + 1)
    return tuple(cheapest_by_key.values())


def is_rentable(offer: Offer) -> bool:
    """Whether the offer of accelerators has a cash price, is not suspicious and not sold out."""
    is_unavailable = offer.availability in (Availability.UNAVAILABLE, Availability.NO_QUOTA)
    is_complete = bool(offer.accelerator and offer.count and offer.price)
    return is_complete and offer.money is MoneyKind.CASH and not is_unavailable and offer.doubt is None
