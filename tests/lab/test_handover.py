"""A spot machine that boots beside a working on-demand machine: bills worked out by hand. Prices 3 and 1."""

from dataclasses import replace

import pytest

from broker.placement.strategy.situation import Handover, Mode, Situation, StrategyDecision, StrategyTask
from tests.lab.optimum import optimum
from tests.lab.replay import PoolRecord, ReplayMarket, ReplayOutcome, ReplayStep, replay

HOUR = 3600.0


class HandsOver:
    """On-demand, handed over to spot as soon as it works and the pool has capacity."""

    def decide(self, now: Situation) -> StrategyDecision:
        if now.mode is Mode.IDLE or now.changeover_left > 0 or not now.spot:
            return StrategyDecision(now.mode if now.mode is not Mode.IDLE else Mode.ON_DEMAND, now.pool)
        return StrategyDecision(Mode.SPOT if now.mode is Mode.SPOT else Mode.BOTH, "pool")


def market(bits: str, tick: float) -> ReplayMarket:
    up = tuple(bit == "1" for bit in bits)
    return ReplayMarket("hand", "pool", tick, (PoolRecord("pool", up, (1.0,) * len(up), 3.0),))


def run(bits: str, tick: float, handover: Handover, work: float = 7200.0) -> tuple[ReplayOutcome, str]:
    """The outcome of a job with a changeover of 12 min, and each tick's machine: o(n-demand), b(oth), s(pot)."""
    log: list[ReplayStep] = []
    task = StrategyTask(work, len(bits) * tick, 720.0, tick, handover)
    outcome = replay(market(bits, tick), 0, task, HandsOver(), log)
    return outcome, "".join(step.decision.mode.value[0] for step in log)


@pytest.mark.parametrize(
    ("boot", "restore", "upload", "stopped"),
    [(540.0, 180.0, 0.0, 180.0), (540.0, 180.0, 120.0, 300.0), (720.0, 0.0, 0.0, 0.0), (720.0, 0.0, 700.0, 700.0)],
)
def test_a_handover_costs_both_machines_for_the_boot_and_work_for_restore_and_upload(
    boot: float, restore: float, upload: float, stopped: float
) -> None:
    # On-demand boots for 720 s, two ticks with the work after it. Both for the boot; from then on spot alone.
    outcome, modes = run("00" + "1" * 18, 600, Handover(boot, restore, upload))
    assert modes == "oo" + ("b" if boot == 540 else "bb") + "s" * (len(modes) - (3 if boot == 540 else 4))
    finish = 720 + stopped + 7200
    assert outcome.finish == pytest.approx(finish)
    assert outcome.cost == pytest.approx((3 * (1200 + boot) + 1 * (finish - 1200)) / HOUR)
    task = StrategyTask(7200, finish, 720, 600, Handover(boot, restore, upload))  # no time for anything else
    assert optimum(market("00" + "1" * 18, 600), 0, task) == pytest.approx(outcome.cost)
    assert optimum(market("00" + "1" * 18, 600), 0, replace(task, handover=None)) == pytest.approx(7920 * 3 / HOUR)
    assert (outcome.moves, outcome.interruptions) == (1, 0)
    assert outcome.billed_seconds == pytest.approx(finish + boot)
    assert outcome.on_demand_seconds == pytest.approx(1200 + boot)


def test_a_machine_lost_in_its_boot_is_paid_for_and_stops_nothing() -> None:
    # Ticks of 195 s: on-demand works from the fourth tick's end, spot boots for two ticks and is lost.
    outcome, modes = run("0" * 4 + "11" + "0" * 50, 195, Handover(540, 180))
    assert modes.startswith("oooobbo")
    assert outcome.finish == pytest.approx(720 + 7200)
    assert outcome.cost == pytest.approx((3 * (720 + 7200) + 1 * 2 * 195) / HOUR)
    assert outcome.interruptions == 0


def test_a_machine_lost_after_it_took_over_leaves_the_job_idle() -> None:
    outcome, modes = run("0" * 4 + "111" + "0" * 50, 195, Handover(540, 180))
    assert modes.startswith("oooobbbo")
    # Lost while it restored: on-demand starts anew; 45 s of the 180 had passed.
    assert outcome.finish == pytest.approx(720 + 45 + 720 + 7200)
    assert outcome.interruptions == 1


def test_work_that_ends_in_the_boot_ends_on_on_demand() -> None:
    outcome, modes = run("1" * 20, 600, Handover(540, 180), work=480 + 300)
    assert modes == "oob"
    assert outcome.finish == pytest.approx(1500)
    assert outcome.cost == pytest.approx((3 * 1500 + 1 * 300) / HOUR)


def test_a_handover_needs_on_demand_at_work() -> None:
    class TooSoon:
        def decide(self, now: Situation) -> StrategyDecision:
            return StrategyDecision(Mode.BOTH, "pool")

    with pytest.raises(ValueError, match="needs on-demand at work"):
        replay(market("1", 600), 0, StrategyTask(60, 600, 720, 600, Handover(540, 180)), TooSoon())
