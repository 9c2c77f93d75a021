"""The cost of a purchase rule on an hourly demand, measured in the same way for all rules.

- Costs are multiples of one on-demand unit-hour. A reserved unit costs ``ratio`` for every hour of its term, used or
  not; demand above the holdings costs 1 per hour.
- There are no holdings at first. Hours before ``warm_up`` are history: a rule may learn from them, and they cost
  nothing.
- At the start of an hour a rule knows the demand of all hours before it and buys; a purchase serves from that hour on,
  for the term.
- End unknown: no rule knows the end of the series, and terms beyond it are charged pro rata. End known: the rules know
  it, and every term is charged in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.core.errors import InvalidInput
from broker.economics.units import not_negative, positive, whole


class Buyer(Protocol):
    """A purchase rule, called once an hour, in order."""

    def remember(self, history: Iterable[float]) -> None:
        """Demand before the first counted hour, oldest first."""

    def buy(self, stock: Stock, hour: int, hours_left: int | None) -> int:
        """Units to buy at the start of ``hour``. ``hours_left``: to the end, if known."""

    def observe(self, demand: float, held: int) -> None:
        """The demand of the hour, and the units that served it."""


@dataclass(frozen=True, slots=True)
class ReserveTerms:
    """``term``: hours a purchase lasts. ``ratio``: price of a reserved unit-hour over that of an on-demand one."""

    term: int
    ratio: float
    end_known: bool = False

    def __post_init__(self) -> None:
        whole("term", self.term)
        positive("ratio", self.ratio, most=100)

    def fee(self, hour: int, hours: int) -> float:
        """The cost of a unit bought at ``hour`` of a series of ``hours``."""
        return self.ratio * (self.term if self.end_known else min(self.term, hours - hour))


@dataclass(frozen=True, slots=True)
class PurchaseOutcome:
    """``purchases``: (hour, units), hours counted from the first one that costs. ``held``: units per hour.

    ``reserved`` and ``on_demand``: the two parts of the cost. ``idle``: reserved unit-hours that nothing used.
    """

    reserved: float
    on_demand: float
    idle: float
    purchases: tuple[tuple[int, int], ...]
    held: tuple[int, ...]

    @property
    def cost(self) -> float:
        return self.reserved + self.on_demand


def replay(buyer: Buyer, demand: Sequence[float], terms: ReserveTerms, *, warm_up: int = 0) -> PurchaseOutcome:
    """Run ``buyer`` over ``demand`` from hour ``warm_up`` on. Raises InvalidInput for demand that is negative or no
    number, and for a warm-up that leaves nothing to measure."""
    check_demand(demand, warm_up)
    buyer.remember(demand[:warm_up])
    counted = demand[warm_up:]
    stock, purchases = Stock(), []
    for hour, demanded in enumerate(counted):
        units = buyer.buy(stock, hour, len(counted) - hour if terms.end_known else None)
        if units > 0:
            stock.add(units, hour + terms.term)
            purchases.append((hour, units))
        buyer.observe(demanded, stock.held(hour))
    return charge(purchases, counted, terms)


def charge(purchases: Iterable[tuple[int, int]], demand: Sequence[float], terms: ReserveTerms) -> PurchaseOutcome:
    """The cost of ``purchases`` on ``demand``; every hour counts."""
    all_purchases = tuple(purchases)
    stock = Stock()
    for hour, units in sorted(all_purchases):
        stock.add(units, hour + terms.term)
    starts = [0] * len(demand)
    for hour, units in all_purchases:
        starts[hour] += units
    held, future = [], sum(starts)
    for hour, units in enumerate(starts):
        future -= units
        held.append(stock.held(hour) - future)
    return PurchaseOutcome(
        reserved=sum(units * terms.fee(hour, len(demand)) for hour, units in all_purchases),
        on_demand=sum(max(needed - held_units, 0) for needed, held_units in zip(demand, held, strict=True)),
        idle=sum(max(held_units - needed, 0) for needed, held_units in zip(demand, held, strict=True)),
        purchases=all_purchases,
        held=tuple(held),
    )


def check_demand(demand: Sequence[float], warm_up: int = 0) -> None:
    """Raises InvalidInput unless every hour's demand is a number of 0 or more and some hours count."""
    if not 0 <= warm_up < len(demand):
        raise InvalidInput(
            f"a warm-up of {warm_up} h leaves nothing of {len(demand)} h of demand to measure",
            hint="give a longer series or a shorter warm-up",
        )
    for hour, value in enumerate(demand):
        not_negative(f"demand of hour {hour}", value)


class Stock:
    """Holdings over time. Hours count from 0; a unit bought ``until`` hour 5 serves through hour 4."""

    def __init__(self) -> None:
        self._bought = 0
        self._lapsed = [0]  # units, of all ever bought, that have lapsed at the start of each hour; then constant

    def add(self, units: int, until: int) -> None:
        """``units`` more that lapse at the start of hour ``until``."""
        final = self._lapsed[-1]
        self._lapsed += [final] * (until + 1 - len(self._lapsed))
        for hour in range(until, len(self._lapsed)):
            self._lapsed[hour] += units
        self._bought += units

    def held(self, hour: int) -> int:
        """Units that serve ``hour``."""
        return self._bought - self._gone(hour)

    def lapsing(self, hour: int, within: int) -> int:
        """Units that serve ``hour`` but not ``within`` hours later."""
        return self._gone(hour + within) - self._gone(hour)

    def _gone(self, hour: int) -> int:
        return self._lapsed[min(hour, len(self._lapsed) - 1)]
