"""The tasks that the SkyPilot engine makes: place, machine, files, scripts, what a node installs, and for how long
Google's flex start is asked for machines.
"""

import re
import shlex
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.core.errors import (
    TryAnotherOffer,
)
from broker.core.job.jobs import Job, MachineRequest
from broker.core.job.snapshots import FileSnapshot, TreeCopy
from broker.core.market.offers import CapacityType, Offer, OfferQuery
from broker.core.values.clock import ManualClock
from broker.engines.skypilot import task as node
from broker.engines.skypilot.task import CLOUDS, flex_settings, infra, resources, task_config
from providers.pricebook import Pricebook
from tests.engines.skypilot_bench import launch, offer, zones


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


def test_an_offer_of_vast_is_refused_because_skypilot_rents_another_machine() -> None:
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
        file_mounts={"/data": "s3://bucket/data", "/out": {"name": "bucket", "mode": "MOUNT"}},
        resources=(MachineRequest(accelerator="H100", count=8, disk_gib=99.5, image="docker:nvcr.io/nvidia/pytorch"),),
    )
    config = task_config(launch(offer(), job), Path("/a"), {"TOKEN": "s3cret"}, CLOUDS, zones)
    assert config["file_mounts"]["/data"] == "s3://bucket/data"
    assert config["file_mounts"]["/out"] == {"name": "bucket", "mode": "MOUNT"}
    assert config["resources"]["disk_size"] == 100
    assert config["resources"]["image_id"] == "docker:nvcr.io/nvidia/pytorch"
    assert config["secrets"] == {"TOKEN": "s3cret"}
    assert "s3cret" not in config["run"] + config["setup"]


def test_what_lies_in_a_snapshot_is_not_read_from_this_disk() -> None:
    snapshot = FileSnapshot(pool="snapshots-0", trees=(TreeCopy(tree="0" * 64, source="/x", files=1, size=1),))
    mounts = {"/data": "s3://bucket/data", "/etc/conf": "/nowhere/conf.yaml", "~/.aws": "/home/ann/.aws"}
    machines = (MachineRequest(accelerator="H100", count=8),)
    job = Job(name="t", run="x", workdir="/nowhere", file_mounts=mounts, resources=machines, snapshot=snapshot)
    config = task_config(launch(offer(), job), Path("/a"), {}, CLOUDS, zones)
    assert "workdir" not in config
    assert sorted(config["file_mounts"].values()) == ["/a", "s3://bucket/data"]


def test_a_cloud_that_skypilot_does_not_know_is_said() -> None:
    with pytest.raises(TryAnotherOffer, match="no cloud 'lab'"):
        task_config(launch(offer("lab")), Path("/a"), {}, CLOUDS, zones)
    config = task_config(launch(offer("lab", zone=None)), Path("/a"), {}, {**CLOUDS, "lab": "ssh"}, zones)
    assert config["resources"]["infra"] == "ssh/us-east-1"


def test_scripts_are_shell_and_folders_are_words() -> None:
    folder = "s3://runs/$(touch pwned)/it's/attempts/1"
    for script in (node.setup_script("train-1"), node.run_script("train-1", folder)):
        assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    assert shlex.quote(folder) in node.run_script("train-1", folder)


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


FLEX = offer("gcp", instance_type="a3-highgpu-8g+flex-start", capacity_type=CapacityType.ON_DEMAND)


@pytest.mark.parametrize(
    ("longest", "seconds"), [(None, 604_800), (timedelta(hours=5), 19_200), (timedelta(days=7), 604_800)]
)
def test_machines_are_asked_for_while_the_job_may_run_start_and_end_included(
    longest: timedelta | None, seconds: int
) -> None:
    asked = launch(FLEX, Job(name="train", run="true", max_duration=longest))
    group = {"run_duration": seconds, "provision_timeout": 900}
    assert flex_settings(asked) == {"gcp": {"managed_instance_group": group}}
    wanted = resources(asked, CLOUDS, lambda region: {})
    assert (wanted["instance_type"], wanted["use_spot"]) == ("a3-highgpu-8g", False)


def test_other_machines_are_not_asked_for_in_that_way() -> None:
    assert flex_settings(launch(offer("gcp", instance_type="a3-highgpu-8g"))) == {}


@pytest.mark.parametrize(
    ("provider", "region", "place"),
    [
        ("lambda", "us-east-1", "lambda/us-east-1"),
        ("lambda", "global", "lambda"),
        ("nebius", "global", "nebius"),
        ("oci", "global", "oci"),
        ("runpod", "secure", "runpod"),
    ],
)
def test_a_price_for_all_regions_leaves_the_region_to_skypilot(provider: str, region: str, place: str) -> None:
    assert infra(offer(provider, region=region, zone=None), provider, lambda region: {}) == place


def test_list_prices_name_this_engine_only_where_it_can_rent_the_machine() -> None:
    listed = Pricebook(clock=ManualClock(datetime(2026, 11, 23, tzinfo=UTC))).offers(OfferQuery())
    ours = [one for one in listed if isinstance(one, Offer) and one.engine == "skypilot"]
    assert ours
    assert {one.provider for one in ours} <= CLOUDS.keys()
    assert "community" not in {one.region for one in ours}
