"""Strategies without a model, on windows worked out by hand. Hours, a tick of one hour, prices 3 and 1."""

from dataclasses import replace

import pytest

from broker.placement.strategy.situation import Handover, StrategySession, StrategyTask, UniformProgress
from tests.lab.replay import PoolRecord, ReplayMarket, ReplayOutcome, ReplayStep, replay
from tests.lab.strategies import Gepa, Levi, OnDemandOnly

HOUR = 3600.0


def market(bits: str) -> ReplayMarket:
    up = tuple(bit == "1" for bit in bits)
    return ReplayMarket("hand", "pool", HOUR, (PoolRecord("pool", up, (1.0,) * len(up), 3.0),))


def task(work: float, deadline: float, changeover: float) -> StrategyTask:
    return StrategyTask(work * HOUR, deadline * HOUR, changeover * HOUR, HOUR)


def run(bits: str, course: StrategySession, job: StrategyTask) -> tuple[ReplayOutcome, str]:
    """The outcome, and the machine of each tick: i(dle), s(pot), o(n-demand)."""
    log: list[ReplayStep] = []
    outcome = replay(market(bits), 0, job, course, log)
    return outcome, "".join(step.decision.mode.value[0] for step in log)


def test_uniform_progress_waits_on_the_line_catches_up_and_returns_to_spot_when_ahead() -> None:
    # Pace ½. 0: on the line, wait. 1: behind, on-demand (¼ boot). 2: 0.75 done, 1.25 needed to leave. 3: 1.75 done,
    # 1.75 needed: spot. 4.25 h of work and two boots of ¼ end at 5.5 h.
    job = task(4, 8, 0.25)
    outcome, modes = run("00011111", UniformProgress(job), job)
    assert modes == "ioosss"
    assert outcome.cost == pytest.approx(2 * 3 + 2.5 * 1)
    assert outcome.finish == pytest.approx(5.5 * HOUR)
    assert (outcome.missed, outcome.interruptions, outcome.moves) == (False, 0, 1)


def test_uniform_progress_keeps_on_demand_until_it_is_two_changeovers_ahead() -> None:
    # Pace ⅔, boot ½: from tick 1 on progress is never (t + 1)·⅔, though spot is there.
    job = task(4, 6, 0.5)
    outcome, modes = run("001111", UniformProgress(job), job)
    assert modes == "iooooo"
    assert outcome.cost == pytest.approx(4.5 * 3)


def test_uniform_progress_does_not_leave_on_demand_one_changeover_ahead() -> None:
    # Pace ½, boot 0.3. At 3: 1.7 done, 1.65 for one changeover, 1.8 for two: stay. At 4: 2.7 done, 2.3 needed: spot.
    job = task(4, 8, 0.3)
    outcome, modes = run("00111111", UniformProgress(job), job)
    assert modes == "ioooss"
    assert outcome.cost == pytest.approx(3 * 3 + 1.6)


def test_uniform_progress_hands_over_to_spot_as_soon_as_it_is_on_the_line() -> None:
    # As above, but at 3 spot boots for 0.2 beside on-demand and restores for 0.1: 2.6 done at 4.
    job = replace(task(4, 8, 0.3), handover=Handover(0.2 * HOUR, 0.1 * HOUR))
    outcome, modes = run("00111111", UniformProgress(job), job)
    assert modes == "ioobss"
    assert outcome.cost == pytest.approx(2.2 * 3 + 2.4)


def test_uniform_progress_takes_spot_at_once_and_is_idle_after_a_loss_when_ahead() -> None:
    # Spot for two hours (1.75 done), lost while 0.75 ahead of the line: waits one tick, on the line at 3.5 h.
    job = task(4, 8, 0.25)
    outcome, modes = run("11001111", UniformProgress(job), job)
    assert modes == "ssiisss"
    assert (outcome.interruptions, outcome.moves) == (1, 0)
    assert outcome.cost == pytest.approx(2 + 2.5)


def test_on_demand_only_costs_work_and_one_boot() -> None:
    job = task(4, 8, 0.25)
    assert run("11111111", OnDemandOnly(job), job)[0].cost == pytest.approx(4.25 * 3)


def test_levi_waits_with_a_changeover_two_ticks_and_a_tenth_of_the_work_to_spare_and_keeps_on_demand_until_spot() -> (
    None
):
    # Waiting needs 0.25 + 2 + 0.4 h of slack: 4 and 3 h suffice, 2 do not. On-demand stays at 3; spot at 4.
    job = task(4, 8, 0.25)
    outcome, modes = run("00001111", Levi(job), job)
    assert modes == "iioosss"
    assert outcome.cost == pytest.approx(2 * 3 + 2.5 * 1)


def test_gepa_waits_with_a_changeover_and_a_fifth_of_the_work_to_spare() -> None:
    # Waiting needs 0.25 + 0.8 h of slack: 2 h suffice, 1 does not. On-demand stays at 4; spot at 5.
    job = task(4, 8, 0.25)
    outcome, modes = run("000001111", Gepa(job), job)
    assert modes == "iiioosss"
    assert outcome.cost == pytest.approx(2 * 3 + 2.5 * 1)


def test_at_the_point_of_no_return_gepa_leaves_a_spot_machine_that_levi_does_not_start() -> None:
    # Half an hour of slack, a boot of a quarter: one boot on spot leaves just the other.
    job = task(4, 4.5, 0.25)
    assert run("11111", Gepa(job), job)[1] == "soooo"
    assert run("11111", Levi(job), job)[1] == "ooooo"
