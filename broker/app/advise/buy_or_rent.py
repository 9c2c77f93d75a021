"""Compares the same GPUs owned, reserved, on demand and on spot, at current prices of machines of one class."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

from broker.app.advise.history import PastUse
from broker.app.advise.prices import CurrentPrices
from broker.core.errors import InvalidInput
from broker.core.market.accelerators import lookup
from broker.core.market.offers import CapacityType
from broker.core.market.price_basis import MachineClass, machine_usd
from broker.core.values.figures import plural
from broker.economics.assumptions import Assumptions, override
from broker.economics.buy_or_rent import BuyOrRent, cards_bought, compare, priced_ways, server
from broker.economics.figures import HIDDEN, Figure, Usd, usd_text
from broker.economics.unit_cost import with_middle_overheads

_PRICE_ASSUMPTIONS = {
    CapacityType.RESERVED: "reserved_usd_per_hour",
    CapacityType.ON_DEMAND: "rent_usd_per_hour",
    CapacityType.SPOT: "spot_usd_per_hour",
}


@dataclass(frozen=True, slots=True)
class HoursCost:
    """The present value of the cheapest owned and rented way at that many hours in use per day; null without a
    price."""

    hours_per_day: Figure
    owned_usd: Usd | None
    rented_usd: Usd | None


@dataclass(frozen=True, slots=True)
class BuyOrRentAdvice:
    """The comparison for ``gpus``. ``provider``: of the machine on demand; null without such a price. ``usage``:
    recorded use, only if requested."""

    gpu: str | None
    gpus: Annotated[int, HIDDEN]
    gpus_per_machine: int
    provider: str | None
    comparison: BuyOrRent
    usage: PastUse | None
    by_hours: Annotated[tuple[HoursCost, ...], HIDDEN]
    assumptions: tuple[str, ...]

    @property
    def title(self) -> str:
        best = self.comparison.ways[0]
        machines = f"{plural(self.gpus, 'GPU')} in {plural(self.comparison.machines, 'machine')}"
        way = best.way.value.replace("_", "-").capitalize()
        return f"{way} is cheapest: {usd_text(best.present_value_usd)} for {machines}"


def buy_or_rent(
    gpu: str | None,
    prices: Callable[[], CurrentPrices],
    assumptions: Assumptions,
    usage: PastUse | None = None,
) -> BuyOrRentAdvice:
    """The advice. Missing prices of a machine with that accelerator are those of the market, in full where the smallest
    that is for rent has more GPUs than needed, and of a whole board where cards are sold on boards. Several machines of
    the largest size where none has as many as needed. With an accelerator, staff and facilities that are not stated
    are the middle of quoted ranges. Raises `InvalidInput` if no price is known."""
    inputs = assumptions
    gpus = inputs.gpus or 1
    per_machine = inputs.gpus_per_machine or min(gpus, inputs.gpus_per_node)
    notes: list[str] = []
    market = None if gpu is None else prices()
    sizes = [offer.count for offer in market.offers.get(gpu or "", ())] if market else []
    if inputs.gpus_per_machine is None and (largest := max(sizes, default=per_machine)) < per_machine:
        notes.append(f"no machine with {per_machine} {gpu} is for rent: machines with {largest}")
        per_machine = largest
    case = replace(inputs, gpus=gpus, gpus_per_machine=per_machine)
    if usage is not None:
        case = replace(case, utilization=usage.utilization, hours_per_day=None, peak_to_baseline=usage.peak_to_baseline)
        notes.append(usage.text)
    provider = None
    if gpu is not None and market is not None:
        case = _add_purchase(case, gpu, notes)
        case, provider = _add_rents(case, gpu, market, notes)
        case, stated = replace(case, **_overheads(with_middle_overheads(case))), case
        notes += _without_overheads(case, stated)
    comparison = compare(case)
    return BuyOrRentAdvice(
        gpu=gpu,
        gpus=gpus,
        gpus_per_machine=per_machine,
        provider=provider,
        comparison=comparison,
        usage=usage,
        by_hours=tuple(_hours_cost(case, hours) for hours in range(1, 25)),
        assumptions=(*notes, *comparison.assumptions),
    )


def _without_overheads(case: Assumptions, stated: Assumptions) -> list[str]:
    """The overheads of owning that are not stated, and the result without them: a server in a room that exists, with
    people who are there, has none."""
    if case.purchase_usd is None or (without := replace(case, **_overheads(stated))) == case:
        return []
    costs = {cost.way: cost.present_value_usd for cost in priced_ways(without)}
    best, owned = min(costs, key=lambda way: costs[way]), costs.get(CapacityType.OWNED)
    if owned is None:
        return []
    return [
        f"staff {usd_text(case.staff_usd_per_gpu_hour or 0)} per GPU-hour and facilities "
        f"{usd_text(case.facility_usd or 0)}: the middle of quoted ranges, as in `gpubroker advise cost cluster`, "
        f"unless stated; with 0 instead, owning costs {usd_text(owned)} in present value: {_way_name(best)} is cheapest"
    ]


def _overheads(case: Assumptions) -> dict[str, Any]:
    return {"staff_usd_per_gpu_hour": case.staff_usd_per_gpu_hour, "facility_usd": case.facility_usd}


def _hours_cost(case: Assumptions, hours: int) -> HoursCost:
    """Both at that many hours in use per day."""
    way_costs = priced_ways(replace(case, hours_per_day=float(hours)))
    owned = [way_cost.present_value_usd for way_cost in way_costs if way_cost.way is CapacityType.OWNED]
    rented = [way_cost.present_value_usd for way_cost in way_costs if way_cost.way is not CapacityType.OWNED]
    return HoursCost(hours, min(owned, default=None), min(rented, default=None))


def _add_purchase(case: Assumptions, gpu: str, notes: list[str]) -> Assumptions:
    """The case with the price of a server and its power, if they are not stated."""
    card, per_machine = lookup(gpu), case.gpus_per_machine or 1
    price, watts = server(card, per_machine, case)
    if case.watts is None:
        case = replace(case, watts=watts)
        notes.append(f"power of a machine in use: {watts:,.0f} W")
    if case.purchase_usd is None and price is not None:
        case = replace(case, purchase_usd=price)
        bought = cards_bought(card, per_machine)
        notes.append(
            f"purchase: ${price:,.0f}, {bought} × the middle of street prices of {card.name}, "
            f"× {case.server_per_card_price:g} for the rest of the server"
        )
        if bought > per_machine:
            notes[-1] += f"; sold on boards: {per_machine} needed, all {bought} are paid for"
    return case


def _add_rents(case: Assumptions, gpu: str, prices: CurrentPrices, notes: list[str]) -> tuple[Assumptions, str | None]:
    """The case with the missing rents of a machine, on demand, reserved and on spot of machines of the same class, and
    the provider of the machine on demand."""
    per_machine = case.gpus_per_machine or 1
    missing = [way for way, row in _PRICE_ASSUMPTIONS.items() if getattr(case, row) is None]
    if not missing:
        return case, None
    if case.rent_usd_per_hour is None and gpu in prices.stated:
        case = override({"rent_usd_per_hour": prices.stated[gpu] * per_machine}, base=case)
        missing.remove(CapacityType.ON_DEMAND)
    rent = prices.basis(gpu, CapacityType.ON_DEMAND, per_machine)
    machine_class = None if rent is None else MachineClass.of(rent.offer)
    omitted = []
    for way in missing:
        is_rent = way is CapacityType.ON_DEMAND
        basis = rent if is_rent else _within(prices, case.years).basis(gpu, way, per_machine, machine_class)
        if basis is None:
            omitted.append(_way_name(way))
            continue
        offer, usd = basis.offer, machine_usd(basis.offer)
        case = override({_PRICE_ASSUMPTIONS[way]: usd}, base=case)
        details = [f"{_way_name(way)}: ${usd:,.2f}/h of {offer.machine} ({basis.origin})"]
        if offer.term_months:
            case = replace(case, term_years=offer.term_months / 12)
            details[0] += f", term {offer.term_months} months"
        if offer.count > per_machine:
            details.append(f"sold as {offer.count} GPUs, {per_machine} needed: all {offer.count} are paid for")
        notes.append("; ".join(filter(None, (*details, basis.left_out))))
    if len(omitted) == len(_PRICE_ASSUMPTIONS) or (omitted == list(map(_way_name, missing)) and not case.purchase_usd):
        raise InvalidInput(
            f"no price of {gpu}:{per_machine} is known",
            hint="run `gpubroker prices poll`, name another size with --assume gpus_per_machine=N, or give the prices",
        )
    if omitted:
        notes.append(f"no {' and no '.join(omitted)} price of such a machine: omitted")
    share = case.spot_overhead_on(gpu, min(case.gpus or 1, per_machine))[0]
    if case.spot_usd_per_hour is not None:
        notes.append(case.spot_text(gpu, min(case.gpus or 1, per_machine)))
    return replace(case, spot_overhead=share), None if rent is None else rent.offer.provider


def _within(prices: CurrentPrices, years: float) -> CurrentPrices:
    """The prices without reservations for a longer time than ``years``."""
    return replace(
        prices,
        offers={
            name: [offer for offer in offers if (offer.term_months or 0) <= 12 * years]
            for name, offers in prices.offers.items()
        },
    )


def _way_name(way: CapacityType) -> str:
    return way.value.replace("_", "-")
