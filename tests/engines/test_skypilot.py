"""The SkyPilot engine: its contract on a stand-in of the SDK whose machines are processes here, the tasks it makes, and
what it concludes from SkyPilot's answers. The real API server is in `tests/system/test_skypilot_job.py`."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.agent.entering import NOT_RUNNING
from broker.core.errors import (
    AskAPerson,
    BrokerError,
    GiveUp,
    InvalidInput,
    LoginMissing,
    MissingExtra,
    NoCapacity,
    NotAllowed,
    TryAnotherOffer,
    Unreachable,
)
from broker.core.events.outcomes import Cause
from broker.core.job.jobs import Job, MachineRequest
from broker.core.job.placements import Placement
from broker.core.job.snapshots import FileSnapshot, TreeCopy
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.ports import EngineState, Launch, LetsPeopleIn
from broker.core.values.clock import Clock, SystemClock
from broker.core.values.money import Money
from broker.engines.skypilot import aftermath, node, sdk
from broker.engines.skypilot import engine as skypilot_engine
from broker.engines.skypilot.engine import Skypilot, SkypilotSettings
from broker.engines.skypilot.places import CLOUDS
from broker.engines.skypilot.sdk import Sdk, meaning
from broker.engines.skypilot.task import task_config
from tests.contracts.engine_contract import Bench, EngineContract, eventually, lines
from tests.fakes import skypilot as fake

URL = "http://127.0.0.1:46580"


def zones(region: str) -> dict[str, str]:
    return {"use1-az6": "us-east-1a"} if region == "us-east-1" else {}


def offer(provider: str = "aws", **more: object) -> Offer:
    values: dict[str, object] = {
        "provider": provider,
        "region": "us-east-1",
        "zone": "us-east-1a",
        "instance_type": "p5.48xlarge",
        "accelerator": "H100",
        "count": 8,
        "capacity_type": CapacityType.SPOT,
        "price": Money.usd(20),
        "as_of": datetime(2026, 1, 1, tzinfo=UTC),
        "source": provider,
        "cpus": 192.0,
        "memory_gib": 2048.0,
        "availability": Availability.AVAILABLE,
        "engine": "skypilot",
    }
    return Offer(**{**values, **more})  # type: ignore[arg-type]  # fields by name


def placed(what: Offer, nodes: int = 1) -> Placement:
    return Placement(what, nodes, Money.usd(20), Money.usd(20), (), None, None, 1.0, 1.0, 0.0)


def launch(what: Offer, job: Job | None = None, nodes: int = 1) -> Launch:
    return Launch("train-1", job or Job(name="train", run="true"), placed(what, nodes), "s3://runs/train/attempts/1")


def made(
    home: Path, sky: fake.Sky, settings: SkypilotSettings | None = None, clock: Clock | None = None, url: str = URL
) -> Skypilot:
    return Skypilot(
        home,
        clock or SystemClock(),
        settings,
        Sdk(sky, url),
        cloud_words={"aws": sky.word, "kubernetes": sky.word},
        cloud_ends={"aws": sky.end_lost},
    )


# --- the contract ---------------------------------------------------------------------------------------------------


@pytest.fixture
def bench(tmp_path: Path, sky: fake.Sky) -> Bench:
    settings = SkypilotSettings(shared_disk=True, look=0.0, refresh=0.1)
    return Bench(
        make=lambda: made(tmp_path / "home", sky, settings),
        placement=placed(offer()),
        clock=SystemClock(),
        folder=tmp_path,
        doomed=placed(offer()),
        take_away=lambda handle: sky.take_away(handle.rpartition(":")[2]),
    )


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


def test_many_handles_are_one_look(bench: Bench, sky: fake.Sky) -> None:
    handles = [bench.engine.submit(bench.launch("exec sleep 300")) for _ in range(4)]
    for handle in handles:
        bench.until(handle, EngineState.UP)
    time.sleep(0.2)  # a refresh is due again, too: that makes it two questions at most
    before = sky.status_calls
    bench.engine.observe(handles)
    assert sky.status_calls - before <= 2, "one look, and one refresh"


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
    monkeypatch.setattr(node, "_SETUP", "exit 3 # {folder}{key}{pins}")
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


def test_a_gang_runs_once_on_every_node(bench: Bench) -> None:
    import json

    mark = bench.mark()
    prepared = bench.launch(f'echo "$GPUBROKER_RANK of $GPUBROKER_NODES" >> {mark}', placed(offer(), nodes=2))
    spec = bench.folder / "runs" / prepared.key.removesuffix("-1") / "attempts" / "1" / "spec.json"
    spec.write_text(json.dumps({**json.loads(spec.read_text()), "nodes": 2}))
    bench.until(bench.engine.submit(prepared), EngineState.GONE)
    assert sorted(lines(mark)) == ["0 of 2", "1 of 2"]
    assert bench.ending(prepared).cause is Cause.COMPLETED


def test_the_working_folder_comes_along(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir(mode=0o700)
    (tmp_path / "project" / "words.txt").write_text("brought along\n")
    prepared = bench.launch("cat words.txt")
    job = prepared.job.model_copy(update={"workdir": str(tmp_path / "project")})
    handle = bench.engine.submit(replace(prepared, job=job))
    bench.until(handle, EngineState.GONE)
    assert list(bench.engine.logs(handle)) == ["brought along"]


@pytest.mark.system
@pytest.mark.skipif(shutil.which("sshd", path="/usr/sbin:/sbin") is None, reason="no sshd (package openssh-server)")
def test_people_enter_through_the_ssh_configuration_of_the_cluster(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With OpenSSH's client and server; what SkyPilot's program would write is written by its double."""
    monkeypatch.setattr(Sdk, "ssh_host", lambda _, cluster, node: sky.ssh_host(cluster, node))
    handle = bench.engine.submit(bench.launch("echo here > mine; exec sleep 300"))
    bench.until(handle, EngineState.UP)
    assert isinstance(bench.engine, LetsPeopleIn)
    script = "cat mine; echo \"$GPUBROKER_ATTEMPT 'quoted' $HOME\"; exit 7"
    way = bench.engine.way_in(handle, 0, ["--", "sh", "-c", script], terminal=False)

    def entered() -> subprocess.CompletedProcess[str] | None:
        done = subprocess.run(way.arguments, check=False, capture_output=True, text=True, timeout=60)
        return None if done.returncode == NOT_RUNNING else done

    done = eventually(entered, "the command runs")
    assert done.returncode == 7, done
    assert done.stdout.splitlines()[:2] == ["here", f"1 'quoted' {sky.home(handle.rpartition(':')[2])}"]
    other = made(bench.folder / "other", sky, url="https://sky.example.org")
    with pytest.raises(GiveUp, match="belongs to another SkyPilot API server"):
        other.way_in(handle, 0, ["--", "true"], terminal=False)


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


def test_variables_of_the_broker_go_to_the_node_as_secrets(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    settings = SkypilotSettings.model_validate(
        {"environment": "AWS_ACCESS_KEY_ID NOT_SET", "shared_disk": True, "look": 0.0}
    )
    engine = made(bench.folder / "home", sky, settings)
    handle = engine.submit(bench.launch("echo $AWS_ACCESS_KEY_ID"))
    assert sky.tasks[0]["secrets"] == {"AWS_ACCESS_KEY_ID": "AKIA"}
    eventually(lambda: engine.observe([handle])[handle].state is EngineState.GONE, "it ends")
    assert list(engine.logs(handle)) == ["AKIA"]


def test_without_skypilot_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra) as missing:
        Skypilot(tmp_path, SystemClock())
    assert missing.value.extra == "skypilot"


# --- tasks ----------------------------------------------------------------------------------------------------------


def test_the_placement_is_pinned() -> None:
    config = task_config(launch(offer(), nodes=2), Path("/broker/agent.pyz"), {}, CLOUDS, zones)
    assert config["num_nodes"] == 2
    assert config["resources"] == {
        "infra": "aws/us-east-1/us-east-1a",
        "instance_type": "p5.48xlarge",
        "use_spot": True,
        "labels": {"gpubroker": "train-1"},
    }
    assert "secrets" not in config
    assert config["file_mounts"] == {"~/.gpubroker/train-1/agent.pyz": "/broker/agent.pyz"}


@pytest.mark.parametrize(
    ("provider", "region", "zone", "expected"),
    [
        ("gcp", "us-central1", "us-central1-a", "gcp/us-central1/us-central1-a"),
        ("aws", "us-east-1", None, "aws/us-east-1"),
        ("azure", "eastus", "1", "azure/eastus"),
        ("slurm", "lab", "lab:gpu", "slurm/lab/gpu"),
        ("aws", "us-east-1", "use1-az6", "aws/us-east-1/us-east-1a"),
        ("runpod", "secure", None, "runpod"),
        ("oci", "global", None, "oci"),
    ],
)
def test_where_it_runs(provider: str, region: str, zone: str | None, expected: str) -> None:
    config = task_config(launch(offer(provider, region=region, zone=zone)), Path("/a"), {}, CLOUDS, zones)
    assert config["resources"]["infra"] == expected


def test_a_zone_that_the_account_does_not_have_is_another_offers_turn() -> None:
    with pytest.raises(TryAnotherOffer, match=r"no zone use1-az9 in us-east-1; it has use1-az6"):
        task_config(launch(offer(zone="use1-az9")), Path("/a"), {}, CLOUDS, zones)


@pytest.mark.parametrize(
    ("provider", "machine", "expected"),
    [
        ("gcp", "a3-megagpu-8g", None),
        ("gcp", "n1-standard-8", {"H100": 8}),
        ("azure", "Standard_NC40ads_H100_v5", None),
        ("kubernetes", "any", {"H100": 8}),
    ],
)
def test_accelerators_are_named_where_the_machine_does_not_say_them(
    provider: str, machine: str, expected: dict[str, int] | None
) -> None:
    made = launch(replace(offer(provider, zone=None), instance_type=machine))
    assert task_config(made, Path("/a"), {}, CLOUDS, zones)["resources"].get("accelerators") == expected


def test_the_listing_of_vast_is_not_what_skypilot_would_rent() -> None:
    with pytest.raises(TryAnotherOffer, match="no cloud 'vast'"):
        task_config(launch(offer("vast")), Path("/a"), {}, CLOUDS, zones)


def test_clouds_without_instance_types_are_asked_by_size() -> None:
    job = Job(name="train", run="true", resources=(MachineRequest(accelerator="H100", count=8, cpus=16),))
    wanted = task_config(launch(offer("kubernetes"), job), Path("/a"), {}, CLOUDS, zones)["resources"]
    assert (wanted["cpus"], wanted["memory"]) == (16, 2048.0)
    assert "instance_type" not in wanted


def test_what_the_job_brings_is_passed_through() -> None:
    job = Job(
        name="train",
        run="true",
        workdir=".",
        file_mounts={
            "/data": "s3://bucket/data",
            "/etc/conf": "conf.yaml",
            "/out": {"name": "bucket", "mode": "MOUNT"},
        },
        resources=(MachineRequest(accelerator="H100", count=8, disk_gib=99.5, image="docker:nvcr.io/nvidia/pytorch"),),
    )
    config = task_config(launch(offer(), job), Path("/a"), {"TOKEN": "s3cret"}, CLOUDS, zones)
    assert config["workdir"] == str(Path.cwd())
    assert config["file_mounts"]["/data"] == "s3://bucket/data"
    assert config["file_mounts"]["/etc/conf"] == str(Path.cwd() / "conf.yaml")
    assert config["file_mounts"]["/out"] == {"name": "bucket", "mode": "MOUNT"}
    assert config["resources"]["disk_size"] == 100
    assert config["resources"]["image_id"] == "docker:nvcr.io/nvidia/pytorch"
    assert config["secrets"] == {"TOKEN": "s3cret"}
    assert "s3cret" not in config["run"] + config["setup"]
    assert "sky_workdir" in config["run"]


def test_what_lies_in_a_snapshot_is_not_read_from_this_disk() -> None:
    snapshot = FileSnapshot(pool="snapshots-0", trees=(TreeCopy(tree="0" * 64, source="/x", files=1, size=1),))
    mounts = {"/data": "s3://bucket/data", "/etc/conf": "/nowhere/conf.yaml", "~/.aws": "/home/ann/.aws"}
    machines = (MachineRequest(accelerator="H100", count=8),)
    job = Job(name="t", run="x", workdir="/nowhere", file_mounts=mounts, resources=machines, snapshot=snapshot)
    config = task_config(launch(offer(), job), Path("/a"), {}, CLOUDS, zones)
    assert "workdir" not in config
    assert "sky_workdir" not in config["run"]
    assert sorted(config["file_mounts"].values()) == ["/a", "s3://bucket/data"]


def test_a_cloud_that_skypilot_does_not_know_is_said() -> None:
    with pytest.raises(TryAnotherOffer, match="no cloud 'lab'"):
        task_config(launch(offer("lab")), Path("/a"), {}, CLOUDS, zones)
    config = task_config(launch(offer("lab", zone=None)), Path("/a"), {}, {**CLOUDS, "lab": "ssh"}, zones)
    assert config["resources"]["infra"] == "ssh/us-east-1"


def test_scripts_are_shell_and_folders_are_words() -> None:
    folder = "s3://runs/$(touch pwned)/it's/attempts/1"
    for script in (node.setup_script("train-1"), node.run_script("train-1", folder, workdir=True)):
        assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    assert shlex.quote(folder) in node.run_script("train-1", folder, workdir=False)


@pytest.mark.parametrize(
    ("version", "pin"), [("309", "0.8.2"), ("310", "0.11.1"), ("311", "0.12.1"), ("314", "0.12.1")]
)
def test_what_a_node_installs_is_pinned_for_its_python_and_its_hashes_are_required(
    tmp_path: Path, version: str, pin: str
) -> None:
    setup = node.setup_script("train-1")
    choice = setup[setup.index('if [ "$version"') : setup.index('if "$found" -m pip')]
    script = f'version={version}\nown={tmp_path}\n{choice}\nprintf "%s " "$@"'
    options = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True).stdout.split()
    lines = (tmp_path / "requirements.txt").read_text().splitlines()
    assert [line.partition(" ")[0] for line in lines] == [f"obstore=={pin}", "typing-extensions==4.15.0"]
    assert all(re.fullmatch(r"\S+( --hash=sha256:[0-9a-f]{64})+", line) for line in lines)
    assert options == ["--require-hashes", "--only-binary", ":all:", "--requirement", f"{tmp_path}/requirements.txt"]
    assert setup.count(' "$@"') == 2, "with pip and with uv"


# --- errors ---------------------------------------------------------------------------------------------------------


class UserRequestRejectedByPolicy(Exception):
    pass


class NoCloudAccessError(Exception):
    pass


class ApiServerConnectionError(RuntimeError):
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
        (ValueError("Invalid instance type 'p9.large' for cloud AWS."), TryAnotherOffer),
        (ImportError('Try running: pip install "skypilot[kubernetes]"'), AskAPerson),
    ],
)
def test_errors_are_classed_by_what_to_do_next(error: Exception, kind: type[BrokerError]) -> None:
    found = meaning(error)
    assert isinstance(found, kind)
    assert str(error) in found.message


def test_errors_tell_no_secrets() -> None:
    assert "hunter2" not in str(meaning(ValueError("bad value 'hunter2' in secrets"), ["hunter2"]))


# --- what is billed while a launch is under way ---------------------------------------------------------------------


def slow_launch(bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch, what: Placement | None = None) -> str:
    """The handle of a launch that is under way, its cluster INIT, until `fails` or the end of the test."""
    monkeypatch.setattr(node, "_SETUP", "exec sleep 300 # {folder}{key}{pins}")
    handle = bench.engine.submit(bench.launch("true", what))
    eventually(lambda: bool(sky._clusters), "its cluster is made")
    return handle


def fails(sky: fake.Sky, handle: str, error: Exception) -> None:
    """The launch fails as SkyPilot's do whose machines do not come up: the cluster is removed, then the error told."""
    name = handle.rpartition(":")[2]
    (request,) = [one for one in sky._requests.values() if one.name.endswith("launch") and not one.done.is_set()]
    request.aborted.set()
    request.done.wait()
    with sky._lock:
        sky._remove(name)
    request.status, request.error = "FAILED", error


def test_machines_are_billed_from_when_their_cloud_is_asked_for_them(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = slow_launch(bench, sky, monkeypatch)
    starting = bench.until(handle, EngineState.PENDING)
    starting = eventually(lambda: one if (one := bench.look(handle)).since else None, "it is billed")
    assert starting.state is EngineState.PENDING
    fails(sky, handle, RuntimeError("the machines do not answer"))
    gone = bench.until(handle, EngineState.GONE)
    assert (gone.since, gone.no_capacity) == (starting.since, False)
    assert gone.gone_at is not None
    assert starting.since is not None
    assert gone.gone_at > starting.since, "billed until it was gone"


def test_what_comes_and_goes_between_two_looks_was_billed(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = slow_launch(bench, sky, monkeypatch)
    fails(sky, handle, RuntimeError("the machines do not answer"))
    gone = bench.until(handle, EngineState.GONE)
    assert gone.since is not None, "the server knows that there was a cluster"


def test_a_machine_of_a_launch_that_failed_before_anybody_looked_is_ended_too(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = slow_launch(bench, sky, monkeypatch)
    sky.lose(handle.rpartition(":")[2])
    fails(sky, handle, RuntimeError("its machines cannot be found"))
    monkeypatch.setattr(aftermath, "_LOST_AFTER", aftermath._LOST_AFTER * 0)
    gone = bench.until(handle, EngineState.GONE)
    assert not sky._lost
    assert gone.since is not None, "it is billed"


def test_a_cloud_that_has_no_machine_to_give_bills_none(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = slow_launch(bench, sky, monkeypatch)
    eventually(lambda: bench.look(handle).since, "it seems to start")
    sky.never.add(handle.rpartition(":")[2])
    fails(sky, handle, fake.ResourcesUnavailableError("sold out"))
    gone = bench.until(handle, EngineState.GONE)
    assert gone.no_capacity
    assert gone.since == gone.gone_at


def test_a_machine_that_its_cloud_knows_of_is_billed_whatever_skypilot_says(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that nothing was to be had also of a machine that came, and whose tags came late."""
    handle = slow_launch(bench, sky, monkeypatch)
    starting = eventually(lambda: bench.look(handle).since, "it starts")
    fails(sky, handle, fake.ResourcesUnavailableError("sold out"))
    gone = bench.until(handle, EngineState.GONE)
    assert (gone.no_capacity, gone.since) == (False, starting)


@pytest.mark.parametrize("cloud", ["aws", "kubernetes"])
def test_a_machine_that_was_taken_while_it_was_launched_was_not_sold_out(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch, cloud: str
) -> None:
    handle = slow_launch(bench, sky, monkeypatch, placed(offer(cloud)))
    sky._taken.add(handle.rpartition(":")[2])
    fails(sky, handle, fake.ResourcesUnavailableError("sold out"))
    gone = bench.until(handle, EngineState.GONE)
    assert (gone.no_capacity, gone.interrupted) == (False, True), gone.evidence


def test_a_server_that_does_not_answer_is_no_failure_of_the_launch(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = slow_launch(bench, sky, monkeypatch)
    get, restarts = sky.get, [True]

    def get_of(request: str) -> Any:
        if restarts and sky._requests[request].name.endswith("launch"):
            raise ApiServerConnectionError("it restarts")
        return get(request)

    monkeypatch.setattr(sky, "get", get_of)
    fails(sky, handle, fake.ResourcesUnavailableError("sold out"))
    sky.never.add(handle.rpartition(":")[2])
    with pytest.raises(Unreachable):
        bench.look(handle)
    restarts.clear()
    assert bench.until(handle, EngineState.GONE).no_capacity


class RequestInterruptedError(Exception):
    """As SkyPilot calls it: a server that is shut down makes that the end of what is under way."""


class NetworkError(Exception):
    """As SkyPilot calls it."""


@pytest.mark.parametrize("kind", [RequestInterruptedError, NetworkError, ConnectionError])
def test_a_launch_that_ended_out_of_somebodys_reach_has_failed(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    """Its server answers, and will tell the same for ever."""
    handle = slow_launch(bench, sky, monkeypatch)
    eventually(lambda: bench.look(handle).since, "it starts")
    fails(sky, handle, kind("nobody answered the launch"))
    gone = bench.until(handle, EngineState.GONE)
    assert "nobody answered the launch" in gone.evidence


def test_one_machine_of_several_may_have_been_there(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = slow_launch(bench, sky, monkeypatch, placed(offer(), nodes=2))
    eventually(lambda: bench.look(handle).since, "it starts")
    fails(sky, handle, fake.ResourcesUnavailableError("sold out"))
    gone = bench.until(handle, EngineState.GONE)
    assert not gone.no_capacity
    assert gone.since is not None


def test_machines_that_took_long_to_fail_may_have_been_there(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SkyPilot says that nothing is to be had also of a machine that came up and did not answer."""
    monkeypatch.setattr(skypilot_engine, "_REFUSED_WITHIN", timedelta(0))
    handle = slow_launch(bench, sky, monkeypatch)
    eventually(lambda: bench.look(handle).since, "it starts")
    fails(sky, handle, fake.ResourcesUnavailableError("sold out"))
    gone = bench.until(handle, EngineState.GONE)
    assert not gone.no_capacity
    assert gone.since is not None


@pytest.mark.parametrize("cloud", ["kubernetes", "slurm"])
def test_what_waits_in_a_clusters_queue_is_no_machine(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch, cloud: str
) -> None:
    handle = slow_launch(bench, sky, monkeypatch, placed(offer(cloud)))
    waiting = bench.until(handle, EngineState.QUEUED)
    assert waiting.since is None
    assert bench.until(handle, EngineState.QUEUED).since is None


def test_a_machine_that_cannot_be_ended_hides_no_other(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, other = (bench.engine.submit(bench.launch("exec sleep 300")) for _ in range(2))
    for handle in (stuck, other):
        bench.until(handle, EngineState.UP)
    ends = sky.down

    def down(cluster_name: str) -> str:
        if stuck.endswith(cluster_name):
            raise ApiServerConnectionError("no answer")
        return ends(cluster_name)

    with monkeypatch.context() as broken:
        broken.setattr(sky, "down", down)
        with pytest.raises(Unreachable):
            bench.engine.cancel(stuck)
        bench.engine.cancel(other)
        eventually(lambda: bench.engine.observe([stuck, other])[other].state is EngineState.GONE, "the other is gone")
        seen = bench.look(stuck)
        assert seen.state is EngineState.UP, "it is billed on"
        assert "cannot be ended: skypilot: no answer" in seen.evidence
    bench.until(stuck, EngineState.GONE)
