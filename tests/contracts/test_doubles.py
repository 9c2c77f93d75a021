"""The simulated engines of tests satisfy the contract of real ones, as far as that is possible without running a
command, and each of their calls can fail.

Excluded are checks that need a running command, its output, its processes, its files or its secrets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from broker.core.errors import BrokerError, GiveUp, RetryLater, TryAnotherOffer
from broker.core.events.outcomes import Cause
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType
from broker.core.ports import Engine, EngineState, Launch, Observation
from broker.core.values.clock import Clock, ManualClock
from broker.runfolder.mailbox import LeaseGrant
from broker.runfolder.node_state import ExitRecord
from tests.contracts.engine_bench import Bench
from tests.contracts.engine_contract import EngineContract
from tests.money.clock import StageClock
from tests.money.cloud import MachineFate, ScriptedCloud
from tests.money.folders import Folders
from tests.reconciler.rehearsal import StageEngine, offer

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
# The result of each command of the contract on a machine that runs none: its duration in seconds, and its exit status.
COMMANDS = {"true": (0.0, 0), "exit 3": (0.0, 3)}
KEPT = (
    "test_it_has_its_registered_name",
    "test_it_says_what_it_can_do",
    "test_what_it_does_not_know_is_lost_and_harms_nobody",
    "test_what_is_cancelled_at_once_is_gone_at_once",
    "test_a_failure_is_not_an_interruption",
    "test_one_look_covers_every_handle",
    "test_an_interruption_is_told_as_one",
    "test_a_key_that_is_no_plain_name_is_refused",
)


@dataclass
class _Double(Bench, ABC):
    """A bench whose time passes with each observation."""

    def launch(self, command: str, placement: Placement | None = None, *_: Any, **__: Any) -> Launch:
        number = next(self.numbers)
        job = Job(name="contract", run=command)
        return Launch(f"job{number}-1", job, placement or self.placement, f"memory:///job{number}/attempts/1")

    def doomed_one(self) -> str:
        handle = self.engine.submit(self.launch("exec sleep 300", self.doomed))
        self.until(handle, EngineState.UP)
        return handle

    def until(self, handle: str, state: EngineState) -> Observation:
        for _ in range(100):
            if (seen := self.look(handle)).state is state:
                return seen
            self.passes()
        raise AssertionError(f"{handle} never is {state.value}")

    @abstractmethod
    def passes(self) -> None:
        """Ten seconds pass."""


@dataclass
class RehearsalBench(_Double):
    """The bench of `tests.reconciler.rehearsal.StageEngine`, whose attempts end only when a test ends them."""

    def passes(self) -> None:
        clock, engine = cast(ManualClock, self.clock), cast(StageEngine, self.engine)
        clock.advance(timedelta(seconds=10))
        for machine in engine.machines.values():
            if machine.launch.job.run in COMMANDS and machine.gone_at is None:
                machine.gone_at = clock.now()

    def ending(self, launch: Launch) -> ExitRecord:
        return ExitRecord(self.clock.now(), Cause.EXIT_STATUS, COMMANDS[launch.job.run][1])


@dataclass
class CloudBench(_Double):
    """The bench of `tests.money.cloud.ScriptedCloud`."""

    folders: Folders | None = None

    def launch(self, command: str, *args: Any, **kwargs: Any) -> Launch:
        launch = super().launch(command, *args, **kwargs)
        runs, status = COMMANDS.get(command, (None, 0))
        cloud = cast(ScriptedCloud, self.engine)
        cloud.fate = MachineFate(runs=runs, fails=status != 0)
        cloud.folders.leases[launch.key] = [(LeaseGrant(), cloud.clock.true)]
        return launch

    def passes(self) -> None:
        cloud = cast(ScriptedCloud, self.engine)
        cloud.clock.true += timedelta(seconds=10)
        cloud.until(cloud.clock.true)

    def ending(self, launch: Launch) -> ExitRecord:
        ending = cast(ScriptedCloud, self.engine).folders.node(launch.key).exit
        assert ending is not None
        return replace(ending, exit_status=COMMANDS[launch.job.run][1] if ending.exit_status else 0)


def _placement(capacity: CapacityType) -> Placement:
    from broker.core.values.money import Money

    one = offer(NOON, "box", capacity)
    return Placement(one, 1, one.price or Money.ZERO, Money.ZERO, (), None, None, 1.0, 1.0, 0.0)


def rehearsed(folder: Path) -> _Double:
    clock = ManualClock(NOON)
    engine = StageEngine(clock)
    placements = _placement(CapacityType.ON_DEMAND), _placement(CapacityType.SPOT)
    return RehearsalBench(lambda: engine, placements[0], clock, folder, placements[1], engine.take_back)


def clouded(folder: Path) -> _Double:
    clock = StageClock(NOON)
    cloud = ScriptedCloud(clock, Folders(clock))
    placements = _placement(CapacityType.ON_DEMAND), _placement(CapacityType.SPOT)

    def take_away(handle: str) -> None:
        cloud.take_back(cloud.machines[handle])

    return CloudBench(
        cast("Callable[[], Engine]", lambda: cloud), placements[0], cast(Clock, clock), folder, placements[1], take_away
    )


@pytest.mark.parametrize("check", KEPT)
@pytest.mark.parametrize("bench", [rehearsed, clouded])
def test_a_double_keeps_the_contract(bench: Callable[[Path], Bench], check: str, tmp_path: Path) -> None:
    class Contract(EngineContract):
        plugin = "stage"

    getattr(Contract(), check)(bench(tmp_path))


@pytest.mark.parametrize("bench", [rehearsed, clouded])
def test_submitting_again_makes_no_second_machine(bench: Callable[[Path], _Double], tmp_path: Path) -> None:
    made = bench(tmp_path)
    launch = made.launch("exec sleep 300")
    handle = made.engine.submit(launch)
    assert made.engine.submit(launch) == handle
    made.until(handle, EngineState.UP)
    made.engine.cancel(handle)
    gone = made.until(handle, EngineState.GONE)
    made.passes()
    assert made.engine.submit(launch) == handle
    assert made.look(handle) == gone, "a machine that is gone comes up again, or its bill goes on"


CALLS: dict[str, Callable[[Engine, Launch], Any]] = {
    "submit": lambda engine, launch: engine.submit(launch),
    "find": lambda engine, launch: engine.find(launch.key),
    "observe": lambda engine, launch: engine.observe([launch.key]),
    "cancel": lambda engine, launch: engine.cancel(launch.key),
    "logs": lambda engine, launch: list(engine.logs(launch.key)),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", [RetryLater("busy"), TryAnotherOffer("sold out"), GiveUp("no"), KeyError("mistake")])
def test_every_call_of_the_rehearsal_engine_can_fail(call: str, error: Exception, tmp_path: Path) -> None:
    bench = rehearsed(tmp_path)
    launch = bench.launch("exec sleep 300")
    cast(StageEngine, bench.engine).failing[call] = [error]
    with pytest.raises(type(error)):
        CALLS[call](bench.engine, launch)
    assert bench.engine.find(launch.key) is None, "a submission that failed left a machine"
    CALLS[call](bench.engine, launch)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", ["retry", "refused", "crash"])
def test_every_call_of_the_stage_cloud_can_fail(call: str, error: str, tmp_path: Path) -> None:
    bench = clouded(tmp_path)
    launch = bench.launch("exec sleep 300")
    cast(ScriptedCloud, bench.engine).failing[call] = [error]
    with pytest.raises(RuntimeError if error == "crash" else BrokerError):
        CALLS[call](bench.engine, launch)
    assert launch.key not in cast(ScriptedCloud, bench.engine).machines, "a submission that failed left a machine"
    CALLS[call](bench.engine, launch)
