"""The sandbox engine: its contract, and what the simulated market does to its machines."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.agent.running_command import NOT_RUNNING
from broker.core.errors import NoCapacity
from broker.core.events.agent_events import NoticeReceived
from broker.core.events.outcomes import Cause
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType
from broker.core.ports import EngineState, Launch, SupportsEntry
from broker.core.values.clock import ScaledClock
from broker.core.values.money import Money
from broker.engines.runfolder.runfolder import RunFolder
from broker.engines.sandbox.engine import SandboxEngine
from broker.engines.sandbox.market import World
from tests.agent.node import alive
from tests.contracts.engine_bench import Bench, eventually, lines
from tests.contracts.engine_contract import EngineContract
from tests.engines.test_local import slot_of

STARTS_AT = datetime(2026, 1, 1, tzinfo=UTC)
SCALE = 100.0

SCENARIO = """
name = "small"
boot_seconds = [5, 10]
notice_seconds = 2000
[behaviours.steady]
machines = [8, 8]
[behaviours.doomed]
life_hours = [10, 10]
machines = [2, 2]
[[zones]]
name = "sandbox-a"
region = "sandbox-region"
spot = "doomed"
on_demand = "steady"
[[machines]]
instance_type = "sandbox-cpu"
cpus = 2
memory_gib = 4
on_demand = "1.00"
spot = "0.30"
"""


def placement(world: World, capacity_type: CapacityType) -> Placement:
    offer = next(offer for offer in world.offers_at(STARTS_AT) if offer.capacity_type is capacity_type)
    return Placement(offer, 1, Money.usd(1), Money.usd(1), (), None, None, 1.0, 1.0, 0.0)


# Seconds of the wall from launch to notice. The market waits for no command to run; on a busy machine that takes long.
CHANCES = (1.0, 5.0, 25.0)


class SandboxBench(Bench):
    def taken_back(self, command: str, ready: Callable[[str, Path], bool], notice: float = 20.0) -> tuple[Launch, str]:
        """A launch and its handle, on a machine that the market takes back when it was ``ready``: that is asked with
        the handle and the file ``$MARK`` of the command. ``notice``: seconds of the wall to leave in."""
        for chance in CHANCES:
            hours = (chance + notice) * SCALE / 3600
            lives = SCENARIO.replace("life_hours = [10, 10]", f"life_hours = [{hours}, {hours}]")
            (self.folder / "scenario.toml").write_text(lives.replace("= 2000", f"= {notice * SCALE:.0f}"))
            self.engine = self.make()
            mark = self.mark()
            launch = self.launch(command, self.doomed, envs={"MARK": str(mark)})
            handle = self.engine.submit(launch)
            noticed = slot_of(self.folder / "home", handle) / "notice.json"

            def told() -> bool:
                return ready(handle, mark) or noticed.exists()  # noqa: B023  # called before the next round

            eventually(told, "it is ready, or the notice came too early")
            if not noticed.exists():
                return launch, handle
            self.until(handle, EngineState.GONE)
        raise AssertionError(f"it was not ready within {CHANCES[-1]:.0f} s")

    def doomed_one(self) -> str:
        return self.taken_back("echo up >> $MARK; exec sleep 300", is_up)[1]


def is_up(handle: str, mark: Path) -> bool:
    return lines(mark) == ["up"]


def sandbox_bench(folder: Path) -> SandboxBench:
    scenario = folder / "scenario.toml"
    scenario.write_text(SCENARIO)
    clock = ScaledClock(datetime.now(UTC), STARTS_AT, SCALE)
    world = World.load(str(scenario), 1, STARTS_AT)
    return SandboxBench(
        make=lambda: SandboxEngine(folder / "home", clock, str(scenario), 1, STARTS_AT),
        placement=placement(world, CapacityType.ON_DEMAND),
        clock=clock,
        folder=folder,
        doomed=placement(world, CapacityType.SPOT),
        take_away=lambda handle: None,  # its fate does it
        another_home=lambda: SandboxEngine(folder / "other-home", clock, str(scenario), 1, STARTS_AT),
    )


@pytest.fixture
def bench(tmp_path: Path) -> SandboxBench:
    return sandbox_bench(tmp_path)


@pytest.mark.system
class TestSandbox(EngineContract):
    plugin = "sandbox"

    @pytest.fixture
    def bench(self, tmp_path: Path) -> SandboxBench:
        return sandbox_bench(tmp_path)


def fate_of(bench: Bench, launch: Launch, since: datetime | None) -> datetime:
    assert isinstance(bench.engine, SandboxEngine)
    assert since is not None
    fate = bench.engine.world.next_interruption(launch.placement.offer.pool, launch.key, since)
    assert fate is not None
    return fate


@pytest.mark.system
def test_a_notice_leaves_time_to_save(bench: SandboxBench) -> None:
    saves = "cd $GPUBROKER_CHECKPOINT_DIR; trap 'echo x > .d; mv .d step_7; exit' TERM"
    launch, handle = bench.taken_back(f"{saves}; echo up >> $MARK; while :; do sleep 0.02; done", is_up)
    gone = bench.until(handle, EngineState.GONE)
    fate = fate_of(bench, launch, gone.since)
    assert gone.interrupted
    assert gone.gone_at is not None
    assert gone.gone_at < fate, "it had nothing more to do"
    runs = RunFolder(bench.runs_url, launch.key.removesuffix("-1"))
    state = runs.read_attempt(1)
    at, notice = next((entry.at, entry.body) for entry in state.journal if isinstance(entry.body, NoticeReceived))
    assert (notice.source, notice.terminates_at) == ("sandbox", fate)
    assert at < fate
    assert [(c.step, runs.verify(c.id)) for c in runs.checkpoints()] == [(7, None)]
    assert state.exit is not None
    assert state.exit.cause is Cause.PREEMPTED
    slot = slot_of(bench.folder / "home", handle)
    assert not list(slot.glob("node-*/checkpoints")), "the machine's disk goes with it"


@pytest.mark.system
def test_whoever_does_not_leave_is_killed_on_time(bench: SandboxBench) -> None:
    pids: list[int] = []

    def agent_stopped(handle: str, mark: Path) -> bool:
        if len(lines(mark)) < 2:
            return False
        agent = json.loads((slot_of(bench.folder / "home", handle) / "node-0" / "agent.json").read_text())["pid"]
        os.kill(agent, signal.SIGSTOP)
        pids[:] = [agent, *map(int, lines(mark))]
        return True

    command = "setsid sleep 300 & echo $! >> $MARK; echo $$ >> $MARK; wait"
    launch, handle = bench.taken_back(command, agent_stopped, notice=0.5)
    gone = bench.until(handle, EngineState.GONE)
    assert gone.interrupted
    assert gone.gone_at is not None
    assert timedelta(0) <= gone.gone_at - fate_of(bench, launch, gone.since) < timedelta(seconds=30 * SCALE)
    assert not [pid for pid in pids if alive(pid)]
    assert RunFolder(bench.runs_url, launch.key[:-2]).read_attempt(1).exit is None, "nobody could say goodbye"


@pytest.mark.system
def test_cancelled_while_it_boots_it_is_away_at_once(bench: Bench) -> None:
    slowly = SCENARIO.replace("[5, 10]", "[3600000, 3600000]")  # ten hours of the wall
    (bench.folder / "scenario.toml").write_text(slowly)
    mark = bench.mark()
    engine = bench.make()
    handle = engine.submit(bench.launch(f"echo ran >> {mark}"))
    state = slot_of(bench.folder / "home", handle) / "state.json"
    eventually(state.exists, "it boots")
    assert engine.observe([handle])[handle].state is EngineState.PENDING
    engine.cancel(handle)
    gone = bench.until(handle, EngineState.GONE)
    assert (gone.interrupted, gone.evidence) == (False, "cancelled while it booted")
    assert lines(mark) == []


@pytest.mark.system
def test_sold_out_is_no_capacity(bench: Bench) -> None:
    first, second = (bench.engine.submit(bench.launch("exec sleep 300", bench.doomed)) for _ in range(2))
    third = bench.launch("true", bench.doomed)
    with pytest.raises(NoCapacity, match="0 machines left"):
        bench.engine.submit(third)
    assert bench.engine.find(third.key) is None
    bench.engine.cancel(first)
    bench.until(first, EngineState.GONE)
    for handle in (second, bench.engine.submit(third)):
        bench.engine.cancel(handle)
        bench.until(handle, EngineState.GONE)


def test_launches_fail_on_command_counted_over_restarts(bench: Bench) -> None:
    def another() -> SandboxEngine:
        engine = bench.make()
        assert isinstance(engine, SandboxEngine)
        engine.world.faults.failing_launches.add(2)
        return engine

    first, second = bench.launch("true"), bench.launch("true")
    another().submit(first)
    for _ in range(2):
        with pytest.raises(NoCapacity, match="launch 2 failed because of a fault"):
            another().submit(second)
    another().submit(bench.launch("true"))
    assert another().submit(first) == another().find(first.key)


def test_a_lost_machine_is_lost(bench: Bench) -> None:
    handle = bench.engine.submit(bench.launch("true"))
    engine = bench.make()
    assert isinstance(engine, SandboxEngine)
    engine.world.faults.lost_machines.add("job1-1")
    assert engine.observe([handle])[handle].state is EngineState.LOST


@pytest.mark.system
def test_the_machine_killed_takes_all_of_it_along(bench: Bench) -> None:
    mark = bench.mark()
    handle = bench.engine.submit(bench.launch(f"setsid sleep 300 & echo $! >> {mark}; echo $$ >> {mark}; wait"))
    pids = [int(line) for line in eventually(lambda: lines(mark) if len(lines(mark)) == 2 else None, "it runs")]
    os.kill(json.loads((slot_of(bench.folder / "home", handle) / "started.json").read_text())["pid"], signal.SIGKILL)
    gone = bench.until(handle, EngineState.GONE)
    assert not [pid for pid in pids if alive(pid)]
    assert not gone.interrupted
    assert gone.evidence == "the sandbox machine was killed"
    assert not list(slot_of(bench.folder / "home", handle).glob("node-*/output.log")), "it may have values of secrets"
    assert gone.gone_at is not None


@pytest.mark.system
def test_the_agent_killed_is_no_interruption(bench: Bench) -> None:
    handle = bench.engine.submit(bench.launch("exec sleep 300"))
    record = slot_of(bench.folder / "home", handle) / "node-0" / "agent.json"
    eventually(record.exists, "the agent has claimed")
    os.kill(json.loads(record.read_text())["pid"], signal.SIGKILL)
    gone = bench.until(handle, EngineState.GONE)
    assert (gone.interrupted, gone.evidence) == (False, "its agent was killed by signal 9")


@pytest.mark.system
def test_a_gang_is_one_machine(bench: Bench) -> None:
    """Two nodes: each its rank, each the addresses of all; the attempt ends when both have."""
    launch = bench.launch("echo $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES; echo $SKYPILOT_NODE_IPS | wc -w")
    gang = replace(launch, job=launch.job.model_copy(update={"num_nodes": 2}))
    spec = bench.folder / "runs" / "job1" / "attempts" / "1" / "spec.json"
    spec.write_text(spec.read_text().replace('"nodes": 1', '"nodes": 2'))
    handle = bench.engine.submit(gang)
    bench.until(handle, EngineState.GONE)
    runs = RunFolder(bench.runs_url, "job1")
    assert [list(runs.logs(1, rank)) for rank in (0, 1)] == [["0 of 2", "2"], ["1 of 2", "2"]]
    state = runs.read_attempt(1)
    assert {claim.rank for claim in state.claims} == {0, 1}
    assert len({claim.gang for claim in state.claims}) == 1
    assert state.exit is not None
    assert state.exit.cause is Cause.COMPLETED


@pytest.mark.system
def test_people_enter_the_process_that_plays_the_machine(bench: Bench) -> None:
    handle = bench.engine.submit(bench.launch("echo here > mine; exec sleep 300"))
    bench.until(handle, EngineState.UP)
    assert isinstance(bench.engine, SupportsEntry)
    # The process is there before its command has written the file.
    script = 'until [ -s mine ]; do sleep 0.1; done; echo "$(cat mine) $GPUBROKER_ATTEMPT"; exit 7'
    way = bench.engine.way_in(handle, 0, ["--", "sh", "-c", script], terminal=False)

    def entered() -> subprocess.CompletedProcess[str] | None:
        done = subprocess.run(way.arguments, check=False, capture_output=True, text=True, timeout=240)
        return None if done.returncode == NOT_RUNNING else done

    done = eventually(entered, "the command runs")
    assert (done.returncode, done.stdout) == (7, "here 1\n"), done
    bench.engine.cancel(handle)
    bench.until(handle, EngineState.GONE)


def test_a_machine_process_imports_little() -> None:
    """One such process starts for every launch. The market's models would cost each of them half a second."""
    program = (
        "import sys, broker.engines.sandbox.machine;"
        "print([name for name in ('pydantic', 'psutil', 'broker.engines.sandbox.market') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
