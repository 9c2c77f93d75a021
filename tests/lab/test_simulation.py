"""A workload on a virtual clock."""

from __future__ import annotations

import math

import pytest

from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from tests.lab.simulation.figures import Slots, WaitFigures, agreement, jain
from tests.lab.simulation.workload import DAY
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


def test_what_was_used_spent_and_waited_for_over_time_is_what_the_sums_say() -> None:
    found = play([OWNED], jobs_of(arrivals={"per_day": 60, "together": 10}, duration={"median": "1h", "p95": "2h"}))
    time, tally = found.over_time, found.teams["nlp"]
    used, spent, waiting = time.gpus[CapacityType.OWNED], time.spending[MoneyKind.AMORTISED], time.waiting_means()
    assert found.seconds < 3 * DAY
    within = sum(used.means()) * time.step
    assert within == pytest.approx(found.pools[0].used_gpu_seconds)
    assert sum(spent.means()) * time.step / 1e6 == pytest.approx(within / 3600 * 2, rel=1e-3), "$2 an hour"
    assert sum(waiting) * time.step <= sum(tally.waits)
    assert max(waiting) > 1
    assert max(used.means()) <= 4 + 1e-9


def test_stretches_add_up_in_each_slot() -> None:
    slots = Slots(3, 10)
    slots.add(5, 25, 2.0)
    slots.add(2, 4, 5.0)
    slots.add(20, 99, 1.0)
    assert slots.means() == [2.0, 2.0, 2.0]


def test_orders_agree_or_not() -> None:
    assert agreement([1, 2, 3], [10, 20, 15]) == pytest.approx(0.5)
    assert agreement([1, 1, 2], [5, 5, 9]) == pytest.approx(1.0)
    assert agreement([3, 1], [1, 3]) == pytest.approx(-1.0)
    assert agreement([1, 1], [1, 2]) is None


def test_the_slowdown_of_short_jobs_is_bounded() -> None:
    tally = play([{**OWNED, "machines": 1}], jobs_of(arrivals=200, duration="4s"), days=1).teams["nlp"]
    assert tally.finished == len(tally.waits) > 100
    assert tally.slowdowns == pytest.approx(sum(max((wait + 4) / 10, 1) for wait in tally.waits))


def test_no_pool_gives_more_machines_than_it_has() -> None:
    found = play([OWNED], jobs_of(arrivals=200))
    assert all(pool.used_seconds <= (pool.machines or 0) * 2 * DAY for pool in found.pools)
    assert found.pools[0].free == 4


def test_a_budget_is_never_exceeded_and_refusals_name_it() -> None:
    policy = "version: 1\npolicy: tight\nbudgets: [{name: day, amount: '$200', period: day}]\n"
    found = play([ON_DEMAND], jobs_of(arrivals=100), policy)
    spent = found.ledger.spent_by_period()["day"]
    assert max(spent.values()) <= Money.usd(200)
    assert found.teams["nlp"].refused["day: over_budget"] > 10
    assert found.teams["nlp"].finished > 10


def test_without_a_budget_no_cash_is_spent() -> None:
    found = play([ON_DEMAND], jobs_of(), "version: 1\npolicy: none\n")
    assert not found.teams["nlp"].started
    assert sum(found.teams["nlp"].refused.values()) == 48


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


def test_spot_is_lost_and_a_job_goes_on_from_its_checkpoint() -> None:
    job = {"resources": {"accelerators": "A100:1"}, "checkpoint": {"every": "10m"}, "max_duration": "96h"}
    found = play([SPOT], jobs_of(arrivals=10, duration="8h", job=job), days=5).teams["nlp"]
    assert found.interruptions > 50
    assert found.finished == found.submitted
    assert found.used_gpu_seconds[CapacityType.SPOT] < 1.4 * found.asked_gpu_seconds


def test_a_job_is_stopped_at_its_longest_time_and_by_its_money() -> None:
    job = {"resources": {"accelerators": "A100:1"}, "max_duration": "30m"}
    assert play([OWNED], jobs_of(job=job, estimate="20m")).teams["nlp"].stopped == {"max_duration": 48}
    job = {"resources": {"accelerators": "A100:1"}, "max_cost": "$2", "max_duration": "9h"}
    found = play([ON_DEMAND], jobs_of(job=job, estimate="20m")).teams["nlp"]
    assert found.stopped == {"money": 48}
    assert found.spent[MoneyKind.CASH] <= Money.usd(2) * 48


def test_what_runs_and_waits_for_too_long_is_cut_off_and_settled() -> None:
    job = {"resources": {"accelerators": "A100:1"}, "max_duration": "90d"}
    found = play([OWNED], jobs_of(arrivals=6, duration="60d", job=job), days=1)
    assert found.teams["nlp"].unfinished == 6
    assert found.teams["nlp"].started == 4
    assert found.seconds == 31 * DAY
    assert found.teams["nlp"].spent[MoneyKind.AMORTISED] > Money.usd(4 * 2 * 24 * 30)


def test_a_job_that_fits_nowhere_is_refused_with_the_reason() -> None:
    job = {"resources": {"accelerators": "A100:1"}, "num_nodes": 9}
    assert play([OWNED], jobs_of(job=job)).teams["nlp"].refused == {"no capacity: too_few_machines": 48}


def test_rules_that_count_running_jobs_are_obeyed() -> None:
    policy = (
        "version: 1\npolicy: few\nbudgets: [{name: all, amount: '$10,000,000', period: month}]\n"
        "guardrails: [{name: few, max_concurrent_gpus: 3}]\n"
    )
    found = play([ON_DEMAND], jobs_of(arrivals={"per_day": 50, "together": 10}), policy)
    assert found.teams["nlp"].refused["few: too_many_gpus"] >= 70
    assert found.teams["nlp"].finished <= 30


def test_a_gang_gets_all_its_machines_together_beside_a_stream_of_small_jobs() -> None:
    small = {"name": "small", "arrivals": 80, "duration": "1h", "job": {"resources": {"accelerators": "A100:1"}}}
    gang = {
        "name": "gang",
        "arrivals": 2,
        "duration": "2h",
        "job": {"resources": {"accelerators": "A100:1"}, "num_nodes": 4},
    }
    teams = {"nlp": {"user": "ann", "jobs": [small]}, "big": {"user": "bob", "jobs": [gang]}}
    found = play([OWNED], teams, days=4)
    assert found.teams["big"].finished == 8
    assert WaitFigures.of(found.teams["big"].waits).longest < 2 * DAY


def test_demand_of_a_team_grows_and_others_keep_their_arrivals() -> None:
    teams = jobs_of("nlp") | jobs_of("vision")
    before, after = play([OWNED], teams), play([OWNED], teams, demand={"nlp": 2})
    assert after.teams["nlp"].submitted == 2 * before.teams["nlp"].submitted
    assert after.teams["vision"].asked_gpu_seconds == before.teams["vision"].asked_gpu_seconds


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"capacity": {"A100:2": 3}}, "no pool is called 'A100:2'"),
        ({"demand": {"nlq": 2.0}}, "did you mean 'nlp'"),
        ({"demand": {"nlp": 0.0}}, "no job arrives"),
    ],
)
def test_a_change_of_what_is_not_there_is_refused(changed: dict[str, dict[str, float]], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        play([OWNED], jobs_of(), **changed)  # type: ignore[arg-type]  # capacity is whole, demand is not


def test_fairness_is_one_for_equals_and_a_share_for_one_of_many() -> None:
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain([]) is None


def test_percentiles_are_waits_that_were() -> None:
    assert WaitFigures.of([]) == WaitFigures(0, 0, 0, 0, 0)
    assert WaitFigures.of(range(1, 101)) == WaitFigures(50.5, 50, 95, 100, 0.41)


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
