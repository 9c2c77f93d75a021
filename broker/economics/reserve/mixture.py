"""A mixture of purchase rules whose cost is bounded by that of each of them.

Every rule runs by itself on the demand, with a stock of its own; whenever one buys, the mixture buys its weight's share
of it. The cost of an hour is convex in what is held, so a mixture whose stock is the weighted mean of the rules' stocks
costs at most the weighted mean of their costs. At the end of each `ROUND_HOURS` the weights follow the rules' costs so
far, exponentially (Cesa-Bianchi and Lugosi, Prediction, Learning, and Games, 2006, theorem 2.2 and section 2.3): over n
rounds, with priors p, learning rates η and the rules' costs of a round within S, the mean costs at most

    cost of rule j + ln(1/p_j) / η_n + Σ η S² / 8.

Purchases stay for their term when weights change, and units are whole, so the stock differs from the mean; each
unit-hour of difference costs at most max(ρ, 1 − ρ). `Mixture.bound` adds this up as it happens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from broker.economics.reserve.planner import Planner
from broker.economics.reserve.replay import Buyer, Stock
from broker.economics.reserve.yardsticks import OnDemand, StaggeredQuantile
from broker.economics.units import positive

ROUND_HOURS = 168

PRIORS = (0.98, 0.01, 0.01)
"""Weights of the planner, the staggered rule and buying nothing: 2 % insure against the planner being wrong."""


class Mixture:
    """The mixture as a rule of purchase (`broker.economics.reserve.replay.Buyer`); by default of the planner, the
    staggered rule and buying nothing. It knows the end of the series only if its rules do."""

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
