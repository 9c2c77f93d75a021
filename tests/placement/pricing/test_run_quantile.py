"""A hold that follows from the work: it is enough in the stated share of simulated runs, and not much more."""

import math
from datetime import timedelta
from random import Random

import pytest

from broker.placement.pricing.run_model import expected_run, interruption_quantile, run_quantile

RUNS = 1500


def simulated(chance: Random, work: float, rate: float, interval: float, write: float, restart: float) -> float:
    """Hours of one run: stretches that start over at each interruption, and a restart after it."""
    stretches = [work] if work <= interval else [interval + write] * math.floor(work / interval)
    if work > interval and (rest := work % interval):
        stretches.append(rest + write)
    took = 0.0
    for stretch in stretches:
        while (lasts := chance.expovariate(rate)) < stretch:
            took += lasts + restart
        took += stretch
    return took


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95])
@pytest.mark.parametrize(
    ("work", "rate", "interval", "restart"),
    [
        (48, 0.05, 0.5, 0.1),
        (10, 0.3, 1.0, 0.1),
        (5, 0.2, math.inf, 0.1),
        (1, 0.01, math.inf, 0.1),
        (20, 1.0, 0.3, 0.0),
        (10, 0.5, 1.0, 1.5),
    ],
)
def test_the_stated_share_of_runs_is_covered(
    share: float, work: float, rate: float, interval: float, restart: float
) -> None:
    chance, write = Random(7), 0.01
    bound = run_quantile(share, work, rate, interval, write, restart)
    runs = [simulated(chance, work, rate, interval, write, restart) for _ in range(RUNS)]
    covered = sum(took <= bound for took in runs) / RUNS
    assert covered >= share - 3 * math.sqrt(share * (1 - share) / RUNS)
    assert bound <= 4.2 * expected_run(work, rate, interval, write, restart).hours


def test_without_interruptions_it_is_the_run_itself() -> None:
    assert run_quantile(0.95, 10, 0.0, 1.0, 0.01, 0.1) == pytest.approx(10.1)
    assert run_quantile(0.95, 10, 0.0, math.inf, 0.01, 0.1) == 10


@pytest.mark.parametrize("stretches", [1, 50, 1000])
def test_a_larger_share_is_never_less_also_where_the_count_becomes_normal(stretches: int) -> None:
    for exposed in (1e-6, 0.01, 0.19, 0.21, 1.0, 40.0):
        found = [interruption_quantile(share, stretches, exposed) for share in (0.5, 0.9, 0.95, 0.99)]
        assert found == sorted(found)
        assert all(math.isfinite(one) for one in found)
    assert timedelta(hours=run_quantile(0.99, 1e3, 3.0, 0.1, 0.01, 0.1)) > timedelta(hours=1e3)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.99])
def test_the_number_of_interruptions_is_the_least_that_the_share_does_not_exceed(share: float) -> None:
    """Of one stretch it is geometric: more than k with the probability p ** (k + 1)."""
    for exposed in (0.1, 0.7, 2.0):
        lost, number = 1 - math.exp(-exposed), interruption_quantile(share, 1, exposed)
        assert 1 - lost ** (number + 1) >= share
        assert number == 0 or 1 - lost**number < share
