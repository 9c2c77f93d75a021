"""The local engine: its contract, and what is particular to it."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.core.job.placements import Placement
from broker.core.market.capacity import ListsMachines
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.ports import EngineState
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from broker.engines.detached import Slot
from broker.engines.local import Local
from tests.agent.node import alive
from tests.contracts.engine_bench import Bench, eventually, lines
from tests.contracts.engine_contract import EngineContract


def placement() -> Placement:
    offer = Offer(
        provider="owned",
        region="here",
        zone=None,
        instance_type="this-machine",
        accelerator=None,
        count=0,
        capacity_type=CapacityType.OWNED,
        price=Money.ZERO,
        as_of=datetime.now(UTC),
        source="owned",
        availability=Availability.AVAILABLE,
        engine="local",
        money=MoneyKind.AMORTISED,
    )
    return Placement(offer, 1, Money.ZERO, Money.ZERO, (), None, None, 1.0, 1.0, 0.0)


def local_bench(folder: Path, kind: type[Local] = Local) -> Bench:
    home = folder / "home"

    def take_away(handle: str) -> None:
        os.kill(agent_pid(home, handle), signal.SIGTERM)  # as a machine does that is shut down

    return Bench(
        make=lambda: kind(home, SystemClock()),
        placement=placement(),
        clock=SystemClock(),
        folder=folder,
        doomed=placement(),
        take_away=take_away,
        another_home=lambda: kind(folder / "other-home", SystemClock()),
    )


def slot_of(home: Path, handle: str) -> Path:
    return home / handle.rpartition(":")[2]


def agent_pid(home: Path, handle: str) -> int:
    return int(json.loads((slot_of(home, handle) / "agent.json").read_text())["pid"])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return local_bench(tmp_path)


class TestLocal(EngineContract):
    plugin = "local"

    @pytest.fixture
    def bench(self, tmp_path: Path) -> Bench:
        return local_bench(tmp_path)


def test_the_agent_killed_takes_the_command_and_its_children_along(bench: Bench, tmp_path: Path) -> None:
    mark = bench.mark()
    handle = bench.engine.submit(
        bench.launch(f"sleep 300 & echo $! >> {mark}; setsid sleep 300 & echo $! >> {mark}; wait")
    )
    pids = [int(line) for line in eventually(lambda: lines(mark) if len(lines(mark)) == 2 else None, "it runs")]
    killed_at = datetime.now(UTC)
    os.kill(agent_pid(tmp_path / "home", handle), signal.SIGKILL)
    slot = Slot(slot_of(tmp_path / "home", handle))
    eventually(lambda: not slot.alive(), "all is over before anybody looks")
    gone = bench.until(handle, EngineState.GONE)
    assert not [pid for pid in pids if alive(pid)]
    assert not gone.interrupted
    assert gone.evidence == "the agent died without a message"
    assert gone.gone_at is not None
    assert abs(gone.gone_at - killed_at) < timedelta(minutes=4), "the guard saw when"
    assert not (slot.folder / "output.log").exists(), "it may have values of secrets"
    assert bench.look(handle) == gone


def test_no_machine_is_gone_while_a_process_of_its_job_lives(bench: Bench, tmp_path: Path) -> None:
    """Agent and guard are killed together, and the command's children have left its session, variables or output,
    the last one all of these and its descriptors: only its folder tells."""
    mark = bench.mark()
    children = (
        "setsid sleep 300 & echo $! >> {0}; env -i setsid sleep 300 & echo $! >> {0}; "
        "setsid sleep 300 > /dev/null 2>&1 & echo $! >> {0}; sleep 300 & echo $! >> {0}; "
        'env -i setsid $BASH -c \'for fd in /proc/self/fd/*; do n=${{fd##*/}}; eval "exec $n>&-"; done; '
        "(echo $BASHPID >> {0}; exec /bin/sleep 300 < /dev/null > /dev/null 2>&1) & exit' & wait"
    )
    launch = bench.launch(children.format(mark))
    handle = bench.engine.submit(launch)
    pids = [int(line) for line in eventually(lambda: lines(mark) if len(lines(mark)) == 5 else None, "it runs")]
    agent = agent_pid(tmp_path / "home", handle)
    guard = int(json.loads((slot_of(tmp_path / "home", handle) / "guard.json").read_text())["pid"])
    for pid in (agent, guard):
        os.kill(pid, signal.SIGSTOP)  # neither may see the other's death
    for pid in (agent, guard):
        os.kill(pid, signal.SIGKILL)
    assert isinstance(bench.engine, ListsMachines)
    assert [one.handle for one in bench.engine.machines()] == [handle], "a sweep finds it"
    bench.until(handle, EngineState.GONE)
    assert not [pid for pid in pids if alive(pid)]
    assert not (slot_of(tmp_path / "home", handle) / "output.log").exists(), "it may have values of secrets"


@pytest.mark.system
def test_a_submitter_killed_at_any_moment_leaves_one_machine_or_none(bench: Bench, tmp_path: Path) -> None:
    """The process that submits is stopped dead right before and right after it starts the agent."""
    program = """
import os, signal, subprocess, sys
from pathlib import Path
from broker.core.values.clock import SystemClock
from broker.core.job.jobs import Job
from broker.core.ports import Launch
from broker.engines.local import Local
from tests.engines.test_local import placement
home, folder, key, when = sys.argv[1:]
start = subprocess.Popen.__init__
def dying(self, *arguments, **options):
    if when == "before": os.kill(os.getpid(), signal.SIGKILL)
    start(self, *arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)
subprocess.Popen.__init__ = dying
Local(Path(home), SystemClock()).submit(Launch(key, Job(name="x", run="x"), placement(), folder))
"""
    for when in ("before", "after"):
        mark = bench.mark()
        launch = bench.launch(f"echo ran >> {mark}; sleep 0.2")
        dead = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "home"), launch.run_folder, launch.key, when], check=False
        )
        assert dead.returncode == -signal.SIGKILL
        assert (bench.engine.find(launch.key) is not None) == (when == "after")
        handle = bench.engine.submit(launch)
        gone = bench.until(handle, EngineState.GONE)
        assert lines(mark) == ["ran"], when
        assert bench.engine.submit(launch) == handle
        assert bench.look(handle) == gone


def test_a_reused_pid_is_left_alone(bench: Bench, tmp_path: Path) -> None:
    """The record names a process that was born after it: somebody else's."""
    handle = bench.engine.submit(bench.launch("exec sleep 300"))
    bench.until(handle, EngineState.UP)
    slot = slot_of(tmp_path / "home", handle)
    started = json.loads((slot / "started.json").read_text())
    with subprocess.Popen(["sleep", "300"]) as bystander:
        old = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
        for record in ({**started, "pid": bystander.pid}, {"pid": bystander.pid, "wall": old}):
            (slot / "started.json").write_text(json.dumps(record))
            bench.engine.cancel(handle)
            assert bystander.poll() is None
            (slot / "told.json").unlink()
        bystander.kill()
    (slot / "started.json").write_text(json.dumps(started))
    bench.engine.cancel(handle)
    bench.until(handle, EngineState.GONE)


@pytest.mark.system
def test_a_wall_clock_set_forward_protects_nobody(bench: Bench, tmp_path: Path) -> None:
    """Then the process seems to have been born after it was written down."""
    handle = bench.engine.submit(bench.launch("exec sleep 300"))
    bench.until(handle, EngineState.UP)
    record = slot_of(tmp_path / "home", handle) / "started.json"
    earlier = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    record.write_text(json.dumps({**json.loads(record.read_text()), "wall": earlier}))
    bench.engine.cancel(handle)
    bench.until(handle, EngineState.GONE)


@pytest.mark.system
def test_another_name_of_the_machine_is_the_same_machine(bench: Bench) -> None:
    handle = bench.engine.submit(bench.launch("true"))
    engine, host, place, key = handle.split(":")
    assert (engine, key) == ("local", "job1-1")
    renamed = f"{engine}:renamed-{host}:{place}:{key}"
    bench.until(renamed, EngineState.GONE)
    assert bench.look(f"{engine}:{host}:{'0' * 12}:{key}").state is EngineState.ELSEWHERE
    assert bench.look(f"{engine}:{host}:{place}:../{key}").state is EngineState.LOST


@pytest.mark.system
def test_what_does_not_stop_is_killed_by_a_later_look(bench: Bench, tmp_path: Path) -> None:
    handle = bench.engine.submit(bench.launch("exec sleep 300"))
    bench.until(handle, EngineState.UP)
    pid = agent_pid(tmp_path / "home", handle)
    os.kill(pid, signal.SIGSTOP)  # an agent that hangs
    bench.engine.cancel(handle)
    assert bench.look(handle).state is EngineState.UP
    cancelled = slot_of(tmp_path / "home", handle) / "cancelled.json"
    cancelled.write_text(json.dumps({"wall": (datetime.now(UTC) - timedelta(minutes=1)).isoformat()}))
    bench.until(handle, EngineState.GONE)
    eventually(lambda: not alive(pid), "it is dead")


def test_an_agent_that_cannot_start_says_why(bench: Bench) -> None:
    launch = bench.launch("true")
    (bench.folder / "runs" / "job1" / "attempts" / "1" / "claim-0.json").write_text(
        json.dumps(
            {
                "rank": 0,
                "host": "elsewhere",
                "address": "",
                "pid": 1,
                "started": "",
                "nonce": "x",
                "user": "x",
                "gang": "",
                "at": "2026-01-01T00:00:00Z",
            }
        )
    )
    gone = bench.until(bench.engine.submit(launch), EngineState.GONE)
    assert "run by elsewhere" in gone.evidence
    assert gone.since is None, "it never was the job's machine"


def test_a_job_sees_no_key_of_the_broker_and_its_own_secrets(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    show = (
        'echo "${AWS_SECRET_ACCESS_KEY:-nothing} <$CUDA_VISIBLE_DEVICES> $TOKEN ${HOME:+home}"; env | grep -c hunter2'
    )
    launch = replace(bench.launch(f"{show} || true"), secrets={"TOKEN": "mine"})
    bench.until(bench.engine.submit(launch), EngineState.GONE)
    assert bench.printed(launch) == ["nothing <0> mine home", "0"]
