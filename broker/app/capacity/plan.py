"""The capacity plan: demand from files or recorded usage, prices from the market, recorded holdings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING

from broker.app.capacity.demand_files import Demand, read_demand
from broker.app.capacity.limits import CapacityLimits
from broker.core.errors import InvalidInput, UnknownName
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer, OfferQuery
from broker.core.values.accelerators import canonical
from broker.economics.energy import energy_usd_per_hour
from broker.economics.reserve.capacity import CapacityPlan, PurchaseOption, plan_capacity
from broker.economics.reserve.holdings import BurstPrices, HoldingKind, RecordedHolding
from broker.economics.units import HOURS_PER_MONTH, not_negative, positive

if TYPE_CHECKING:
    from broker.app.wiring import Broker


HOUR = timedelta(hours=1)
Stretch = tuple[datetime, datetime, int]
"""Start and end (UTC), and the number of GPUs in use."""


def hourly(stretches: Iterable[Stretch], begins: datetime, hours: int) -> tuple[int, ...]:
    """The mean number of GPUs in use in each hour from ``begins`` (UTC) on, rounded to whole GPUs."""
    sums, ends = [0.0] * hours, begins + hours * HOUR
    for start, end, gpus in stretches:
        at, last = max(start, begins), min(end, ends)
        while at < last:
            index = (at - begins) // HOUR
            edge = min(last, begins + (index + 1) * HOUR)
            sums[index] += gpus * ((edge - at) / HOUR)
            at = edge
    return tuple(floor(gpus + 0.5) for gpus in sums)


def full_hour(at: datetime) -> datetime:
    """The full hour at or before ``at``."""
    return at.replace(minute=0, second=0, microsecond=0)


def has_current_price(offer: Offer, now: datetime) -> bool:
    """Whether the offer has a cash price that holds now: not suspicious, not sold out, and not stale."""
    gone = offer.availability in (Availability.UNAVAILABLE, Availability.NO_QUOTA)
    stale = not offer.reference and offer.max_age is not None and now - offer.as_of > offer.max_age
    believed = offer.doubt is None and offer.has_valid_price()
    return offer.money is MoneyKind.CASH and believed and not gone and not stale


def cheapest(offers: Iterable[Offer], kind: CapacityType) -> Offer | None:
    """The offer of that capacity type with the lowest price of a GPU-hour."""
    return min((offer for offer in offers if offer.capacity_type is kind), key=usd, default=None)


def usd(offer: Offer) -> float:
    """USD per GPU-hour; infinite without a price."""
    price = offer.price_per_gpu
    return float(price.dollars) if price is not None else float("inf")


ALL = ""
"""The key of a price for every accelerator."""


@dataclass(frozen=True, slots=True)
class Stated:
    """Stated prices, USD per GPU-hour, by accelerator or for `ALL`; they take precedence over the market's.

    ``ratio``: reserved price divided by on-demand price, instead of a reserved price. ``terms``: hours that a stated
    reserved price or ratio holds for. ``own``: purchase price of a GPU with its share of the machine, USD, used for
    ``life_hours``, drawing ``watts``.
    """

    on_demand: Mapping[str, float] = field(default_factory=dict)
    spot: Mapping[str, float] = field(default_factory=dict)
    reserved: Mapping[str, float] = field(default_factory=dict)
    ratio: float | None = None
    terms: tuple[int, ...] = (8760,)
    own: Mapping[str, float] = field(default_factory=dict)
    life_hours: float = 4 * 8760
    watts: float = 0.0
    kwh_usd: float = 0.0
    pue: float = 1.0

    @property
    def energy(self) -> float:
        """USD per hour in use of an owned GPU."""
        return energy_usd_per_hour(self.watts, self.kwh_usd, self.pue)


@dataclass(frozen=True, slots=True)
class KnownDemand:
    """GPUs in use in each hour by accelerator; ``source``: where that is from; ``spot_share``: of the rented GPU-hours,
    by accelerator; ``notes``: assumptions."""

    demand: dict[str, list[int]]
    source: str
    spot_share: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CapacityPlans:
    """A plan for each accelerator with demand. ``source``: the origin of the demand. ``notes``: assumptions of all
    plans."""

    now: datetime
    source: str
    plans: tuple[CapacityPlan, ...]
    demand: Mapping[str, Sequence[int]]
    notes: tuple[str, ...]


def plan(
    broker: Broker,
    demand: Mapping[str, Sequence[int]],
    source: str,
    stated: Stated,
    *,
    providers: Sequence[str] = (),
    spot_share: float | Mapping[str, float] = 0.0,
    notes: Iterable[str] = (),
) -> CapacityPlans:
    """One plan for each accelerator of ``demand``, within the limits of the active policies. ``providers``: the
    providers whose prices count; default: all. ``spot_share``: of bursts, for all or by accelerator; an observed share
    counts only if spot has a price. Raises InvalidInput if an accelerator has no on-demand price."""
    from broker.app.market.market import freshen

    freshen(broker)
    now = broker.clock.now()
    holdings = broker.store.holdings()
    offers = _offers(broker, demand, providers, now)
    limits = CapacityLimits.of(broker.policy())
    plans, said = [], [*notes, *limits.notes()]
    for accelerator, hours in demand.items():
        own = [recorded for recorded in holdings if recorded.holding.accelerator == accelerator]
        market = _market(accelerator, offers, stated, spot_share)
        options, barred = limits.sift(accelerator, _options(accelerator, offers, stated, market), market)
        said += [*barred, *limits.left_to_renting(accelerator, hours)]
        said += _not_on_record(broker, accelerator, own)
        ending = _not_renewed(limits, own, stated, market, now)
        said += ending.values()
        plans.append(
            plan_capacity(
                accelerator, hours, now, market, options, own,
                kwh_usd=stated.kwh_usd, pue=stated.pue, least_use=limits.least_use, not_renewed=ending.keys(),
            )
        )  # fmt: skip
    return CapacityPlans(now, source, tuple(plans), demand, tuple(said))


def _not_renewed(
    limits: CapacityLimits, holdings: Sequence[RecordedHolding], stated: Stated, market: BurstPrices, now: datetime
) -> dict[int, str]:
    """The holdings that the policies forbid to renew unchanged, by number, with the reason."""
    found: dict[int, str] = {}
    for recorded in holdings:
        held = recorded.holding
        usd = held.usd_per_gpu_hour + held.energy_usd_per_gpu_hour(stated.kwh_usd, stated.pue)
        if held.ends > now and (why := limits.bars_renewal(recorded, usd, market)):
            found[recorded.number] = why
    return found


def _not_on_record(broker: Broker, accelerator: str, holdings: Sequence[RecordedHolding]) -> list[str]:
    """A note on owned machines with offers: they count only once their cost and lifetime are recorded."""
    query = OfferQuery(accelerators=(accelerator,), capacity_types=(CapacityType.OWNED,))
    owned = [offer for offer in broker.store.offers(query) if offer.money is not MoneyKind.SANDBOX]
    if not owned or any(recorded.holding.kind is HoldingKind.OWNED for recorded in holdings):
        return []
    gpus = sum(offer.count * (offer.slots or 1) for offer in owned)
    return [f"{accelerator}: {gpus} owned GPU(s) are not counted: record them with `gpubroker capacity add owned`"]


def demand_of_files(files: Sequence[tuple[str, Path]]) -> KnownDemand:
    """Demand by accelerator from files, each with a name for its series (empty: that of its file or column). Raises
    InvalidInput."""
    found: dict[str, list[int]] = {}
    notes = []
    for name, path in files:
        columns = read_demand([path])
        for series in columns:
            called = _called(name if len(columns) == 1 else "", series)
            if called in found:
                raise InvalidInput(f"two series for {called}", where=str(path), hint="name them: --demand H100=FILE")
            found[called] = list(series.hours)
            notes += [f"{called}: {note}" for note in series.notes]
            ends = f", which was {series.starts + len(series.hours) * HOUR:%Y-%m-%d %H:%M} UTC" if series.starts else ""
            notes.append(f"{called}: the end of the file{ends} is taken as now")
    source = ", ".join(f"{name}={path}" if name else str(path) for name, path in files)
    return KnownDemand(found, source, notes=tuple(notes))


def demand_of_history(broker: Broker, since: datetime) -> KnownDemand:
    """The usage up to now, from the recorded attempts: the mean of each hour in whole GPUs, from the first usage after
    ``since`` (UTC). Simulated machines do not count. Raises InvalidInput without usage."""
    now = broker.clock.now()
    stretches: dict[str, list[Stretch]] = {}
    rented: dict[tuple[str, CapacityType], float] = {}
    attempts = 0
    with broker.store.reading() as look:
        for one in look.machine_time(since=since):
            end = one.until or now
            if not one.accelerator or end <= since:
                continue
            attempts += 1
            begin = max(one.since, since)
            stretches.setdefault(one.accelerator, []).append((begin, end, one.gpus))
            key = (one.accelerator, one.capacity_type)
            rented[key] = rented.get(key, 0.0) + one.gpus * ((end - begin) / HOUR)
    found = {}
    for name, used in sorted(stretches.items()):
        first = full_hour(min(start for start, _, _ in used))
        if (hours := (full_hour(now) - first) // HOUR) > 0:
            found[name] = list(hourly(used, first, hours))
    if not found:
        raise InvalidInput(
            f"no GPU job ran for an hour since {since.astimezone(UTC):%Y-%m-%d}",
            hint="give the demand: --demand H100=FILE, one number of GPUs an hour",
        )
    return KnownDemand(
        found, f"{attempts} attempts on record here", {name: _spot_share(rented, name) for name in found}
    )


def _spot_share(rented: Mapping[tuple[str, CapacityType], float], accelerator: str) -> float:
    spot = rented.get((accelerator, CapacityType.SPOT), 0.0)
    either = spot + rented.get((accelerator, CapacityType.ON_DEMAND), 0.0)
    return spot / either if either else 0.0


def _offers(
    broker: Broker, accelerators: Iterable[str], providers: Sequence[str], now: datetime
) -> dict[str, list[Offer]]:
    """The offers of each accelerator, without stale prices."""
    names = tuple(accelerators)
    found: dict[str, list[Offer]] = {name: [] for name in names}
    for offer in broker.store.offers(OfferQuery(accelerators=names, providers=tuple(providers))):
        if has_current_price(offer, now):
            found[str(offer.accelerator)].append(offer)
    seen = {offer.provider for offers in found.values() for offer in offers}
    for name in providers:
        if name not in seen and name not in broker.registries.providers:
            raise UnknownName("provider", name, [*broker.registries.providers, *seen], where="--provider")
    return found


def _stated(prices: Mapping[str, float], accelerator: str) -> float | None:
    return prices.get(accelerator, prices.get(ALL))


def _market(
    accelerator: str, offers: Mapping[str, list[Offer]], stated: Stated, spot_share: float | Mapping[str, float]
) -> BurstPrices:
    def price(kind: CapacityType, given: Mapping[str, float]) -> float | None:
        said = _stated(given, accelerator)
        best = cheapest(offers[accelerator], kind)
        return said if said is not None else None if best is None else usd(best)

    on_demand = price(CapacityType.ON_DEMAND, stated.on_demand)
    if on_demand is None:
        raise InvalidInput(
            f"no on-demand price of {accelerator} is known",
            hint=f"give it: --on-demand-price {accelerator}=2.50 (USD per GPU-hour)",
        )
    spot = price(CapacityType.SPOT, stated.spot)
    if isinstance(spot_share, Mapping):
        return BurstPrices(on_demand, spot, 0.0 if spot is None else spot_share.get(accelerator, 0.0))
    return BurstPrices(on_demand, spot, spot_share)


def _options(
    accelerator: str, offers: Mapping[str, list[Offer]], stated: Stated, market: BurstPrices
) -> Iterable[PurchaseOption]:
    """The options of holding capacity: as stated, else the cheapest of each term on the market; and machines to buy."""
    said = _stated(stated.reserved, accelerator)
    if said is None and stated.ratio is not None:
        said = positive("ratio", stated.ratio) * market.on_demand
    if said is not None:
        for term in stated.terms:
            yield PurchaseOption(f"reserved for {_days(term)} at the stated price", term, said)
    else:
        by_term: dict[int, list[Offer]] = {}
        for offer in offers[accelerator]:
            if offer.capacity_type is CapacityType.RESERVED and offer.term_months:
                by_term.setdefault(offer.term_months, []).append(offer)
        for months, sold in sorted(by_term.items()):
            best = min(sold, key=usd)
            name = f"{best.provider}/{best.region} {best.instance_type}, {months} months"
            yield PurchaseOption(name, round(months * HOURS_PER_MONTH), usd(best))
    own = _stated(stated.own, accelerator)
    if own is not None:
        hourly_usd = positive("purchase price", own, "USD") / positive("life", stated.life_hours, "h") + stated.energy
        yield PurchaseOption(
            f"bought, used for {_days(stated.life_hours)}", round(stated.life_hours), hourly_usd, HoldingKind.OWNED
        )


def _days(hours: float) -> str:
    days = hours / 24
    count, unit = (days / 365, "year") if days >= 365 and days % 365 == 0 else (days, "day")
    return f"{count:g} {unit}{'' if count == 1 else 's'}"


def _called(name: str, series: Demand) -> str:
    """The accelerator of the given name, else of the name of the column or file; else the name itself, for which prices
    have to be stated."""
    for candidate in (name, series.column, series.name):
        try:
            return canonical(candidate)
        except UnknownName:
            continue
    return name or series.name


def checked(stated: Stated) -> Stated:
    """The same value, after a check of every figure. Raises InvalidInput."""
    for option, prices in (
        ("--on-demand-price", stated.on_demand),
        ("--spot-price", stated.spot),
        ("--reserved-price", stated.reserved),
        ("--own-price", stated.own),
    ):
        for price in prices.values():
            positive(option, price, "USD")
    if stated.ratio is not None:
        positive("--ratio", stated.ratio, most=100)
    not_negative("--assume watts", stated.watts, "W")
    not_negative("--assume kwh_usd", stated.kwh_usd, "USD")
    positive("--assume pue", stated.pue)
    return stated
