"""The cost of the same hours on owned, reserved, on-demand and spot machines, and what changes the answer.

Amounts USD, a year is 8,760 hours. Whole servers are bought and whole machines rented. A reservation is paid for every
hour of its term, used or not (take-or-pay), at the price of the day it starts; on-demand and spot for the hours in use.
Owning pays purchase, facilities, energy of the hours in use, staff of all hours, and rent until delivery; it gets the
resale value. Present values discount each month's money at its middle; totals are undiscounted. Costs are positive: the
smallest wins.

All inputs are rows of the table of assumptions; a way without a price is left out.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import Any

from broker.core.errors import InvalidInput
from broker.core.market.accelerators import Accelerator
from broker.core.market.offers import CapacityType
from broker.economics.assumptions import DEFAULTS, Assumptions, table
from broker.economics.energy import energy_usd_per_hour
from broker.economics.figures import Figure, RuleCheck, Share, Usd, usd_text
from broker.economics.units import HOURS_PER_MONTH, HOURS_PER_YEAR, ceil

WEEKS_PER_YEAR = HOURS_PER_YEAR / 168
DECLINES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
_VARIED = (
    "years", "utilization", "purchase_usd", "reserved_usd_per_hour", "rent_usd_per_hour", "spot_usd_per_hour", "watts",
    "kwh_usd", "pue", "staff_usd_per_gpu_hour", "resale_share", "discount_rate", "price_decline", "spot_overhead",
    "lead_time_weeks",
)  # fmt: skip
_STEPS = 60


class BuyOrRentVerdict(StrEnum):
    """The result of the comparison."""

    BUY = "buy"
    RENT = "rent"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class WayCost:
    """One way: the sum of what is paid, its present value, and the present value per GPU-hour in use."""

    way: CapacityType
    total_usd: Usd
    present_value_usd: Usd
    usd_per_used_gpu_hour: Usd


@dataclass(frozen=True, slots=True)
class TurningPoint:
    """An input alone, its current ``value``, the nearest value at which another way becomes cheapest, and that way."""

    input: str
    value: Figure
    flips_at: Figure
    then: CapacityType


@dataclass(frozen=True, slots=True)
class FallingRents:
    """The answer if rents fell by ``price_decline`` a year; ``rented_usd``: in the cheapest way, ``way``."""

    price_decline: Share
    owned_usd: Usd
    rented_usd: Usd
    way: CapacityType
    break_even_utilization: Share | None
    verdict: BuyOrRentVerdict


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Owning against renting by the hour: on demand, or on spot where only that has a price.

    ``utilization`` and ``hours_per_day``: above 1 and 24 owning never pays at this rent; None if an hour of owning
    costs more to run than to rent. ``rent_usd_per_hour``: of a machine, above which owning pays at the planned hours.
    ``payback_months``: until savings on rent cover the purchase less its resale value; None if not within the time.
    ``waiting_usd``: rent until delivery, part of owning. Monthly figures are averages at today's prices.
    """

    utilization: Share | None
    hours_per_day: Figure | None
    rent_usd_per_hour: Usd
    payback_months: Figure | None
    waiting_usd: Usd
    running_usd_per_month: Usd
    rent_usd_per_month: Usd

    @property
    def title(self) -> str:
        if self.utilization is None:
            return "Break-even of owning: never, an hour costs more to run than to rent"
        return f"Break-even of owning: {self.utilization:.1%} of all hours"


@dataclass(frozen=True, slots=True)
class BuyOrRent:
    """The ways, cheapest first. ``turning_points``: inputs that alone would change the answer, the nearest first;
    ``unaffected_by``: inputs that do not change it within a tenth to ten times their value."""

    verdict: BuyOrRentVerdict
    why: str
    machines: int
    used_gpu_hours: Figure
    ways: tuple[WayCost, ...]
    break_even: BreakEven | None
    falling_rents: tuple[FallingRents, ...]
    turning_points: tuple[TurningPoint, ...]
    unaffected_by: tuple[str, ...]
    rules_of_thumb: tuple[RuleCheck, ...]
    assumptions: tuple[str, ...]

    def present_value_usd(self, way: CapacityType) -> float:
        """The present value (USD) of the costs of a compared way."""
        return next(way_cost.present_value_usd for way_cost in self.ways if way_cost.way is way)


def share_in_use(case: Assumptions) -> float:
    """The share of all hours in use."""
    return case.utilization if case.hours_per_day is None else case.hours_per_day / 24


def cards_bought(card: Accelerator, gpus: int) -> int:
    """The cards that are bought for that many: modules (SXM, OAM) are soldered to boards of 4 or 8."""
    return ceil(gpus / 4) * 4 if card.form_factor in ("sxm", "oam") else gpus


def server(card: Accelerator, gpus: int, assumptions: Assumptions = DEFAULTS) -> tuple[float | None, float]:
    """The price of a server with `cards_bought` for that many at the middle of their street prices, None where these
    are not known, and the power in watts of that many in use."""
    watts = (card.tdp_w or 0.0) * gpus * assumptions.server_watts_per_card_watt
    if card.street_price is None:
        return None, watts
    return sum(card.street_price) / 2 * cards_bought(card, gpus) * assumptions.server_per_card_price, watts


def compare(case: Assumptions, *, vary: bool = True) -> BuyOrRent:
    """All ways with a price, break-evens, the effect of falling rents, and the inputs that would change the answer
    (unless ``vary`` is False, which is quick). Raises InvalidInput if no way has a price."""
    way_costs = priced_ways(case)
    if not way_costs:
        raise InvalidInput(
            "no price of owning or renting is known", hint="give --gpu, or --assume purchase_usd and rent_usd_per_hour"
        )
    verdict, reason = _verdict(case, way_costs)
    break_even = _break_even(case)
    turning, without_effect = _turning_points(case, way_costs) if vary else ((), ())
    return BuyOrRent(
        verdict=verdict,
        why=reason,
        machines=machines(case),
        used_gpu_hours=_gpus(case) * case.years * HOURS_PER_YEAR * share_in_use(case),
        ways=way_costs,
        break_even=break_even,
        falling_rents=tuple(_with_decline(case, decline) for decline in DECLINES) if break_even else (),
        turning_points=turning,
        unaffected_by=without_effect,
        rules_of_thumb=(*_thresholds(case, break_even), *applicable_rules(case, verdict)) if break_even else (),
        assumptions=tuple(_notes(case)),
    )


def machines(case: Assumptions) -> int:
    return ceil(_gpus(case) / _per_machine(case))


def priced_ways(case: Assumptions) -> tuple[WayCost, ...]:
    """The ways that have a price, cheapest first."""
    ways = {
        CapacityType.OWNED: None if _arrives_too_late(case) else case.purchase_usd,
        CapacityType.RESERVED: case.reserved_usd_per_hour,
        CapacityType.ON_DEMAND: case.rent_usd_per_hour,
        CapacityType.SPOT: case.spot_usd_per_hour,
    }
    way_costs = []
    used = _gpus(case) * case.years * HOURS_PER_YEAR * share_in_use(case)
    for way, price in ways.items():
        if price is not None:
            value = _way_cost(case, way, case.discount_rate)
            total = _way_cost(case, way, 0.0) if case.discount_rate else value
            way_costs.append(WayCost(way, total, value, value / used))
    return tuple(sorted(way_costs, key=lambda cost: cost.present_value_usd))


def applicable_rules(
    case: Assumptions, verdict: BuyOrRentVerdict | None = None, *, sensitive: bool = False
) -> tuple[RuleCheck, ...]:
    """Every quoted rule whose condition is met, and whether it agrees with the verdict. They may contradict each other:
    the arithmetic decides."""
    low, high, months = case.rent_below_hours_per_day, case.buy_above_hours_per_day, case.buy_for_months
    hours, bursty = 24 * share_in_use(case), case.peak_to_baseline > case.bursty_above_peak_to_baseline
    single = _gpus(case) == 1
    table = (
        (hours < low, f"under {low:g} h/day", "rent"),
        (
            single and low <= hours <= high and 12 * case.years >= months,
            f"{low:g}-{high:g} h/day on single cards for {months:g} months or more",
            "buy",
        ),
        (hours > high and case.years >= 2, f"more than {high:g} h/day for years", "buy"),
        (not single, "several GPUs", "rent"),
        (bursty, "a steady baseline plus bursts", "hybrid"),
        (
            case.years >= 3 and hours / 24 > case.buy_above_utilization,
            f"sustained utilization above {case.buy_above_utilization:.0%} over three years",
            "buy",
        ),
        (sensitive, "sensitive data", "on premises"),
    )
    verdict_text = (
        "" if verdict is None else f"at {hours:.1f} h/day for {case.years:g} years the arithmetic says {verdict}"
    )
    return tuple(
        RuleCheck(f"{rule}: {answer}", verdict_text, answer == verdict) for is_met, rule, answer in table if is_met
    )


def _gpus(case: Assumptions) -> int:
    return case.gpus or 1


def _per_machine(case: Assumptions) -> int:
    return case.gpus_per_machine or min(_gpus(case), case.gpus_per_node)


def _arrives_too_late(case: Assumptions) -> bool:
    return case.lead_time_weeks >= case.years * WEEKS_PER_YEAR


def _running_usd_per_hour(case: Assumptions) -> float:
    """The energy of a machine in use, USD per hour."""
    return energy_usd_per_hour(case.watts or 0.0, case.kwh_usd, case.pue)


def _flexible_rent(case: Assumptions) -> float | None:
    """Rent by the hour in use of a machine, USD; on spot with what is redone."""
    if case.rent_usd_per_hour is not None:
        return case.rent_usd_per_hour
    return None if case.spot_usd_per_hour is None else case.spot_usd_per_hour * (1 + case.spot_overhead)


def _fixed_cost(case: Assumptions, rate: float) -> float:
    """What owning a machine costs whatever its use."""
    resale = case.resale_share / math.pow(1 + rate, case.years)
    staff = _hours(case, rate).owned * (case.staff_usd_per_gpu_hour or 0.0) * _per_machine(case)
    return (case.purchase_usd or 0.0) * (1 - resale) + (case.facility_usd or 0.0) / machines(case) + staff


def _way_cost(case: Assumptions, way: CapacityType, rate: float) -> float:
    """The cost of a way (USD), discounted at ``rate`` a year."""
    hours, use = _hours(case, rate), share_in_use(case)
    if way is CapacityType.RESERVED:
        per_machine = (case.reserved_usd_per_hour or 0.0) * hours.reserved
    elif way is CapacityType.SPOT:
        per_machine = (case.spot_usd_per_hour or 0.0) * hours.rented * use * (1 + case.spot_overhead)
    elif way is CapacityType.ON_DEMAND:
        per_machine = (case.rent_usd_per_hour or 0.0) * hours.rented * use
    else:
        rent = _flexible_rent(case) or case.reserved_usd_per_hour or 0.0
        per_machine = _fixed_cost(case, rate) + use * (hours.owned * _running_usd_per_hour(case) + hours.waiting * rent)
    return per_machine * machines(case)


@dataclass(frozen=True, slots=True)
class _DiscountedHours:
    """Discounted hours: ``rented`` and ``waiting`` (until delivery) are also weighted by the fall of rents so far,
    ``reserved`` by the fall until its term began; ``owned``: after delivery."""

    rented: float
    reserved: float
    waiting: float
    owned: float


def _hours(case: Assumptions, rate: float) -> _DiscountedHours:
    return _discounted_hours(
        case.years, rate, case.price_decline, case.term_years, case.lead_time_weeks / WEEKS_PER_YEAR,
        case.obsolete_after_years, case.new_generation_speedup,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _discounted_hours(
    years: float, rate: float, decline: float, term: float, delivered: float, obsolete: float | None, faster: float
) -> _DiscountedHours:
    def rent_at(year: float) -> float:
        """The rent for an hour of today's work, as a share of today's: from ``obsolete`` years on a newer GPU does it
        ``faster`` at the same rent."""
        is_obsolete = obsolete is not None and year >= obsolete
        return math.pow(1 - decline, year) / (faster if is_obsolete else 1.0)

    rented = reserved = waiting = owned = 0.0
    for start, end in _months(years, delivered, obsolete):
        middle = (start + end) / 2
        worth = (end - start) * HOURS_PER_YEAR / math.pow(1 + rate, middle)
        rented += worth * rent_at(middle)
        reserved += worth * rent_at(math.floor(middle / term) * term)
        if middle < delivered:
            waiting += worth * rent_at(middle)
        else:
            owned += worth
    return _DiscountedHours(rented, reserved, waiting, owned)


def _months(years: float, delivered: float, obsolete: float | None) -> Iterator[tuple[float, float]]:
    """The time in slices of at most a month (begin and end in years), cut where a price changes."""
    cuts = {month / 12 for month in range(ceil(years * 12))} | {min(delivered, years), years}
    if obsolete is not None:
        cuts.add(min(obsolete, years))
    return pairwise(sorted(cuts))


def _break_even(case: Assumptions) -> BreakEven | None:
    rent = _flexible_rent(case)
    if case.purchase_usd is None or rent is None or _arrives_too_late(case):
        return None
    use, count = share_in_use(case), machines(case)
    hours, running, fixed = (
        _hours(case, case.discount_rate),
        _running_usd_per_hour(case),
        _fixed_cost(case, case.discount_rate),
    )
    share = _break_even_utilization(case)
    billed = use * (hours.rented - hours.waiting)
    return BreakEven(
        utilization=share,
        hours_per_day=None if share is None else 24 * share,
        rent_usd_per_hour=(fixed + use * running * hours.owned) / billed,
        payback_months=_payback(case, rent),
        waiting_usd=count * use * rent * _hours(case, 0.0).waiting,
        running_usd_per_month=count
        * HOURS_PER_MONTH
        * (use * running + (case.staff_usd_per_gpu_hour or 0.0) * _per_machine(case)),
        rent_usd_per_month=count * HOURS_PER_MONTH * use * rent,
    )


def _break_even_utilization(case: Assumptions) -> float | None:
    """The utilization at which both, linear in it, cost the same."""
    hours, rent = _hours(case, case.discount_rate), _flexible_rent(case) or 0.0
    saved = rent * (hours.rented - hours.waiting) - _running_usd_per_hour(case) * hours.owned
    return max(0.0, _fixed_cost(case, case.discount_rate)) / saved if saved > 0 else None


def _payback(case: Assumptions, rent: float) -> float | None:
    """Months until savings cover the capital; within a month by proportion."""
    uncovered = (case.purchase_usd or 0.0) * (1 - case.resale_share) + (case.facility_usd or 0.0) / machines(case)
    delivered = case.lead_time_weeks / WEEKS_PER_YEAR
    staff = (case.staff_usd_per_gpu_hour or 0.0) * _per_machine(case)
    for start, end in _months(case.years, delivered, case.obsolete_after_years):
        middle = (start + end) / 2
        if middle < delivered:
            continue
        is_obsolete = case.obsolete_after_years is not None and middle >= case.obsolete_after_years
        current_rent = (
            rent * math.pow(1 - case.price_decline, middle) / (case.new_generation_speedup if is_obsolete else 1.0)
        )
        saved = HOURS_PER_YEAR * (share_in_use(case) * (current_rent - _running_usd_per_hour(case)) - staff)
        if saved * (end - start) >= uncovered - 1e-9:
            return 12 * (start + (uncovered / saved if uncovered > 0 else 0.0))
        uncovered -= saved * (end - start)
    return None


def _verdict(case: Assumptions, way_costs: tuple[WayCost, ...]) -> tuple[BuyOrRentVerdict, str]:
    prices = {cost.way: f"{cost.way.value.replace('_', '-')} {usd_text(cost.present_value_usd)}" for cost in way_costs}
    reason = f"{', '.join(prices.values())} for the same hours, in today's money"
    if way_costs[0].way is not CapacityType.OWNED:
        return BuyOrRentVerdict.RENT, reason
    if case.peak_to_baseline > case.bursty_above_peak_to_baseline:
        return (
            BuyOrRentVerdict.HYBRID,
            f"{reason}; own the steady part and rent the bursts (peak is {case.peak_to_baseline:g}×)",
        )
    return BuyOrRentVerdict.BUY, reason


def _with_decline(case: Assumptions, decline: float) -> FallingRents:
    changed = replace(case, price_decline=decline)
    way_costs = priced_ways(changed)
    rented = next(cost for cost in way_costs if cost.way is not CapacityType.OWNED)
    return FallingRents(
        price_decline=decline,
        owned_usd=_way_cost(changed, CapacityType.OWNED, case.discount_rate),
        rented_usd=rented.present_value_usd,
        way=rented.way,
        break_even_utilization=_break_even_utilization(changed),
        verdict=_verdict(changed, way_costs)[0],
    )


def _thresholds(case: Assumptions, break_even: BreakEven | None) -> tuple[RuleCheck, ...]:
    share = None if break_even is None else break_even.utilization
    hours = math.inf if share is None else 24 * share
    finding = (
        "owning never pays: an hour costs more to run than to rent"
        if share is None
        else f"over {case.years:g} years owning pays above {hours:.1f} h/day ({share:.1%})"
        + (", more than a day has" if share > 1 else "")
    )
    low, high, utilization_limit = (
        case.rent_below_hours_per_day,
        case.buy_above_hours_per_day,
        case.buy_above_utilization,
    )
    return (
        RuleCheck(f"under {low:g} h/day: rent", finding, hours >= low),
        RuleCheck(f"above {low:g}-{high:g} h/day: buy", finding, hours <= high),
        RuleCheck(
            f"sustained utilization above {utilization_limit:.0%}: consider buying",
            finding,
            hours <= 24 * utilization_limit,
        ),
    )


def _notes(case: Assumptions) -> Iterator[str]:
    yield f"in use {24 * share_in_use(case):.1f} h/day for {case.years:g} years; a year is 8,760 hours"
    if case.purchase_usd is not None:
        yield (
            f"owning: ${case.kwh_usd:g}/kWh, PUE {case.pue:g}, {case.watts or 0:,.0f} W a machine, resale "
            f"{case.resale_share:.0%}, delivered after {case.lead_time_weeks:g} weeks"
            "; owned includes the rent until then (waiting); payback: months until saved rent covers the purchase less "
            "resale"
        )
    if _arrives_too_late(case):
        yield f"owning is left out: a machine would arrive after {case.lead_time_weeks:g} weeks (lead_time_weeks)"
    if case.reserved_usd_per_hour is not None:
        yield f"reserved: every hour is paid, in terms of {case.term_years:g} years"
    zero = {"discount rate": case.discount_rate, "price decline": case.price_decline}
    yield from (f"{name}: 0" for name, value in zero.items() if not value)
    if case.obsolete_after_years is None:
        yield "obsolescence: none within the time"


def _turning_points(
    case: Assumptions, way_costs: tuple[WayCost, ...]
) -> tuple[tuple[TurningPoint, ...], tuple[str, ...]]:
    """The inputs that alone change the answer, and those that do not."""
    case = replace(case, utilization=share_in_use(case), hours_per_day=None)
    flips, without_effect = [], []
    for name in _VARIED:
        value = float(getattr(case, name) or 0.0)
        if not value or len(way_costs) == 1:
            continue
        flip = _flip(case, name, value, way_costs[0].way)
        if flip is None:
            without_effect.append(name)
        else:
            flips.append(flip)
    return tuple(sorted(flips, key=lambda point: abs(math.log(point.flips_at / point.value)))), tuple(without_effect)


def _flip(case: Assumptions, name: str, value: float, winner: CapacityType) -> TurningPoint | None:
    """The nearest value, up or down to ten times, at which another way wins; found on a grid, then halved."""
    values = table()[name].range

    def wins(changed: float) -> CapacityType:
        varied: dict[str, Any] = {name: changed}
        return priced_ways(replace(case, **varied))[0].way

    points = []
    for direction in (1, -1):
        previous = value
        for step in range(1, _STEPS + 1):
            candidate = max(values.least, min(values.most, value * 10 ** (direction * step / _STEPS)))
            if candidate == previous or not candidate:
                break
            way = wins(candidate)
            if way is not winner:
                flip_value = _bisect(previous, candidate, lambda item: wins(item) is winner)
                points.append(TurningPoint(name, value, flip_value, wins(flip_value) or way))
                break
            previous = candidate
    return min(points, key=lambda item: abs(math.log(item.flips_at / value)), default=None)


def _bisect(passing: float, failing: float, passes: Callable[[float], bool]) -> float:
    """The first value that fails, to a thousandth."""
    while abs(failing / passing - 1) > 1e-3:
        middle = math.sqrt(passing * failing)
        if passes(middle):
            passing = middle
        else:
            failing = middle
    return failing
