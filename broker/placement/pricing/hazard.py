"""Lifetime and return time of capacity, estimated per pool from observations and shrunk where data is thin.

Losses over machine-hours at risk, each shrunk as the mean of a gamma posterior towards the level above:

    family  Λ    = (p·E₀ + Σ w·losses) / (E₀ + Σ w·hours)      p: the mean prior of its pools
    by age  Λ(b) = the same over band b of age alone, shrunk towards Λ
    pool    λ    = the same over the pool alone, shrunk towards Λ · (its own prior) / p
    by age  λ(b) = the same over band b of the pool, shrunk towards λ · Λ(b) / Λ

By age this is the Nelson-Aalen hazard, summed over bands, since fresh spot machines are lost more often. ``E₀``: the
weight of a prior in hours: those in which it expects `PRIOR_LOSSES`, at most `MAX_PRIOR_HOURS`. A pool's prior is its
provider's figure, else an assumption by capacity type (`priors`). Without data the estimate is the prior; with data it
lies between prior and observation; more losses in the same hours never lower it. Weights halve every `HALF_LIFE_HOURS`.
Times are hours, ``now`` is 0 and the past positive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean

from broker.core.market.offers import CapacityType, Offer

SPOT_PER_MACHINE_HOUR = 0.15
FAILURES_PER_GPU_HOUR = 419 / (54 * 24 * 16_384)
RETURNS_PER_HOUR = 0.5


def interruption_rate(offer: Offer) -> float:
    """Expected interruptions per hour of *one* machine of the offer: the provider's own figure if there is one."""
    if offer.interruption_rate is not None:
        return offer.interruption_rate
    failures = FAILURES_PER_GPU_HOUR * max(offer.count, 1)
    return SPOT_PER_MACHINE_HOUR + failures if offer.capacity_type is CapacityType.SPOT else failures


def time_to_return(offer: Offer) -> float:
    """Hours until lost capacity of the offer's pool returns, on average."""
    return 1 / RETURNS_PER_HOUR


EDGES = (0.0, 1 / 6, 0.5, 1.0, 3.0, 9.0)  # start of each age band in hours; the last one has no end
_BANDS = tuple(zip(EDGES, (*EDGES[1:], math.inf), strict=True))
HALF_LIFE_HOURS = 7 * 24.0
PRIOR_LOSSES = 2.0
# Hardware failures are so rare that their prior would outweigh a month of losses.
MAX_PRIOR_HOURS = 500.0
# A pool's score changes its prior by at most this factor: providers do not define their scores.
_MAX_SCORE_EFFECT = 2.0
_MIN_HOURS = 1.0  # observed hours below which data hardly changes the estimate

Family = tuple[str, str | None, CapacityType]


class HazardBasis(StrEnum):
    """The basis of an estimate, best first."""

    OWN = "own_history"
    FAMILY = "family_history"
    PROVIDER = "provider"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class AvailabilityStretch:
    """A pool was available, or away, from ``began`` to ``ended`` hours ago (began ≥ ended ≥ 0). ``over``: the stretch
    ended by a loss or a return; otherwise its end is unknown. ``machines``: number running, of which one was lost.
    """

    began: float
    ended: float
    over: bool
    machines: int = 1


@dataclass(frozen=True, slots=True)
class PoolHistory:
    """Observations of one pool. ``offer``: its latest offer, with the provider's signals."""

    offer: Offer
    there: tuple[AvailabilityStretch, ...] = ()
    away: tuple[AvailabilityStretch, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedTime:
    """Amount of data: hours (of all machines) and losses, unweighted."""

    hours: float = 0.0
    losses: int = 0


@dataclass(frozen=True, slots=True)
class Risk:
    """Expectations for one machine of a pool.

    ``interruptions_per_hour``: over whole lives. ``time_to_return``: hours that a lost pool stays away. ``by_age``:
    losses per hour in each band of `EDGES`. ``own`` and ``family``: the data used; the family's includes the pool's.
    """

    interruptions_per_hour: float
    time_to_return: float
    by_age: tuple[float, ...]
    basis: HazardBasis
    prior: float
    own: ObservedTime = ObservedTime()
    family: ObservedTime = ObservedTime()

    @property
    def mean_life(self) -> float:
        """Hours from start to loss; infinite where nothing is ever lost."""
        return 1 / self.interruptions_per_hour if self.interruptions_per_hour > 0 else math.inf

    def life_left(self, age: float) -> float:
        """The expected further life (hours) of a machine of that age (hours)."""
        return _life_from(self.by_age, age)


@dataclass(frozen=True, slots=True)
class _Evidence:
    """Weighted losses and hours by band, returns and hours away, and the unweighted sums."""

    losses: tuple[float, ...] = (0.0,) * len(EDGES)
    hours: tuple[float, ...] = (0.0,) * len(EDGES)
    returns: float = 0.0
    away: float = 0.0
    seen: ObservedTime = ObservedTime()

    def rate(self, prior: float) -> float:
        """Losses per hour over whole lives."""
        return _posterior(prior, sum(self.losses), sum(self.hours))

    def by_age(self, prior: Sequence[float]) -> tuple[float, ...]:
        """Losses per hour in each band."""
        return tuple(map(_posterior, prior, self.losses, self.hours))

    def returns_from(self, prior: float) -> float:
        """Returns per hour away."""
        return _posterior(prior, self.returns, self.away)

    @classmethod
    def of(cls, history: PoolHistory) -> _Evidence:
        losses, hours = [0.0] * len(EDGES), [0.0] * len(EDGES)
        total_hours = 0.0
        for stretch in history.there:
            lifetime = stretch.began - stretch.ended
            total_hours += lifetime * stretch.machines
            for band, (low, high) in enumerate(_BANDS):
                if lifetime <= low:
                    break
                until = max(stretch.began - high, stretch.ended)
                hours[band] += stretch.machines * _weighted_hours(stretch.began - low, until)
            if stretch.over:
                losses[_band(lifetime)] += _weight(stretch.ended)
        return cls(
            tuple(losses),
            tuple(hours),
            returns=sum(_weight(stretch.ended) for stretch in history.away if stretch.over),
            away=sum(_weighted_hours(stretch.began, stretch.ended) for stretch in history.away),
            seen=ObservedTime(total_hours, sum(stretch.over for stretch in history.there)),
        )

    @classmethod
    def together(cls, all_of: Sequence[_Evidence]) -> _Evidence:
        return cls(
            tuple(map(sum, zip(*(evidence.losses for evidence in all_of), strict=True))),
            tuple(map(sum, zip(*(evidence.hours for evidence in all_of), strict=True))),
            sum(evidence.returns for evidence in all_of),
            sum(evidence.away for evidence in all_of),
            ObservedTime(
                sum(evidence.seen.hours for evidence in all_of), sum(evidence.seen.losses for evidence in all_of)
            ),
        )


@dataclass(frozen=True, slots=True)
class _FamilyRisk:
    """Values shared by the pools of a family. ``prior``: their mean; ``rate``: over whole lives; ``score``: the mean
    score.
    """

    prior: float
    rate: float
    by_age: tuple[float, ...]
    returns: float
    score: float | None
    seen: ObservedTime


@dataclass(frozen=True, slots=True)
class Risks:
    """The risks of every pool: a `Hazard` for the planner, and `of` for display. A pool without observations gets its
    family's risk; a family without observations gets the provider's figure or the assumption.
    """

    _families: Mapping[Family, _FamilyRisk] = field(default_factory=dict)
    _pools: Mapping[str, _Evidence] = field(default_factory=dict)
    _known: dict[str, Risk] = field(default_factory=dict, repr=False)

    def __call__(self, offer: Offer) -> float:
        """Expected interruptions per hour of one machine of the offer."""
        if (offer.provider, offer.accelerator, offer.capacity_type) not in self._families:
            return interruption_rate(offer)
        return self.of(offer).interruptions_per_hour

    def away(self, offer: Offer) -> float:
        """Hours until the offer's pool has capacity again after a loss."""
        return self.of(offer).time_to_return

    def of(self, offer: Offer) -> Risk:
        """The estimate with its basis."""
        key = f"{offer.pool} {offer.interruption_rate} {offer.score}"
        cached = self._known.get(key)
        if cached is None:
            family = self._families.get(family_of(offer))
            cached = self._known[key] = _risk(offer, family, self._pools.get(offer.pool, _NO_EVIDENCE))
        return cached


def family_of(offer: Offer) -> Family:
    """The group of pools that share observations: same accelerator, provider and capacity type, any place."""
    return offer.provider, offer.accelerator, offer.capacity_type


def estimate(histories: Iterable[PoolHistory]) -> Risks:
    """The risks from these histories, one per pool, in any order."""
    families: dict[Family, list[tuple[Offer, _Evidence]]] = {}
    pools: dict[str, _Evidence] = {}
    for history in sorted(histories, key=lambda entry: entry.offer.id):
        if history.there or history.away:
            evidence = pools[history.offer.pool] = _Evidence.of(history)
            families.setdefault(family_of(history.offer), []).append((history.offer, evidence))
    return Risks({family: _family(members) for family, members in families.items()}, pools)


def stretches(
    changes: Sequence[tuple[float, bool | None]], known_until: float = 0.0
) -> tuple[tuple[AvailabilityStretch, ...], tuple[AvailabilityStretch, ...]]:
    """When a pool was available and away, from its changes: hours ago (oldest first) and availability from then on
    (None: unknown). ``known_until``: hours since the last observation.

    A stretch with an unobserved start begins at its first observation.
    """
    by_state: dict[bool, list[AvailabilityStretch]] = {True: [], False: []}
    state: bool | None = None
    since = 0.0
    for at, available in [*changes, (known_until, None)]:
        if available is state:
            continue
        if state is not None and since > at:
            by_state[state].append(AvailabilityStretch(since, at, over=available is not None))
        state, since = available, at
    return tuple(by_state[True]), tuple(by_state[False])


_NO_EVIDENCE = _Evidence()


def _family(members: Sequence[tuple[Offer, _Evidence]]) -> _FamilyRisk:
    scores = [offer.score for offer, _ in members if offer.score]
    score = fmean(scores) if scores else None
    prior = fmean(_prior(offer, score) for offer, _ in members)
    evidence = _Evidence.together([own for _, own in members])
    rate = evidence.rate(prior)
    return _FamilyRisk(
        prior=prior,
        rate=rate,
        by_age=evidence.by_age((rate,) * len(EDGES)),
        returns=evidence.returns_from(RETURNS_PER_HOUR),
        score=score,
        seen=evidence.seen,
    )


def _risk(offer: Offer, family: _FamilyRisk | None, own: _Evidence) -> Risk:
    if family is None:
        prior = interruption_rate(offer)
        return Risk(prior, 1 / RETURNS_PER_HOUR, (prior,) * len(EDGES), _without_history(offer), prior)
    prior = _prior(offer, family.score)
    rate = own.rate(family.rate * prior / family.prior if family.prior > 0 else prior)
    shape = [of_band / family.rate if family.rate > 0 else 1.0 for of_band in family.by_age]
    return Risk(
        interruptions_per_hour=rate,
        time_to_return=1 / own.returns_from(family.returns),
        by_age=own.by_age([rate * of_band for of_band in shape]),
        basis=_basis(offer, family, own),
        prior=prior,
        own=own.seen,
        family=family.seen,
    )


def _basis(offer: Offer, family: _FamilyRisk, own: _Evidence) -> HazardBasis:
    if own.seen.hours >= _MIN_HOURS:
        return HazardBasis.OWN
    return HazardBasis.FAMILY if family.seen.hours >= _MIN_HOURS else _without_history(offer)


def _without_history(offer: Offer) -> HazardBasis:
    return HazardBasis.ASSUMED if offer.interruption_rate is None else HazardBasis.PROVIDER


def _prior(offer: Offer, family_score: float | None) -> float:
    rate = interruption_rate(offer)
    if offer.interruption_rate is not None or not offer.score or not family_score:
        return rate
    return rate * min(max(family_score / offer.score, 1 / _MAX_SCORE_EFFECT), _MAX_SCORE_EFFECT)


def _posterior(prior: float, events: float, hours: float) -> float:
    """The mean rate after these events and hours; between ``prior`` and events / hours."""
    prior_hours = min(PRIOR_LOSSES / prior, MAX_PRIOR_HOURS) if prior > 0 else MAX_PRIOR_HOURS
    return (prior * prior_hours + events) / (prior_hours + hours)


def _life_from(by_age: Sequence[float], age: float) -> float:
    """Expected further life in hours: the integral of survival from ``age``; infinite if the last rate is 0."""
    life, alive = 0.0, 1.0
    for rate, (low, high) in zip(by_age, _BANDS, strict=True):
        length = high - max(low, age)
        if length <= 0:
            continue
        if rate <= 0:
            life += alive * length
            continue
        life -= alive * math.expm1(-rate * length) / rate
        alive *= math.exp(-rate * length)
    return life


def _band(age: float) -> int:
    return sum(age > edge for edge in EDGES[1:])


def _weight(ago: float) -> float:
    return math.exp2(-ago / HALF_LIFE_HOURS)


def _weighted_hours(began: float, ended: float) -> float:
    """The weighted hours between ``began`` and ``ended`` hours ago."""
    return HALF_LIFE_HOURS / math.log(2) * (_weight(ended) - _weight(began))
