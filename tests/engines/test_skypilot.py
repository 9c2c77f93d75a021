"""The SkyPilot engine: its contract on a stand-in of the SDK whose machines are processes here, and what it concludes
from SkyPilot's answers. The real API server is in `tests/cloud`."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from broker.agent.running_command import NOT_RUNNING
from broker.core.errors import (
    AskAPerson,
    BrokerError,
    GiveUp,
    InvalidInput,
    LoginMissing,
    MissingExtra,
    NoCapacity,
    NotAllowed,
    RetryLater,
    TryAnotherOffer,
    Unreachable,
)
from broker.core.events.outcomes import Cause
from broker.core.ports import EngineState, SupportsEntry
from broker.core.values.clock import SystemClock
from broker.engines.skypilot import sdk, task
from broker.engines.skypilot.engine import Skypilot, SkypilotSettings
from broker.engines.skypilot.sdk import Sdk, to_broker_error
from tests.contracts.engine_bench import Bench, eventually, lines
from tests.contracts.engine_contract import EngineContract
from tests.engines.skypilot_bench import ApiServerConnectionError, bench_on, made, offer, placed
from tests.fakes import skypilot as fake


@pytest.fixture
def bench(tmp_path: Path, sky: fake.Sky) -> Bench:
    return bench_on(tmp_path, sky)


@pytest.mark.system
class TestSkypilot(EngineContract):
    plugin = "skypilot"

    @pytest.fixture
    def bench(self, bench: Bench) -> Bench:
        return bench


def test_handles_of_another_server_are_elsewhere(bench: Bench, sky: fake.Sky) -> None:
    handle = bench.engine.submit(bench.launch("exec sleep 300"))
    bench.until(handle, EngineState.UP)
    other = made(bench.folder / "other", sky, url="https://sky.example.org")
    assert other.observe([handle])[handle].state is EngineState.ELSEWHERE
    other.cancel(handle)
    assert bench.look(handle).state is EngineState.UP


def test_a_broker_that_forgot_finds_what_the_server_knows(bench: Bench, sky: fake.Sky) -> None:
    prepared = bench.launch("exec sleep 300")
    handle = bench.engine.submit(prepared)
    bench.until(handle, EngineState.UP)
    forgetful = made(bench.folder / "new-home", sky)
    assert forgetful.find(prepared.key) == handle
    assert forgetful.observe([handle])[handle].state is EngineState.UP
    assert len(sky.tasks) == 1


@pytest.mark.system
def test_many_handles_are_one_look(bench: Bench, sky: fake.Sky) -> None:
    handles = [bench.engine.submit(bench.launch("exec sleep 300")) for _ in range(4)]
    for handle in handles:
        bench.until(handle, EngineState.UP)
    always_due = made(bench.folder / "home", sky, SkypilotSettings(shared_disk=True, look=0.0, refresh=0.0))
    before = sky.status_calls
    always_due.observe(handles)
    assert sky.status_calls - before == 2, "one query of all handles, and one refresh"


def test_the_server_is_not_asked_with_every_tick(bench: Bench, sky: fake.Sky) -> None:
    settings = SkypilotSettings(shared_disk=True, look=60.0)
    engine = made(bench.folder / "home", sky, settings)
    first, second = (bench.engine.submit(bench.launch("exec sleep 300")) for _ in range(2))
    bench.until(second, EngineState.UP)
    before = sky.status_calls
    for _ in range(5):
        engine.observe([first])
    assert sky.status_calls - before <= 2, "one look, and one refresh"
    assert engine.observe([first, second])[second].state is EngineState.UP, "one it has not asked about"


def test_what_cannot_be_launched_is_gone_and_costs_nothing(bench: Bench, sky: fake.Sky) -> None:
    sky.refuse = fake.ResourcesUnavailableError("\x1b[31mno p5.48xlarge in us-east-1a\x1b[0m")
    gone = bench.until(bench.engine.submit(bench.launch("true")), EngineState.GONE)
    assert (gone.since, gone.interrupted) == (None, False)
    assert "no p5.48xlarge in us-east-1a" in gone.evidence
    assert "\x1b" not in gone.evidence


def test_a_launch_that_fails_half_way_is_taken_down(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "_SETUP", "exit 3 # {folder}{key}{pins}")
    handle = bench.engine.submit(bench.launch("true"))
    gone = bench.until(handle, EngineState.GONE)
    assert gone.since is not None, "its machine was billed"
    assert not gone.interrupted
    assert "exit code 3" in gone.evidence


def test_a_server_that_forgot_a_launch_says_nothing_of_its_end(bench: Bench, sky: fake.Sky) -> None:
    sky.refuse = fake.ResourcesUnavailableError("whatever came of it")
    handle = bench.engine.submit(bench.launch("true"))
    sky.forget_requests()
    assert bench.look(handle).state is EngineState.LOST
    assert not (bench.folder / "home" / "job1-1" / "gone.json").exists()


@pytest.mark.system
def test_a_gang_runs_once_on_every_node(bench: Bench) -> None:
    import json

    mark = bench.mark()
    prepared = bench.launch(f'echo "$GPUBROKER_RANK of $GPUBROKER_NODES" >> {mark}', placed(offer(), nodes=2))
    spec = bench.folder / "runs" / prepared.key.removesuffix("-1") / "attempts" / "1" / "spec.json"
    spec.write_text(json.dumps({**json.loads(spec.read_text()), "nodes": 2}))
    bench.until(bench.engine.submit(prepared), EngineState.GONE)
    assert sorted(lines(mark)) == ["0 of 2", "1 of 2"]
    assert bench.ending(prepared).cause is Cause.COMPLETED


@pytest.mark.system
@pytest.mark.skipif(shutil.which("sshd", path="/usr/sbin:/sbin") is None, reason="no sshd (package openssh-server)")
def test_people_enter_through_the_ssh_configuration_of_the_cluster(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With OpenSSH's client and server; what SkyPilot's program would write is written by its double."""
    monkeypatch.setattr(Sdk, "ssh_host", lambda _, cluster, node: sky.ssh_host(cluster, node))
    handle = bench.engine.submit(bench.launch("echo here > mine; exec sleep 300"))
    bench.until(handle, EngineState.UP)
    assert isinstance(bench.engine, SupportsEntry)
    script = "cat mine; echo \"$GPUBROKER_ATTEMPT 'quoted' $HOME\"; exit 7"
    way = bench.engine.way_in(handle, 0, ["--", "sh", "-c", script], terminal=False)

    def entered() -> subprocess.CompletedProcess[str] | None:
        done = subprocess.run(way.arguments, check=False, capture_output=True, text=True, timeout=240)
        return None if done.returncode == NOT_RUNNING else done

    done = eventually(entered, "the command runs")
    assert done.returncode == 7, done
    assert done.stdout.splitlines()[:2] == ["here", f"1 'quoted' {sky.home(handle.rpartition(':')[2])}"]
    other = made(bench.folder / "other", sky, url="https://sky.example.org")
    with pytest.raises(GiveUp, match="belongs to another SkyPilot API server"):
        other.way_in(handle, 0, ["--", "true"], terminal=False)


@pytest.mark.system
def test_nothing_is_printed_where_documents_are(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.until(bench.engine.submit(bench.launch("true")), EngineState.GONE)
    assert capsys.readouterr().out == ""


def test_run_folders_on_this_disk_are_refused_for_machines_elsewhere(bench: Bench, sky: fake.Sky) -> None:
    engine = made(bench.folder / "home", sky)
    assert engine.remote
    with pytest.raises(InvalidInput) as refused:
        engine.submit(bench.launch("true"))
    assert "GPUBROKER_RUNS" in refused.value.hint
    assert not sky.tasks


@pytest.mark.system
def test_variables_of_the_broker_go_to_the_node_as_secrets(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    settings = SkypilotSettings.model_validate(
        {"environment": "AWS_ACCESS_KEY_ID NOT_SET", "shared_disk": True, "look": 0.0}
    )
    engine = made(bench.folder / "home", sky, settings)
    launch = bench.launch("echo $AWS_ACCESS_KEY_ID")
    handle = engine.submit(launch)
    assert sky.tasks[0]["secrets"] == {"AWS_ACCESS_KEY_ID": "AKIA"}
    eventually(lambda: engine.observe([handle])[handle].state is EngineState.GONE, "it ends")
    assert bench.printed(launch) == ["AKIA"]


def test_without_skypilot_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra) as missing:
        Skypilot(tmp_path, SystemClock())
    assert missing.value.extra == "skypilot"


class UserRequestRejectedByPolicy(Exception):
    pass


class NoCloudAccessError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (fake.ResourcesUnavailableError("sold out"), NoCapacity),
        (UserRequestRejectedByPolicy("team ml: $412.10 of $400.00"), NotAllowed),
        (NoCloudAccessError("run sky check"), LoginMissing),
        (ApiServerConnectionError("no server"), Unreachable),
        (TimeoutError("read timed out"), Unreachable),
        (ValueError("invalid task"), GiveUp),
        (RuntimeError("nobody knows these words"), RetryLater),
        (json.JSONDecodeError("Expecting value", "<html>", 0), Unreachable),
        (ValueError("Invalid instance type 'p9.large' for cloud AWS."), TryAnotherOffer),
        (ImportError('Try running: pip install "skypilot[kubernetes]"'), AskAPerson),
    ],
)
def test_errors_are_classed_by_what_to_do_next(error: Exception, kind: type[BrokerError]) -> None:
    found = to_broker_error(error)
    assert isinstance(found, kind)
    assert str(error) in found.message
