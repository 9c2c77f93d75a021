"""A workload on a virtual clock."""

import math

import pytest

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from tests.lab.simulation.figures import WaitFigures
from tests.lab.workloads import ON_DEMAND, OWNED, SPOT, jobs_of, play


def test_the_same_seed_gives_the_same_hash_and_another_seed_another() -> None:
    market = [OWNED, ON_DEMAND, {**SPOT, "varies": "20%"}]
    teams = jobs_of(arrivals=40, duration={"median": "1h", "p95": "5h"})
    first, again, other = (play(market, teams, seed=seed) for seed in (1, 1, 2))
    assert first.digest == again.digest
    assert first.teams["nlp"].spent == again.teams["nlp"].spent
    assert first.digest != other.digest


def test_a_job_on_owned_capacity_costs_its_hours() -> None:
    found = play([OWNED], jobs_of(), jobs=10, days=10).teams["nlp"]
    assert found.finished == 10
    assert found.spent == {MoneyKind.AMORTISED: Money.usd(20)}
    assert found.used_gpu_seconds == {CapacityType.OWNED: 36_000.0}


def test_jobs_wait_for_owned_machines_and_more_machines_shorten_the_wait() -> None:
    teams = jobs_of(arrivals={"per_day": 120, "together": 40})
    short = play([OWNED], teams)
    wide = play([OWNED], teams, capacity={"A100:1": 40})
    assert WaitFigures.of(short.teams["nlp"].waits).mean > 3600
    assert WaitFigures.of(wide.teams["nlp"].waits).longest < 3700
    assert short.teams["nlp"].finished == wide.teams["nlp"].finished == 240
    assert list(short.gangs["1"]) == list(short.teams["nlp"].waits)


def test_a_budget_is_never_exceeded_and_refusals_name_it() -> None:
    policy = "version: 1\npolicy: tight\nbudgets: [{name: day, amount: '$200', period: day}]\n"
    found = play([ON_DEMAND], jobs_of(arrivals=100), policy)
    spent = found.ledger.spent_by_period()["day"]
    assert max(spent.values()) <= Money.usd(200)
    assert found.teams["nlp"].refused["day: over_budget"] > 10
    assert found.teams["nlp"].finished > 10


def test_a_budget_that_refuses_every_job_is_reported_and_so_is_what_jobs_hold() -> None:
    tiny = "version: 1\npolicy: tiny\nbudgets: [{name: day, amount: '$1', period: day}]\n"
    assert play([ON_DEMAND], jobs_of(), tiny).ledger.spent_by_period() == {"day": {}}
    large = tiny.replace("$1", "$200")
    # A job that waits for an owned machine holds what twelve hours on demand cost.
    teams = jobs_of(arrivals=100, job={"resources": {"accelerators": "A100:1"}, "max_duration": "12h"})
    found = play([{**OWNED, "machines": 1}, ON_DEMAND], teams, large)
    held = found.ledger.most_held_by_period()["day"]
    assert max(held.values()) > Money.usd(100)
    assert found.ledger.spent_by_period() == {"day": {}}
    assert found.teams["nlp"].refused["day: over_budget"]


@pytest.mark.system
def test_waiting_is_that_of_queueing_theory() -> None:
    """Poisson arrivals, exponential work, ten machines: Erlang's C formula gives the mean wait."""
    machines, per_hour = 10, 8.5
    teams = jobs_of(arrivals=24 * per_hour, duration={"mean": "1h"})
    waits = [
        WaitFigures.of(play([{**OWNED, "machines": machines}], teams, days=60, seed=seed).teams["nlp"].waits).mean
        for seed in (1, 2)
    ]
    load = per_hour
    waiting_states = load**machines / math.factorial(machines) * machines / (machines - load)
    others = sum(load**k / math.factorial(k) for k in range(machines))
    expected = waiting_states / (waiting_states + others) / (machines - load) * 3600
    assert sum(waits) / 2 == pytest.approx(expected + 30, rel=0.2), "a round of the queue is up to a minute away"
