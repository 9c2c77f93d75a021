"""Forecasts the spending of the remaining days of a period, with an interval. Pure; USD as floats: estimates.

The weekly pattern is removed (`anomalies.week_pattern`), models of daily spending predict the sum of the days ahead and
its deviation, and the pattern is applied again. The interval is calibrated on the past of the same series: by how many
deviations the same forecast would have missed earlier sums (conformal prediction). With a short past,
slightly widened normal noise counts as well.

A model has an unknown mean, and a state that changes with each day's error (``surprise``) and decays: ``day = mean +
state + surprise``, ``next state = persistence * state + gain * surprise``. A persistence of 1 is simple exponential
smoothing (the state is the level), between 0 and 1 spending returns to its mean, a gain of 0 is that mean alone. Each
is tried with growing, shrinking and constant spending. The models are averaged with their probabilities (Bayesian model
averaging), so that a short series has a wide interval.

Formulas: Hyndman and others, Forecasting with Exponential Smoothing, chapters 5 and 6 (the mean is the one unknown of a
least-squares problem, which is linear, so nothing is searched for); Hoeting and others, Bayesian Model Averaging: A
Tutorial, Statistical Science 14 (1999).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from statistics import NormalDist, fmean

from broker.ledger.finops.anomalies import week_pattern

_SHAPES = ((0.0, 0.0), (1.0, 0.1), (1.0, 0.3), (1.0, 0.8), (0.85, 0.25), (0.85, 0.7), (0.5, 0.4))
_DRIFTS = ((0.0, 0.8), (0.02, 0.1), (-0.02, 0.1))  # share per week, and its prior probability
_DRIFTS_FOR = 30  # days ahead; no growth beyond
# The prior of a day's error: a share of the mean, with the weight of two days.
_PRIOR_SPREAD = 0.15
_PRIOR_DAYS = 2
_EPSILON = 1e-12


@dataclass(frozen=True, slots=True)
class _Model:
    persistence: float
    gain: float
    drift: float  # a day, as an exponent
    likely: float  # logarithm, beforehand


_MODELS = tuple(
    _Model(persistence, gain, math.log1p(week) / 7, math.log(likely))
    for week, likely in _DRIFTS
    for persistence, gain in _SHAPES
)


@dataclass(frozen=True, slots=True)
class Prediction:
    """The sum of the days ahead: its mean and standard deviation (USD)."""

    mean: float
    deviation: float


class FittedModels:
    """All models after each day of a series, in one pass: `predict` also answers for earlier days as if the later ones
    were not known. Raises ValueError for an empty series."""

    def __init__(self, days: Sequence[float]) -> None:
        if not days:
            raise ValueError("no day to smooth")
        self._length = len(days)
        self._unit = fmean(abs(day) for day in days) or 1.0
        self._states = [tuple(_states(model, [day / self._unit for day in days])) for model in _MODELS]

    def predict(self, ahead: int, after: int | None = None) -> Prediction:
        """The ``ahead`` days that follow the first ``after`` days (None: all of them)."""
        day_count = self._length if after is None else after
        degrees = day_count + _PRIOR_DAYS - 1
        weights, means, variances = list[float](), list[float](), list[float]()
        for model, states in zip(_MODELS, self._states, strict=True):
            state, crossed, squares = states[day_count - 1]
            pull, weight = _design(model.persistence, model.gain, day_count)
            mean = crossed / weight
            surprise = max(0.0, squares - crossed * mean) + _PRIOR_DAYS * (_PRIOR_SPREAD * mean) ** 2 + _EPSILON
            decayed, noise = _horizon(model.persistence, model.gain, ahead)
            slope = ahead + pull * decayed  # the change of the sum per change of the mean
            growth = math.exp(model.drift * (day_count - self._length)) * _growth(model.drift, ahead)
            means.append((mean * slope + state * decayed) * growth)
            variances.append(surprise / degrees * (noise + slope * slope / weight) * growth * growth)
            scaling = model.drift * (
                day_count * (day_count - 1) / 2 - (self._length - 1) * day_count
            )  # the densities' Jacobian
            weights.append(model.likely - (math.log(weight) + day_count * math.log(surprise)) / 2 - scaling)
        best = max(weights)
        weights = [math.exp(log_weight - best) for log_weight in weights]
        total = sum(weights)
        mean = sum(map(float.__mul__, weights, means)) / total
        variance = sum(w * (v + (m - mean) ** 2) for w, m, v in zip(weights, means, variances, strict=True)) / total
        return Prediction(mean * self._unit, math.sqrt(variance) * self._unit)


def _states(model: _Model, days: Sequence[float]) -> Iterator[tuple[float, float, float]]:
    """After each day, without its drift: the state for a mean of 0, and the sums of surprises times their slopes and of
    squared surprises."""
    state = crossed = squares = 0.0
    for number, day in enumerate(days):
        surprise = day * math.exp(model.drift * (len(days) - 1 - number)) - state
        crossed += surprise * (1 + _design(model.persistence, model.gain, number)[0])
        squares += surprise * surprise
        state = model.persistence * state + model.gain * surprise
        yield state, crossed, squares


@cache
def _design(persistence: float, gain: float, days: int) -> tuple[float, float]:
    """After that many days: the change of the state per unit of the mean, and the sum of its squared slopes on the
    surprises."""
    if not days:
        return 0.0, 0.0
    pull, weight = _design(persistence, gain, days - 1)
    return persistence * pull - gain * (1 + pull), weight + (1 + pull) ** 2


@cache
def _horizon(persistence: float, gain: float, ahead: int) -> tuple[float, float]:
    """The weight of the state in the sum of the days ahead, and the variance of that sum as a multiple of a
    surprise's."""
    state_weight, noise, power = 0.0, 0.0, 1.0
    for _ in range(ahead):
        noise += (1 + gain * state_weight) ** 2
        state_weight += power
        power *= persistence
    return state_weight, noise


@cache
def _growth(drift: float, ahead: int) -> float:
    """The mean factor by which the days ahead have grown since the last known day; 1 for none."""
    return fmean(math.exp(drift * min(day, _DRIFTS_FOR)) for day in range(1, ahead + 1)) if ahead else 1.0


COVERAGE = 0.8
"""The share of intervals that should contain the actual spending."""

MIN_DAYS = 5
"""Fewer days of history allow no estimate."""

MAX_DAYS = 90
"""The number of recent days that are used."""

# The prior: normal errors times 1.2, with the weight of three errors. Errors of neighboring days overlap: those of as
# many days as are predicted count as two.
_PRIOR_FACTOR = 1.2
_PRIOR_WEIGHT = 3.0
_PRIOR_STEPS = 20
_PERIODS_WEIGHT = 2.0

_FIRST_ORIGIN = 7
_ORIGIN_STEP = 2
_MAX_MISS = 8.0  # deviations; keeps the interval finite for a past without variation


@dataclass(frozen=True, slots=True)
class Expectation:
    """The spending of the days ahead: the estimate, and the bounds of the `COVERAGE` interval (USD, 0 or more)."""

    amount: float
    low: float
    high: float


def expect(days: Sequence[float], ahead: int) -> Expectation | None:
    """The total of the ``ahead`` days after ``days`` (daily spending in USD, oldest first, no gaps); None for fewer
    than `MIN_DAYS` days. Raises ValueError for a negative ``ahead``."""
    if ahead < 0:
        raise ValueError(f"{ahead} days ahead")
    if len(days) < MIN_DAYS:
        return None
    return _expect(tuple(days[-MAX_DAYS:]), ahead)


@lru_cache(maxsize=1024)  # budgets query this often, and the days before today do not change during the day
def _expect(days: tuple[float, ...], ahead: int) -> Expectation:
    if not ahead or not any(days):
        return Expectation(0.0, 0.0, 0.0)
    week = week_pattern(days)
    models = FittedModels(week.levelled)
    prediction = models.predict(ahead)
    amount = max(0.0, prediction.mean * week.share(ahead))
    margin = _interval_width(models, week.levelled, ahead) * prediction.deviation
    return Expectation(amount, max(0.0, amount - margin), amount + margin)


def _interval_width(models: FittedModels, days: Sequence[float], ahead: int) -> float:
    """The half-width of the interval, in standard deviations."""
    weight = _PERIODS_WEIGHT * _ORIGIN_STEP / ahead
    misses = sorted([*_prior(), *((miss, weight) for miss in _misses(models, days, ahead))])
    remaining = COVERAGE * sum(weight for _, weight in misses)
    for miss, weight in misses:
        remaining -= weight
        if remaining <= 0:
            return miss
    return misses[-1][0]


def _prior() -> Iterator[tuple[float, float]]:
    normal = NormalDist()
    for step in range(_PRIOR_STEPS):
        # The upper end of each step; for the last step a point inside it, because its end is infinite.
        share = min((step + 1) / _PRIOR_STEPS, 1 - 0.25 / _PRIOR_STEPS)
        yield _PRIOR_FACTOR * normal.inv_cdf(0.5 + share / 2), _PRIOR_WEIGHT / _PRIOR_STEPS


def _misses(models: FittedModels, days: Sequence[float], ahead: int) -> Iterator[float]:
    """The errors of the same forecast on earlier days, in its standard deviations."""
    for origin in range(len(days) - ahead, _FIRST_ORIGIN - 1, -_ORIGIN_STEP):
        prediction = models.predict(ahead, after=origin)
        miss = abs(sum(days[origin : origin + ahead]) - prediction.mean)
        yield min(miss / prediction.deviation, _MAX_MISS)
