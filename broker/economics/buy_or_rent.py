"""Buy or rent: the cost of the same hours owned and rented, over the time they are needed.

Amounts USD, rates per hour, a year is 8,760 hours. Present values discount month by month at (1 + yearly rate)^(1/12),
each month's money at its middle; totals are undiscounted. Costs are positive: the smaller total wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from broker.core.errors import InvalidInput
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.claims import RuleCheck
from broker.economics.estimates import about
from broker.economics.unit_cost import energy_usd_per_hour
from broker.economics.units import (
    HOURS_PER_MONTH,
    HOURS_PER_YEAR,
    MOST_USD,
    at_least_one,
    fraction,
    not_negative,
    positive,
)

WEEKS_PER_YEAR = HOURS_PER_YEAR / 168
DECLINES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


class BuyOrRentVerdict(StrEnum):
    """The result of the comparison."""

    BUY = "buy"
    RENT = "rent"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class BuyOrRentInputs:
    """The inputs. All but price, rent and time are optional and default to 0.

    ``years``: how long the capacity is needed, from today. ``utilisation``: share of all hours in use (hours per day ÷
    24). ``watts``, ``kwh_usd``, ``pue``: energy while in use. ``staff_usd_per_hour``: of owning, per hour in use.
    ``facility_usd``: once. ``resale_usd``: at the end. ``price_decline``: yearly decline of rents (0 to 1).
    ``lead_time_weeks``: until delivery; the same hours are rented meanwhile. ``obsolete_after_years`` and
    ``new_generation_speedup``: from then on a newer card does the work that many times faster at the same rent, so the
    same work is rented for that much less. ``peak_to_baseline``: peak demand ÷ steady demand, 1 for steady use.
    ``take_or_pay``: the rent is a commitment, paid for every hour, used or not. Raises InvalidInput.
    """

    purchase_usd: float
    rent_usd_per_hour: float
    years: float
    utilisation: float = 1.0
    watts: float = 0.0
    kwh_usd: float = 0.0
    pue: float = 1.0
    resale_usd: float = 0.0
    staff_usd_per_hour: float = 0.0
    facility_usd: float = 0.0
    discount_rate: float = 0.0
    price_decline: float = 0.0
    lead_time_weeks: float = 0.0
    obsolete_after_years: float | None = None
    new_generation_speedup: float = 1.0
    peak_to_baseline: float = 1.0
    take_or_pay: bool = False

    def __post_init__(self) -> None:
        positive("purchase price", self.purchase_usd, "USD", most=MOST_USD)
        positive("rent", self.rent_usd_per_hour, "USD per hour", most=MOST_USD)
        positive("years", self.years, most=50)
        fraction("utilisation", self.utilisation)
        energy_usd_per_hour(self.watts, self.kwh_usd, self.pue)
        not_negative("staff", self.staff_usd_per_hour, "USD per hour")
        not_negative("facility", self.facility_usd, "USD", most=MOST_USD)
        not_negative("resale value", self.resale_usd, "USD", most=self.purchase_usd)
        not_negative("discount rate", self.discount_rate, most=1)
        not_negative("price decline", self.price_decline, most=0.99)
        positive("new generation's speed", self.new_generation_speedup, most=1000)
        at_least_one("peak to baseline", self.peak_to_baseline)
        if not_negative("lead time", self.lead_time_weeks, "weeks") >= self.years * WEEKS_PER_YEAR:
            raise InvalidInput(
                f"lead time: {self.lead_time_weeks:g} weeks is longer than the {self.years:g} years it is needed for",
                hint="rent: the machine would arrive after the need has ended",
            )
        if self.obsolete_after_years is not None:
            not_negative("years until obsolete", self.obsolete_after_years)

    @property
    def billed(self) -> float:
        """The share of all hours that rent is paid for."""
        return 1.0 if self.take_or_pay else self.utilisation

    @property
    def running_usd_per_hour(self) -> float:
        """The owner's cost per hour in use: energy and staff."""
        return energy_usd_per_hour(self.watts, self.kwh_usd, self.pue) + self.staff_usd_per_hour


def utilisation_of(hours_per_day: float) -> float:
    """Hours per day (above 0, up to 24) as a share of all hours. Raises InvalidInput."""
    return positive("hours per day", hours_per_day, most=24) / 24


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The answer if rents fell by ``price_decline`` a year."""

    price_decline: float
    own_npv_usd: float
    rent_npv_usd: float
    break_even_utilisation: float | None
    verdict: BuyOrRentVerdict


@dataclass(frozen=True, slots=True)
class BuyOrRentTotals:
    """Totals and present values of both ways (USD, costs positive), and their break-even points.

    ``break_even_utilisation`` and ``break_even_hours_per_day``: above 1 and 24 owning never pays at this rent; None if
    an hour of owning costs more to run than to rent. ``break_even_rent_usd_per_hour``: the rent above which owning pays
    at the planned hours. ``payback_months``: until savings on rent cover the purchase less its resale value; None if
    not within the time. ``waiting_usd``: rent until delivery, part of owning.
    """

    own_total_usd: float
    rent_total_usd: float
    own_npv_usd: float
    rent_npv_usd: float
    waiting_usd: float
    hours: float
    break_even_utilisation: float | None
    break_even_hours_per_day: float | None
    break_even_rent_usd_per_hour: float
    payback_months: float | None
    verdict: BuyOrRentVerdict
    why: str
    assumptions: tuple[str, ...]
    rules_of_thumb: tuple[RuleCheck, ...]
    sensitivity: tuple[Sensitivity, ...]


def buy_or_rent(case: BuyOrRentInputs, rules: Assumptions = DEFAULTS) -> BuyOrRentTotals:
    """Compares both ways, checks the rules of thumb against the result, and varies the decline of rents."""
    flows = _flows(case, case.discount_rate)
    plain = flows if case.discount_rate == 0 else _flows(case, 0.0)
    break_even = flows.break_even_utilisation
    verdict, why = _verdict(case, flows, rules)
    return BuyOrRentTotals(
        own_total_usd=plain.own(case.utilisation),
        rent_total_usd=plain.rent(case.utilisation),
        own_npv_usd=flows.own(case.utilisation),
        rent_npv_usd=flows.rent(case.utilisation),
        waiting_usd=plain.waiting * case.utilisation,
        hours=case.utilisation * case.years * HOURS_PER_YEAR,
        break_even_utilisation=break_even,
        break_even_hours_per_day=None if break_even is None else 24 * break_even,
        break_even_rent_usd_per_hour=_break_even_rent(case, flows),
        payback_months=_payback(case),
        verdict=verdict,
        why=why,
        assumptions=_assumptions(case),
        rules_of_thumb=() if case.take_or_pay else _rules(break_even, rules),
        sensitivity=tuple(_with_decline(case, decline, rules) for decline in DECLINES),
    )


@dataclass(frozen=True, slots=True)
class _Flows:
    """Present values. ``capital``: purchase and facilities less resale. The others assume that every hour is used: the
    owner's running cost after delivery, the owner's rent before delivery, and rent throughout.
    """

    capital: float
    running: float
    waiting: float
    renting: float
    take_or_pay: bool

    def own(self, utilisation: float) -> float:
        return self.capital + utilisation * (self.running + self.waiting)

    def rent(self, utilisation: float) -> float:
        return self.renting if self.take_or_pay else utilisation * self.renting

    @property
    def break_even_utilisation(self) -> float | None:
        """The utilisation at which both, linear in it, cost the same. None for a commitment: its cost does not depend
        on use, so more use never makes owning pay."""
        if self.take_or_pay:
            return None
        saved = self.renting - self.running - self.waiting
        return max(0.0, self.capital) / saved if saved > 0 else None


def _flows(case: BuyOrRentInputs, discount_rate: float) -> _Flows:
    running = waiting = renting = 0.0
    delivered = case.lead_time_weeks / WEEKS_PER_YEAR
    for start, end in _months(case):
        middle = (start + end) / 2
        hours = (end - start) * HOURS_PER_YEAR / (1 + discount_rate) ** middle
        rent = hours * _rent_at(case, middle)
        renting += rent
        if middle < delivered:
            waiting += rent
        else:
            running += hours * case.running_usd_per_hour
    resale = case.resale_usd / (1 + discount_rate) ** case.years
    return _Flows(case.purchase_usd + case.facility_usd - resale, running, waiting, renting, case.take_or_pay)


def _months(case: BuyOrRentInputs) -> Iterator[tuple[float, float]]:
    """The time in slices of at most a month (begin and end in years), cut where a price changes."""
    cuts = {index / 12 for index in range(int(case.years * 12) + 1)} | {case.years}
    cuts |= {min(case.years, case.lead_time_weeks / WEEKS_PER_YEAR)}
    if case.obsolete_after_years is not None:
        cuts |= {min(case.years, case.obsolete_after_years)}
    return pairwise(sorted(cuts))


def _rent_at(case: BuyOrRentInputs, year: float) -> float:
    """The rent for an hour of today's work after ``year`` years, USD."""
    rent: float = case.rent_usd_per_hour * (1 - case.price_decline) ** year
    if case.obsolete_after_years is not None and year >= case.obsolete_after_years:
        rent /= case.new_generation_speedup
    return rent


def _break_even_rent(case: BuyOrRentInputs, flows: _Flows) -> float:
    """Today's rent at which both cost the same; the owner also pays rent until delivery."""
    billed = case.billed * flows.renting - case.utilisation * flows.waiting
    return case.rent_usd_per_hour * (flows.capital + case.utilisation * flows.running) / billed


def _payback(case: BuyOrRentInputs) -> float | None:
    """Months until savings cover the capital; within a month by proportion."""
    missing = case.purchase_usd + case.facility_usd - case.resale_usd
    delivered = case.lead_time_weeks / WEEKS_PER_YEAR
    for start, end in _months(case):
        middle = (start + end) / 2
        if middle < delivered:
            continue
        rent, running = case.billed * _rent_at(case, middle), case.utilisation * case.running_usd_per_hour
        saved_per_year = HOURS_PER_YEAR * (rent - running)
        if saved_per_year * (end - start) >= missing - 1e-9:
            return 12 * (start + (missing / saved_per_year if missing > 0 else 0.0))
        missing -= saved_per_year * (end - start)
    return None


def _verdict(case: BuyOrRentInputs, flows: _Flows, rules: Assumptions) -> tuple[BuyOrRentVerdict, str]:
    own, rent = flows.own(case.utilisation), flows.rent(case.utilisation)
    owning = f"owning costs {about(own)} against {about(rent)} of rent for the same hours, in today's money"
    if case.peak_to_baseline > rules.bursty_above_peak_to_baseline and own < rent:
        return (
            BuyOrRentVerdict.HYBRID,
            f"{owning}; own the steady part and rent the bursts (peak is {case.peak_to_baseline:g}×)",
        )
    return (BuyOrRentVerdict.BUY if own < rent else BuyOrRentVerdict.RENT), owning


def _assumptions(case: BuyOrRentInputs) -> tuple[str, ...]:
    zero = {
        "energy": case.watts * case.kwh_usd,
        "staff": case.staff_usd_per_hour,
        "facilities": case.facility_usd,
        "resale value": case.resale_usd,
        "discount rate": case.discount_rate,
        "price decline": case.price_decline,
        "lead time": case.lead_time_weeks,
    }
    notes = [f"{name}: 0" for name, value in zero.items() if not value]
    if case.pue == 1:
        notes.append("PUE: 1")
    if case.obsolete_after_years is None:
        notes.append("obsolescence: none within the time")
    if case.utilisation == 1:
        notes.append("utilisation: every hour of the day")
    if case.take_or_pay:
        notes.append("rent: a commitment, paid for every hour, used or not")
    notes.append(f"in use {24 * case.utilisation:.1f} h/day for {case.years:g} years; a year is 8,760 hours")
    return tuple(notes)


def _rules(break_even: float | None, rules: Assumptions) -> tuple[RuleCheck, ...]:
    """The quoted thresholds, compared with the break-even of this case."""
    hours = float("inf") if break_even is None else 24 * break_even
    says = (
        "owning never pays: an hour costs more to run than to rent"
        if break_even is None
        else f"owning pays above {hours:.1f} h/day ({break_even:.1%})"
        + (", more than a day has" if break_even > 1 else "")
    )
    low, high = rules.rent_below_hours_per_day, rules.buy_above_hours_per_day
    most = rules.buy_above_utilization
    return (
        RuleCheck(f"under {low:g} h/day: rent", says, hours >= low),
        RuleCheck(f"above {low:g}-{high:g} h/day: buy", says, hours <= high),
        RuleCheck(f"sustained utilisation above {most:.0%}: buying is worth the arithmetic", says, hours <= 24 * most),
    )


def _with_decline(case: BuyOrRentInputs, decline: float, rules: Assumptions) -> Sensitivity:
    changed = replace(case, price_decline=decline)
    flows = _flows(changed, changed.discount_rate)
    return Sensitivity(
        price_decline=decline,
        own_npv_usd=flows.own(case.utilisation),
        rent_npv_usd=flows.rent(case.utilisation),
        break_even_utilisation=flows.break_even_utilisation,
        verdict=_verdict(changed, flows, rules)[0],
    )


def monthly_usd(case: BuyOrRentInputs) -> tuple[float, float]:
    """An average month's running cost owned, and its rent at today's price, at the planned hours (USD)."""
    return (
        case.utilisation * HOURS_PER_MONTH * case.running_usd_per_hour,
        case.billed * HOURS_PER_MONTH * case.rent_usd_per_hour,
    )
