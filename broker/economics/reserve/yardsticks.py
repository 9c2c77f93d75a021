"""References for the planner: purchase rules from the literature and common practice, and the minimum cost of a known
demand, a linear programme, solved by HiGHS through SciPy.

With r units bought, a held and o rented on demand in each hour t of T::

    minimise   Σ fee(t) · r(t) + Σ o(t)
    subject to a(t) = a(t − 1) + r(t) − r(t − term),   a(t) + o(t) ≥ demand(t),   r, a, o ≥ 0

The matrix is a network's, so whole demand has a whole optimum, and no rule can cost less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from importlib.util import find_spec

from broker.core.errors import GiveUp, InvalidInput, MissingExtra
from broker.economics.reserve.replay import PurchaseOutcome, ReserveTerms, Stock, charge, checked
from broker.economics.reserve.windows import SlidingWindow

STAGGERED_EVERY = 24
STAGGERED_HOURS = 168


class OnDemand:
    """Reserves nothing."""

    def remember(self, history: Iterable[float]) -> None:
        pass

    def buy(self, stock: Stock, hour: int, hours_left: int | None) -> int:
        return 0

    def observe(self, demand: float, held: int) -> None:
        pass


class StaggeredQuantile:
    """Once a day, fills up to the (1 − ρ)-quantile of the last week's demand."""

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio
        self._week = SlidingWindow(STAGGERED_HOURS)

    def remember(self, history: Iterable[float]) -> None:
        self._week.extend(list(history))

    def buy(self, stock: Stock, hour: int, hours_left: int | None) -> int:
        if hour % STAGGERED_EVERY or not len(self._week) or self._ratio > 1:
            return 0
        return max(math.floor(self._week.level(self._ratio)) - stock.held(hour), 0)

    def observe(self, demand: float, held: int) -> None:
        self._week.add(demand)


class BreakEven:
    """The online rule of Wang, Li and Liang, "To Reserve or Not to Reserve: Optimal Online Multi-Instance Acquisition
    in IaaS Clouds" (ICAC 2013), for reservations that are paid whole, used or not.

    Buys another unit once ``threshold`` hours of the last term were paid on demand at its level; then the past counts
    as if it had been covered. With the break-even point as threshold, ρ · term, it costs at most twice the optimum.
    It uses no history before the first counted hour."""

    def __init__(self, term: int, threshold: float) -> None:
        self._bearable = math.floor(threshold)
        self._uncovered = SlidingWindow(
            term
        )  # demand above what was held, each as it was plus `_bought` of that moment
        self._bought = 0

    def remember(self, history: Iterable[float]) -> None:
        pass

    def buy(self, stock: Stock, hour: int, hours_left: int | None) -> int:
        worst = self._uncovered.largest(self._bearable)
        units = 0 if worst is None else max(math.ceil(worst - self._bought), 0)
        self._bought += units
        return units

    def observe(self, demand: float, held: int) -> None:
        self._uncovered.add(demand - held + self._bought)


def wang(terms: ReserveTerms) -> BreakEven:
    """The deterministic rule."""
    return BreakEven(terms.term, terms.ratio * terms.term)


def wang_randomised(terms: ReserveTerms, draws: int = 16) -> list[BreakEven]:
    """The randomised rule as ``draws`` equally likely ones, whose mean cost is its expected cost: thresholds z in
    [0, β] of density e^(z/β) / (β (e − 1)), β = ρ · term, taken at the middles of equal shares."""
    break_even = terms.ratio * terms.term
    shares = ((draw + 0.5) / draws for draw in range(draws))
    return [BreakEven(terms.term, break_even * math.log1p(share * (math.e - 1))) for share in shares]


def static_best(demand: Sequence[float], terms: ReserveTerms) -> PurchaseOutcome:
    """The one level that, held all the time, would have been cheapest on ``demand``: known only afterwards.

    Another unit pays as long as demand exceeds the level in more hours than its terms cost on-demand hours.
    """
    renewals = range(0, len(demand), terms.term)
    fee = sum(terms.fee(hour, len(demand)) for hour in renewals)
    order = sorted(demand, reverse=True)
    level = order[math.floor(fee)] if fee < len(order) else 0.0
    candidates = {math.floor(level), math.ceil(level)}
    outcomes = [charge([(hour, units) for hour in renewals if units], demand, terms) for units in sorted(candidates)]
    return min(outcomes, key=lambda outcome: outcome.cost)


def optimum(demand: Sequence[float], terms: ReserveTerms) -> PurchaseOutcome:
    """The cheapest purchases for a ``demand`` of whole units, all hours of which count. Raises `MissingExtra` without
    SciPy, and InvalidInput for fractions, for which the programme would buy fractions of units."""
    checked(demand)
    if any(wanted % 1 for wanted in demand):
        raise InvalidInput("the optimum is for whole units of demand", hint="round the demand")
    if find_spec("scipy") is None:
        raise MissingExtra("backtest", "the optimum")
    import numpy as np
    from scipy import sparse
    from scipy.optimize import linprog

    hours = len(demand)
    identity = sparse.identity(hours, format="csr")
    nothing = sparse.csr_matrix((hours, hours))
    before = sparse.eye(hours, k=-1, format="csr")
    lapsed = sparse.eye(hours, k=-terms.term, format="csr") if terms.term < hours else nothing
    solved = linprog(
        np.concatenate([[terms.fee(hour, hours) for hour in range(hours)], np.zeros(hours), np.ones(hours)]),
        A_eq=sparse.hstack([lapsed - identity, identity - before, nothing], format="csc"),
        b_eq=np.zeros(hours),
        A_ub=sparse.hstack([nothing, -identity, -identity], format="csc"),
        b_ub=-np.asarray(demand, dtype=float),
        method="highs-ds",  # the simplex ends in a corner, where units are whole
    )
    if solved.status != 0:
        raise GiveUp(f"the optimum could not be computed: {solved.message}")
    units = np.rint(solved.x[:hours]).astype(int)
    return charge([(int(hour), int(units[hour])) for hour in np.nonzero(units)[0]], demand, terms)
