"""Purchase rules to hold the planner against, from the literature and common practice; a mixture of them whose cost has
a bound; and the minimum cost of a known demand, a linear programme, solved by HiGHS through SciPy.

With r units bought, a held and o rented on demand in each hour t of T::

    minimise   Σ fee(t) · r(t) + Σ o(t)
    subject to a(t) = a(t − 1) + r(t) − r(t − term),   a(t) + o(t) ≥ demand(t),   r, a, o ≥ 0

The matrix is a network's, so whole demand has a whole optimum, and no rule can cost less.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from broker.core.errors import GiveUp, InvalidInput
from broker.economics.reserve.planner import Planner, SlidingWindow
from broker.economics.reserve.replay import Buyer, PurchaseOutcome, ReserveTerms, Stock, charge, check_demand
from broker.economics.units import positive

ROUND_HOURS = 168

PRIORS = (0.98, 0.01, 0.01)
"""Weights of the planner, the staggered rule and buying nothing: 2 % insure against the planner being wrong."""


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


class _Uncovered(SlidingWindow):
    def largest(self, rank: int) -> float | None:
        """The value that ``rank`` values stand above in the order (0: the largest); None with fewer values."""
        return self._sorted[-1 - rank] if rank < len(self._sorted) else None


class BreakEven:
    """The online rule of Wang, Li and Liang, "To Reserve or Not to Reserve: Optimal Online Multi-Instance Acquisition
    in IaaS Clouds" (ICAC 2013), for reservations that are paid whole, used or not.

    Buys another unit once ``threshold`` hours of the last term were paid on demand at its level; then the past counts
    as if it had been covered. With the break-even point as threshold, ρ · term, it costs at most twice the optimum.
    It uses no history before the first counted hour."""

    def __init__(self, term: int, threshold: float) -> None:
        self._bearable = math.floor(threshold)
        self._uncovered = _Uncovered(term)  # demand above what was held, each as it was plus `_bought` of that moment
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


class Mixture:
    """A mixture of purchase rules (`Buyer`) whose cost is bounded by that of each of them.

    Every rule runs by itself on the demand, with a stock of its own; whenever one buys, the mixture buys its
    weight's share of it. The cost of an hour is convex in what is held, so a mixture whose stock is the weighted
    mean of the rules' stocks costs at most the weighted mean of their costs. At the end of each `ROUND_HOURS` the
    weights follow the rules' costs so far, exponentially (Cesa-Bianchi and Lugosi, Prediction, Learning, and Games,
    2006, theorem 2.2 and section 2.3): over n rounds, with priors p, learning rates η and the rules' costs of a
    round within S, the mean costs at most

        cost of rule j + ln(1/p_j) / η_n + Σ η S² / 8.

    Purchases stay for their term when weights change, and units are whole, so the stock differs from the mean; each
    unit-hour of difference costs at most max(ρ, 1 − ρ). `Mixture.bound` adds this up as it happens.

    By default it is of the planner, the staggered rule and buying nothing; it knows the end of the series only if
    its rules do.
    """

    def __init__(self, term: int, ratio: float, rules: Sequence[Buyer] = (), priors: Sequence[float] = PRIORS) -> None:
        self._term, self._ratio = term, positive("ratio", ratio)
        self._rules = list(rules) or [Planner(term, ratio), StaggeredQuantile(ratio), OnDemand()]
        self._priors = self._weights = list(priors)
        self._stocks = [Stock() for _ in self._rules]
        self._costs = [0.0] * len(self._rules)
        self._before = list(self._costs)  # at the start of the round
        self._largest, self._owed, self._hour = 0.0, 0.0, 0
        self._rate = math.inf
        self._unlearned = self._apart = 0.0  # Σ η S² / 8; the cost of a stock that differs from the mean

    def remember(self, history: Iterable[float]) -> None:
        known = list(history)
        self._largest = max(known, default=0.0)
        for rule in self._rules:
            rule.remember(known)

    def buy(self, stock: Stock, hour: int, hours_left: int | None) -> int:
        for rule, own, weight in zip(self._rules, self._stocks, self._weights, strict=True):
            units = rule.buy(own, hour, hours_left)
            if units > 0:
                own.add(units, hour + self._term)
                self._owed += weight * units
        bought = math.floor(self._owed + 0.5)
        self._owed -= bought
        return bought

    def observe(self, demand: float, held: int) -> None:
        mean = 0.0
        for at, (rule, own) in enumerate(zip(self._rules, self._stocks, strict=True)):
            units = own.held(self._hour)
            rule.observe(demand, units)
            mean += self._weights[at] * units
            self._costs[at] += self._ratio * units + max(demand - units, 0.0)
        self._apart += abs(held - mean) * max(self._ratio, 1 - self._ratio)
        self._largest = max(self._largest, demand)
        self._hour += 1
        if self._hour % ROUND_HOURS == 0:
            self._end_round()

    def _end_round(self) -> None:
        of_round = [cost - before for cost, before in zip(self._costs, self._before, strict=True)]
        self._before = list(self._costs)
        if math.isfinite(self._rate):
            self._unlearned += self._rate * (max(of_round) - min(of_round)) ** 2 / 8
        else:
            self._unlearned += max(of_round) - min(of_round)
        if self._largest:
            self._rate = min(self._rate, 1 / (ROUND_HOURS * self._largest))
            least = min(self._costs)
            raw = [
                p * math.exp(-self._rate * (cost - least)) for p, cost in zip(self._priors, self._costs, strict=True)
            ]
            self._weights = [one / sum(raw) for one in raw]

    @property
    def weights(self) -> tuple[float, ...]:
        """The present weights of the rules."""
        return tuple(self._weights)

    def bound(self, rule: int) -> float:
        """The upper bound of the mixture's cost so far (reservations pro rata), from the cost of that rule on the same
        demand."""
        spread = [cost - before for cost, before in zip(self._costs, self._before, strict=True)]
        unfinished = max(spread) - min(spread)
        learning = math.log(1 / self._priors[rule]) / self._rate if math.isfinite(self._rate) else 0.0
        return self._costs[rule] + learning + self._unlearned + unfinished + self._apart


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
    """The cheapest purchases for a ``demand`` of whole units, all hours of which count. Raises `InvalidInput` for
    fractions, for which the programme would buy fractions of units."""
    check_demand(demand)
    if any(wanted % 1 for wanted in demand):
        raise InvalidInput("the optimum is for whole units of demand", hint="round the demand")
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
