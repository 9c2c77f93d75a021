"""Hazard and availability: the prior without data, shrinkage between prior and data, more losses never safer."""

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.market.offers import CapacityType
from broker.placement.pricing.hazard import (
    EDGES,
    MAX_PRIOR_HOURS,
    RETURNS_PER_HOUR,
    SPOT_PER_MACHINE_HOUR,
    AvailabilityStretch,
    HazardBasis,
    PoolHistory,
    Risks,
    estimate,
    interruption_rate,
    stretches,
)

Make = Any


@st.composite
def some_stretches(draw: st.DrawFn) -> tuple[AvailabilityStretch, ...]:
    hours = st.floats(0, 400)
    found = []
    for _ in range(draw(st.integers(0, 12))):
        ends = draw(hours)
        found.append(
            AvailabilityStretch(ends + draw(st.floats(0.01, 30)), ends, draw(st.booleans()), draw(st.integers(1, 4)))
        )
    return tuple(found)


def lives(length: float, number: int, *, over: bool = True) -> tuple[AvailabilityStretch, ...]:
    """So many lives of that length, one after the other, the last one until now."""
    return tuple(AvailabilityStretch((n + 1) * length, n * length, over) for n in range(number))


class TestPrior:
    def test_without_data_it_is_the_assumption_or_the_providers_word(self, make: Make) -> None:
        silent, told = make.spot(rate=None), make.spot(rate=0.4)
        for risks in (Risks(), estimate([]), estimate([PoolHistory(silent), PoolHistory(told)])):
            assert risks(silent) == interruption_rate(silent)
            assert risks(told) == 0.4
            assert risks.of(silent).basis is HazardBasis.ASSUMED
            assert risks.of(told).basis is HazardBasis.PROVIDER
            assert risks.of(told).mean_life == pytest.approx(2.5)
            assert risks.of(told).time_to_return == 1 / RETURNS_PER_HOUR

    def test_what_is_never_lost_lives_for_ever(self, make: Make) -> None:
        risk = Risks().of(make.offer(interruption_rate=0.0))
        assert (risk.interruptions_per_hour, risk.mean_life) == (0.0, math.inf)

    def test_a_pool_nobody_has_seen_takes_after_its_family(self, make: Make) -> None:
        seen = make.spot(rate=None)
        other = make.spot(rate=None, zone="us-east-1b")
        elsewhere = make.spot(rate=None, provider="gcp")
        risks = estimate([PoolHistory(seen, there=lives(0.5, 100))])
        assert risks(seen) > risks(other) > risks(elsewhere) == interruption_rate(elsewhere)
        assert risks.of(other).basis is HazardBasis.FAMILY
        assert risks.of(other).family.losses == 100
        assert risks.of(other).own.hours == 0

    def test_within_a_family_the_providers_figures_keep_their_proportion(self, make: Make) -> None:
        calm, wild = make.spot(rate=0.1), make.spot(rate=0.4, zone="us-east-1b")
        unseen = [make.spot(rate=rate, zone=f"us-east-1{rate}") for rate in (0.1, 0.4)]
        risks = estimate([PoolHistory(calm, there=lives(1, 40)), PoolHistory(wild, there=lives(1, 40))])
        low, high = (risks.of(offer).by_age for offer in unseen)
        assert high == pytest.approx([4 * rate for rate in low])

    def test_a_low_score_is_a_higher_risk(self, make: Make) -> None:
        good, bad = make.spot(rate=None, score=9.0), make.spot(rate=None, score=3.0, zone="us-east-1b")
        risks = estimate([PoolHistory(one, there=lives(1, 3)) for one in (good, bad)])
        assert risks(bad) > risks(good)


class TestData:
    def test_much_data_prevails(self, make: Make) -> None:
        rng = random.Random(4)
        ends, found = 0.0, []
        for _ in range(4_000):
            life = rng.expovariate(2.0)
            found.append(AvailabilityStretch(ends + life, ends, over=True))
            ends = (ends + life) % 100
        risk = estimate([PoolHistory(make.spot(rate=None), there=tuple(found))]).of(make.spot(rate=None))
        assert risk.interruptions_per_hour == pytest.approx(2.0, rel=0.1)
        assert risk.basis is HazardBasis.OWN
        assert risk.own.losses == 4_000
        assert risk.own.hours == pytest.approx(2_000, rel=0.1)

    def test_recent_losses_count_more(self, make: Make) -> None:
        offer = make.spot(rate=None)

        def after(quiet_first: bool) -> float:
            calm, wild = (
                (AvailabilityStretch(1_000, 500, over=False), 0.0)
                if quiet_first
                else (AvailabilityStretch(500, 0, over=False), 500.0)
            )
            losses = tuple(AvailabilityStretch(wild + n + 1, wild + n, over=True) for n in range(100))
            return estimate([PoolHistory(offer, there=(calm, *losses))])(offer)

        assert after(quiet_first=True) > 2 * after(quiet_first=False)

    def test_hazard_falls_with_age_where_lives_do(self, make: Make) -> None:
        offer = make.spot(rate=None)
        short, long = lives(0.1, 60), tuple(AvailabilityStretch(100 + n, n, over=True) for n in range(20))
        risk = estimate([PoolHistory(offer, there=(*short, *long))]).of(offer)
        assert risk.by_age[0] > 10 * risk.by_age[-1]
        assert risk.life_left(10) > 2 * risk.life_left(0)

    def test_steady_capacity_that_is_lost_again_and_again_is_believed(self, make: Make) -> None:
        flaky = make.offer(capacity_type=CapacityType.OWNED, interruption_rate=None)
        risks = estimate([PoolHistory(flaky, there=lives(30, 5))])
        assert risks(flaky) > 20 * interruption_rate(flaky)

    def test_time_to_return(self, make: Make) -> None:
        soon, late = make.spot(rate=None), make.spot(rate=None, zone="us-east-1b")
        risks = estimate([PoolHistory(soon, away=lives(0.2, 100)), PoolHistory(late, away=lives(20, 10))])
        assert risks.of(soon).time_to_return < 0.4
        assert risks.of(late).time_to_return > 4


class TestProperties:
    @given(there=some_stretches(), which=st.integers(0, 20), rate=st.none() | st.floats(0.001, 3))
    def test_more_losses_over_the_same_hours_never_lower_it(
        self, make: Make, there: Sequence[AvailabilityStretch], which: int, rate: float | None
    ) -> None:
        offer, other = make.spot(rate=rate), make.spot(rate=rate, zone="us-east-1b")
        there = tuple(there)
        if not there:
            return
        which %= len(there)
        one = there[which]
        worse = (*there[:which], AvailabilityStretch(one.began, one.ended, True, one.machines), *there[which + 1 :])
        before, after = (estimate([PoolHistory(offer, there=lived)]) for lived in (there, worse))
        for pool in (offer, other):
            assert after(pool) >= before(pool) * (1 - 1e-12)
            pairs = zip(before.of(pool).by_age, after.of(pool).by_age, strict=True)
            assert all(then >= now * (1 - 1e-12) for now, then in pairs)

    @given(there=some_stretches(), rate=st.floats(0.001, 3))
    def test_between_the_prior_and_what_was_seen(
        self, make: Make, there: tuple[AvailabilityStretch, ...], rate: float
    ) -> None:
        offer = make.spot(rate=rate)
        risk = estimate([PoolHistory(offer, there=there)]).of(offer)
        losses = any(one.over for one in there)
        hours = sum((one.began - one.ended) * one.machines for one in there)
        counts_for = min(2 / rate, MAX_PRIOR_HOURS)
        least = counts_for / (counts_for + hours)
        assert risk.interruptions_per_hour >= rate * least**2 * (1 - 1e-9)
        assert all(by_age >= rate * least**4 * (1 - 1e-9) for by_age in risk.by_age)
        if not losses:
            assert risk.interruptions_per_hour <= rate * (1 + 1e-9)
            assert all(by_age <= rate * (1 + 1e-9) for by_age in risk.by_age)
        if not there:
            assert risk.by_age == (rate,) * len(EDGES)

    @given(histories=st.lists(st.tuples(some_stretches(), some_stretches()), max_size=5), seed=st.integers(0, 99))
    def test_deterministic_whatever_the_order(self, make: Make, histories: list[Any], seed: int) -> None:
        pools = [make.spot(rate=None, zone=f"z{n}") for n in range(len(histories))]
        known = [PoolHistory(offer, *both) for offer, both in zip(pools, histories, strict=True)]
        shuffled = random.Random(seed).sample(known, len(known))
        assert [estimate(known).of(o) for o in pools] == [estimate(shuffled).of(o) for o in pools]


class TestStretches:
    def test_there_away_and_unknown(self) -> None:
        there, away = stretches([(10, True), (8, False), (5, True), (4, True), (3, None), (2, False)], 1)
        assert there == (AvailabilityStretch(10, 8, True), AvailabilityStretch(5, 3, False))
        assert away == (AvailabilityStretch(8, 5, True), AvailabilityStretch(2, 1, False))

    def test_what_nobody_looked_at_is_not_known(self) -> None:
        assert stretches([(10, True)], 10) == ((), ())
        assert stretches([]) == ((), ())


def test_the_assumed_spot_prior_is_the_planners(make: Make) -> None:
    assert Risks()(make.spot(rate=None)) == pytest.approx(SPOT_PER_MACHINE_HOUR, rel=0.01)
