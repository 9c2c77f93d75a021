"""The capacity plan: demand from files or recorded usage, prices from the market, recorded holdings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import ceil, floor
from pathlib import Path

from broker.app.advise.history import HOUR, Interval, hourly_use
from broker.app.capacity.demand_files import Demand, read_demand
from broker.app.capacity.limits import CapacityLimits
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, UnknownName
from broker.core.market.accelerators import canonical
from broker.core.market.offers import CapacityType, MoneyKind, Offer, OfferQuery
from broker.core.market.price_basis import MachineClass, PriceBasis, machine_usd, price_basis, usd_per_gpu_hour
from broker.core.market.term_prices import TermPrices, term_name, term_prices
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.energy import energy_usd_per_hour
from broker.economics.reserve.capacity import AcceleratorPlan, PurchaseOption, plan_capacity
from broker.economics.reserve.holdings import BurstPrices, HoldingKind, RecordedHolding
from broker.economics.units import HOURS_PER_MONTH, HOURS_PER_YEAR, positive


def hourly_usage(intervals: Iterable[Interval], start_at: datetime, hours: int) -> tuple[int, ...]:
    """The mean number of GPUs in use in each hour from ``start_at`` (UTC) on, rounded to whole GPUs."""
    return tuple(floor(gpus + 0.5) for gpus in hourly_use(intervals, start_at, hours))


def full_hour(at: datetime) -> datetime:
    """The full hour at or before ``at``."""
    return at.replace(minute=0, second=0, microsecond=0)


ANY_ACCELERATOR = ""
"""The key of a price for every accelerator."""


@dataclass(frozen=True, slots=True)
class StatedPrices:
    """Stated prices, USD per GPU-hour, by accelerator or for `ANY_ACCELERATOR`; they take precedence over the market's.

    ``ratio``: reserved price divided by on-demand price, instead of a reserved price. ``terms``: hours that a stated
    reserved price or ratio holds for. ``own``: purchase price of a GPU with its share of the machine, USD.
    """

    on_demand: Mapping[str, float] = field(default_factory=dict)
    spot: Mapping[str, float] = field(default_factory=dict)
    reserved: Mapping[str, float] = field(default_factory=dict)
    ratio: float | None = None
    terms: tuple[int, ...] = (8760,)
    own: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownDemand:
    """GPUs in use in each hour by accelerator; ``source``: where that is from; ``spot_share``: of the rented GPU-hours,
    by accelerator; ``notes``: assumptions."""

    demand: dict[str, list[int]]
    source: str
    spot_share: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CapacityPlanList:
    """A plan for each accelerator with demand. ``demand_from``: where the demand is from. ``notes``: assumptions of all
    plans. Money in USD."""

    as_of: datetime
    demand_from: str
    hours_per_month: float
    plans: tuple[AcceleratorPlan, ...]
    notes: tuple[str, ...]


def plan_accelerators(
    broker: Broker,
    demand: Mapping[str, Sequence[int]],
    source: str,
    prices: StatedPrices,
    *,
    assumptions: Assumptions = DEFAULTS,
    providers: Sequence[str] = (),
    spot_share: float | Mapping[str, float] = 0.0,
    notes: Iterable[str] = (),
) -> CapacityPlanList:
    """One plan for each accelerator of ``demand``, within the limits of the active policies. ``providers``: the
    providers whose prices count; default: all. ``spot_share``: of bursts, for all or by accelerator; an observed share
    counts only if spot has a price. ``assumptions``: the life of a purchased GPU (``years``) and its ``watts``, with
    its share of the machine, and the price of electricity. Raises InvalidInput if an accelerator has no on-demand
    price."""
    from broker.app.market.market import freshen

    freshen(broker)
    now = broker.clock.now()
    holdings = broker.store.holdings()
    offers = _offers(broker, demand, providers)
    limits = CapacityLimits.of(broker.policy())
    plans, plan_notes = [], [*notes, *limits.notes()]
    for accelerator, hours in demand.items():
        own_holdings = [recorded for recorded in holdings if recorded.holding.accelerator == accelerator]
        basis = _rented_as_needed(term_prices(offers[accelerator], now, accelerator), offers[accelerator], hours)
        market = _burst_prices(accelerator, basis, prices, spot_share)
        for_sale = _purchase_options(accelerator, basis.terms, prices, market, assumptions)
        options, objections = limits.split_options(accelerator, for_sale, market)
        plan_notes += [*objections, *limits.rarely_needed_notes(accelerator, hours)]
        rent = basis.rent if _stated_price(prices.on_demand, accelerator) is None else None
        is_stated = prices.ratio is not None or _stated_price(prices.reserved, accelerator) is not None
        market_notes = () if is_stated else basis.notes
        rent_text = f"${market.on_demand:,.2f} per GPU-hour, as stated" if rent is None else rent.text
        plan_notes += [f"{accelerator}: {note}" for note in (f"rent: {rent_text}", *market_notes)]
        plan_notes += _unrecorded_note(broker, accelerator, own_holdings)
        expiring = _renewal_objections(limits, own_holdings, assumptions, market, now)
        plan_notes += expiring.values()
        plans.append(
            plan_capacity(
                accelerator, hours, now, market, options, own_holdings,
                kwh_usd=assumptions.kwh_usd, pue=assumptions.pue, least_use=limits.least_use,
                not_renewed=expiring.keys(),
            )
        )  # fmt: skip
    return CapacityPlanList(now, source, HOURS_PER_MONTH, tuple(plans), tuple(plan_notes))


def _renewal_objections(
    limits: CapacityLimits,
    holdings: Sequence[RecordedHolding],
    assumptions: Assumptions,
    market: BurstPrices,
    now: datetime,
) -> dict[int, str]:
    """The holdings that the policies forbid to renew unchanged, by number, with the reason."""
    objections: dict[int, str] = {}
    for recorded in holdings:
        holding = recorded.holding
        usd = holding.usd_per_gpu_hour + holding.energy_usd_per_gpu_hour(assumptions.kwh_usd, assumptions.pue)
        if holding.ends > now and (objection := limits.renewal_objection(recorded, usd, market)):
            objections[recorded.number] = objection
    return objections


def _unrecorded_note(broker: Broker, accelerator: str, holdings: Sequence[RecordedHolding]) -> list[str]:
    """A note on owned machines with offers: they count only once their cost and lifetime are recorded."""
    query = OfferQuery(accelerators=(accelerator,), capacity_types=(CapacityType.OWNED,))
    owned_offers = [offer for offer in broker.store.offers(query) if offer.money is not MoneyKind.SANDBOX]
    if not owned_offers or any(recorded.holding.kind is HoldingKind.OWNED for recorded in holdings):
        return []
    gpus = sum(offer.count * (offer.slots or 1) for offer in owned_offers)
    return [f"{accelerator}: {gpus} owned GPU(s) are not counted: record them with `gpubroker capacity add owned`"]


def demand_from_files(files: Sequence[tuple[str, Path]]) -> KnownDemand:
    """Demand by accelerator from files, each with a name for its series (empty: that of its file or column). Raises
    InvalidInput."""
    demand_by_accelerator: dict[str, list[int]] = {}
    notes = []
    for name, path in files:
        columns = read_demand([path])
        for series in columns:
            accelerator = _accelerator_name(name if len(columns) == 1 else "", series)
            if accelerator in demand_by_accelerator:
                raise InvalidInput(
                    f"two series for {accelerator}", where=str(path), hint="name them: --demand H100=FILE"
                )
            demand_by_accelerator[accelerator] = list(series.hours)
            notes += [f"{accelerator}: {note}" for note in series.notes]
            ends = f", {series.starts + len(series.hours) * HOUR:%Y-%m-%d %H:%M} UTC," if series.starts else ""
            notes.append(f"{accelerator}: the end of the file{ends} is taken as now")
    source = ", ".join(f"{name}={path}" if name else str(path) for name, path in files)
    return KnownDemand(demand_by_accelerator, source, notes=tuple(notes))


def demand_from_history(broker: Broker, since: datetime) -> KnownDemand:
    """The usage up to now, from the recorded attempts: the mean of each hour in whole GPUs, from the first usage after
    ``since`` (UTC). Simulated machines do not count. Raises InvalidInput without usage."""
    now = broker.clock.now()
    intervals: dict[str, list[Interval]] = {}
    rented_hours: dict[tuple[str, CapacityType], float] = {}
    attempts = 0
    with broker.store.reading() as reader:
        for machine_time in reader.machine_time(since=since):
            end = machine_time.until or now
            if not machine_time.card or end <= since:
                continue
            attempts += 1
            begin = max(machine_time.since, since)
            intervals.setdefault(machine_time.card, []).append((begin, end, machine_time.gpus))
            key = (machine_time.card, machine_time.capacity_type)
            rented_hours[key] = rented_hours.get(key, 0.0) + machine_time.gpus * ((end - begin) / HOUR)
    demand_by_accelerator = {}
    for name, accelerator_intervals in sorted(intervals.items()):
        first_hour = full_hour(min(start for start, _, _ in accelerator_intervals))
        if (hours := (full_hour(now) - first_hour) // HOUR) > 0:
            demand_by_accelerator[name] = list(hourly_usage(accelerator_intervals, first_hour, hours))
    if not demand_by_accelerator:
        raise InvalidInput(
            f"no GPU job ran for an hour since {since.astimezone(UTC):%Y-%m-%d}",
            hint="give the demand: --demand H100=FILE, one number of GPUs an hour",
        )
    return KnownDemand(
        demand_by_accelerator,
        f"{attempts} attempts on record here",
        {name: _spot_share(rented_hours, name) for name in demand_by_accelerator},
    )


def _spot_share(rented_hours: Mapping[tuple[str, CapacityType], float], accelerator: str) -> float:
    spot = rented_hours.get((accelerator, CapacityType.SPOT), 0.0)
    total_hours = spot + rented_hours.get((accelerator, CapacityType.ON_DEMAND), 0.0)
    return spot / total_hours if total_hours else 0.0


def _offers(broker: Broker, accelerators: Iterable[str], providers: Sequence[str]) -> dict[str, list[Offer]]:
    """The offers of each accelerator."""
    names = tuple(accelerators)
    offers_by_accelerator: dict[str, list[Offer]] = {name: [] for name in names}
    for offer in broker.store.offers(OfferQuery(accelerators=names, providers=tuple(providers))):
        offers_by_accelerator[str(offer.accelerator)].append(offer)
    known_providers = {offer.provider for offers in offers_by_accelerator.values() for offer in offers}
    for name in providers:
        if name not in known_providers and name not in broker.registries.providers:
            raise UnknownName("provider", name, [*broker.registries.providers, *known_providers], where="--where")
    return offers_by_accelerator


def _stated_price(prices: Mapping[str, float], accelerator: str) -> float | None:
    return prices.get(accelerator, prices.get(ANY_ACCELERATOR))


def _rented_as_needed(prices: TermPrices, offers: Sequence[Offer], demand: Sequence[int]) -> TermPrices:
    """The rent of the machine, of the same class and standing, with which this demand costs least: whole machines are
    rented, and for three GPUs three single ones may cost less than a part of a cheap machine of eight."""
    basis = prices.rent
    if basis is None or basis.offer.count == 1:
        return prices
    accelerator, machine_class = basis.offer.accelerator or "", MachineClass.of(basis.offer)
    others = (
        price_basis(offers, basis.now, accelerator, per_machine=size, machine_class=machine_class)
        for size in sorted({offer.count for offer in offers})
    )
    candidates = [basis, *(other for other in others if other is not None and other.standing is basis.standing)]
    sizes = {rent.offer.count: sum(ceil(gpus / rent.offer.count) for gpus in demand) for rent in candidates}
    return replace(prices, rent=min(candidates, key=lambda rent: machine_usd(rent.offer) * sizes[rent.offer.count]))


def _burst_prices(
    accelerator: str, basis: TermPrices, prices: StatedPrices, spot_share: float | Mapping[str, float]
) -> BurstPrices:
    def price(stated: Mapping[str, float], market: PriceBasis | None) -> float | None:
        stated_price = _stated_price(stated, accelerator)
        return stated_price if stated_price is not None or market is None else market.usd

    on_demand = price(prices.on_demand, basis.rent)
    if on_demand is None:
        raise InvalidInput(
            f"no on-demand price of {accelerator} is known",
            hint=f"give it: --on-demand-price {accelerator}=2.50 (USD per GPU-hour)",
        )
    spot = price(prices.spot, basis.spot)
    is_stated = _stated_price(prices.on_demand, accelerator) is not None
    lot = 1 if basis.rent is None or is_stated else basis.rent.offer.count
    if isinstance(spot_share, Mapping):
        spot_share = 0.0 if spot is None else spot_share.get(accelerator, 0.0)
    return BurstPrices(on_demand, spot, spot_share, lot)


def _purchase_options(
    accelerator: str,
    terms: Iterable[Offer],
    prices: StatedPrices,
    market: BurstPrices,
    assumptions: Assumptions,
) -> Iterable[PurchaseOption]:
    """The options of holding capacity: as stated, GPU by GPU, else the cheapest machine of each size for each of
    ``terms``; and machines to buy."""
    reserved_price = _stated_price(prices.reserved, accelerator)
    if reserved_price is None and prices.ratio is not None:
        reserved_price = positive("ratio", prices.ratio) * market.on_demand
    if reserved_price is not None:
        for term in prices.terms:
            yield PurchaseOption(f"reserved for {_days(term)} at the stated price", term, reserved_price)
    else:
        cheapest: dict[tuple[int, int], Offer] = {}
        for offer in terms:
            cheapest.setdefault((offer.term_months or 0, offer.count), offer)
        for (months, gpus), offer in sorted(cheapest.items()):
            name, usd = term_name(offer), usd_per_gpu_hour(offer)
            yield PurchaseOption(name, round(months * HOURS_PER_MONTH), usd, lot=gpus)
    purchase_price = _stated_price(prices.own, accelerator)
    if purchase_price is not None:
        hours = assumptions.years * HOURS_PER_YEAR
        energy = energy_usd_per_hour(assumptions.watts or 0.0, assumptions.kwh_usd, assumptions.pue)
        hourly_usd = positive("purchase price", purchase_price, "USD") / hours + energy
        yield PurchaseOption(f"bought, used for {_days(hours)}", round(hours), hourly_usd, HoldingKind.OWNED)


def _days(hours: float) -> str:
    days = hours / 24
    count, unit = (days / 365, "year") if days >= 365 and days % 365 == 0 else (days, "day")
    return f"{count:g} {unit}{'' if count == 1 else 's'}"


def _accelerator_name(name: str, series: Demand) -> str:
    """The accelerator of the given name, else of the name of the column or file; else the name itself, for which prices
    have to be stated."""
    for candidate in (name, series.column, series.name):
        try:
            return canonical(candidate)
        except UnknownName:
            continue
    return name or series.name


def check_prices(stated_prices: StatedPrices) -> StatedPrices:
    """The same value, after a check of every figure. Raises InvalidInput."""
    for option, option_prices in (
        ("--on-demand-price", stated_prices.on_demand),
        ("--spot-price", stated_prices.spot),
        ("--reserved-price", stated_prices.reserved),
        ("--own-price", stated_prices.own),
    ):
        for price in option_prices.values():
            positive(option, price, "USD")
    if stated_prices.ratio is not None:
        positive("--ratio", stated_prices.ratio, most=100)
    return stated_prices
