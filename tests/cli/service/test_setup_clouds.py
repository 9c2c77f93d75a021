"""`gpubroker setup` of the clouds besides AWS, on the fakes of their services and commands."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Gpubroker
from tests.fakes.gcs import GcsBucket
from tests.fakes.lambda_cloud import KEY, Item, LambdaInstanceType, LambdaMarket, Region, Specs
from tests.fakes.runpod import RunpodMarket
from tests.fakes.server import FakeServer
from tests.fakes.vast import VastListing, VastMarket
from tests.providers.test_kubernetes import node as kubernetes_node
from tests.providers.test_runpod import H100
from tests.providers.test_slurm import CONFIG
from tests.providers.test_slurm import node as slurm_node

Registers = Callable[[str], None]


def program(folder: Path, name: str, *answers: tuple[str, str]) -> None:
    """A program that prints the answer of the first word that is among its arguments."""
    cases = "".join(f"*{word}*) cat <<'end'\n{text}\nend\n;;\n" for word, text in answers)
    (folder / name).write_text(f'#!/bin/sh\ncase "$*" in\n{cases}*) exit 0;;\nesac\n')
    (folder / name).chmod(0o700)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def test_google_cloud(gpubroker: Gpubroker, skypilot: Registers, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("google.cloud.compute_v1", reason="Google's SDKs are not installed (the extra `gcp`)")
    from tests.fakes.gcp_cloud import GcpCloud
    from tests.fakes.gcp_rows import small_market

    skypilot("gcp")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(home.parent / "no-gcloud"))
    assert "gcloud auth application-default login" in gpubroker("setup", "gcp", "--dry-run").out
    with FakeServer(small_market(GcpCloud())) as server, GcsBucket("", "token") as storage:
        toml = f'compute_url = "{server.url}"\nbilling_url = "{server.url}"\nproject = "team-ml"\nanonymous = true\n'
        (home.parent / "gpubroker.toml").write_text(f"[providers.gcp]\nregions = ['us-central1']\n{toml}")
        for name, value in {"BASE_URL": storage.url, "BEARER_TOKEN": "token", "ALLOW_HTTP": "true"}.items():
            monkeypatch.setenv(f"GOOGLE_{name}", value)
        storage.tokens.add("")
        done = gpubroker("setup", "gcp", "--create-bucket", "team-runs", "--yes")
        assert done.code == 0, done.out
        assert "✓ login logged in by the setting anonymous; project team-ml" in done.out
        assert "✓ bucket made gs://team-runs/gpubroker in gcp/us-central1" in done.out
        assert storage.made["iamConfiguration"]["publicAccessPrevention"] == "enforced"
        assert storage.objects == {}, "the probe is gone"
        again = gpubroker("setup", "gcp", "--create-bucket", "team-runs", "--yes")
        assert again.code == 0
        assert "✓ bucket gs://team-runs/gpubroker exists, unchanged" in again.out
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home.parent / "other"))
        theirs = gpubroker("setup", "gcp", "--create-bucket", "somebodys", "--yes")
        assert "the bucket somebodys belongs to somebody else" in theirs.out


def test_azure_without_a_login(gpubroker: Gpubroker, skypilot: Registers, monkeypatch: pytest.MonkeyPatch) -> None:
    skypilot("azure")
    monkeypatch.delenv("AZURE_SUBSCRIPTION_ID", raising=False)
    done = gpubroker("setup", "azure", "--dry-run")
    assert done.code == 2
    assert "1. login: set AZURE_SUBSCRIPTION_ID, and run `az login`" in done.out
    made = gpubroker("setup", "azure", "--create-bucket", "runs", "--yes", "--dry-run")
    assert "az storage container create" in made.out


def test_runpod_needs_keys_for_the_bucket(
    gpubroker: Gpubroker, skypilot: Registers, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skypilot("runpod")
    runs = home.parent / "bucket"
    with FakeServer(RunpodMarket(H100)) as server:
        monkeypatch.setenv("GPUBROKER_PROVIDERS__RUNPOD__BASE_URL", server.url)
        monkeypatch.setenv("GPUBROKER_RUNS", "s3://runs/gpubroker")
        done = gpubroker("setup", "runpod", "--dry-run")
        assert done.code == 2
        assert "machines of RunPod have no identity: they need keys for that bucket alone" in done.out
        monkeypatch.setenv("GPUBROKER_ENGINES__SKYPILOT__SHARED_DISK", "true")  # no bucket in this test
        monkeypatch.setenv("GPUBROKER_RUNS", runs.as_uri())
        done = gpubroker("setup", "runpod", "--yes")
        assert done.code == 0, done.out
        assert "costs at most $1.00: `gpubroker setup runpod --run --yes` submits it" in done.out


def test_lambda_with_a_key_that_is_refused(
    gpubroker: Gpubroker, skypilot: Registers, monkeypatch: pytest.MonkeyPatch
) -> None:
    skypilot("lambda")
    kind = LambdaInstanceType(
        name="gpu_1x_a10", gpu_description="A10 (24 GB PCIe)", price_cents_per_hour=75,
        specs=Specs(vcpus=30, memory_gib=200, gpus=1),
    )  # fmt: skip
    item = Item(instance_type=kind, regions_with_capacity_available=[Region(name="us-east-1")])
    monkeypatch.setenv("GPUBROKER_ENGINES__SKYPILOT__SHARED_DISK", "true")
    with FakeServer(LambdaMarket(item)) as server:
        monkeypatch.setenv("GPUBROKER_PROVIDERS__LAMBDA__BASE_URL", server.url)
        assert "set LAMBDA_API_KEY" in gpubroker("setup", "lambda", "--yes").out
        monkeypatch.setenv("LAMBDA_API_KEY", "wrong")
        refused = gpubroker("setup", "lambda", "--yes")
        assert refused.code == 2
        assert "✗ prices" in refused.out
        monkeypatch.setenv("LAMBDA_API_KEY", KEY)
        assert gpubroker("setup", "lambda", "--yes").code == 0


def test_vast_has_prices_only(gpubroker: Gpubroker, skypilot: Registers, monkeypatch: pytest.MonkeyPatch) -> None:
    skypilot("vast")
    with FakeServer(VastMarket(VastListing(id=1))) as server:
        monkeypatch.setenv("GPUBROKER_PROVIDERS__VAST__BASE_URL", server.url)
        done = gpubroker("setup", "vast", "--json")
    assert done.code == 0, done.out
    assert [one["area"] for one in done.json["findings"]] == ["login", "engine", "prices"]
    assert "no engine starts jobs on Vast.ai: prices only" in done.out


def test_slurm(gpubroker: Gpubroker, skypilot: Registers, programs: Path) -> None:
    skypilot("slurm")
    program(programs, "scontrol", ("config", CONFIG), ("node", slurm_node("n1")))
    program(programs, "squeue")
    done = gpubroker("setup", "slurm", "--json")
    assert done.code == 0, done.out
    assert "H100:1 in lab" in done.json["findings"][-1]["message"], "no bucket and no budget are needed"


def test_kubernetes(gpubroker: Gpubroker, skypilot: Registers, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skypilot("kubernetes")
    listed: dict[str, Any] = {"items": [kubernetes_node("n1")]}
    program(
        programs, "kubectl", ("get-contexts", "research"), ("nodes", json.dumps(listed)), ("pods", '{"items": []}'),
    )  # fmt: skip
    monkeypatch.setenv("GPUBROKER_ENGINES__SKYPILOT__SHARED_DISK", "true")
    done = gpubroker("setup", "kubernetes", "--yes")
    assert done.code == 2
    assert "no cluster is chosen; contexts of the kubeconfig: research" in done.out
    assert "fix: export GPUBROKER_PROVIDERS__KUBERNETES__CONTEXTS=research" in done.out
    monkeypatch.setenv("GPUBROKER_PROVIDERS__KUBERNETES__CONTEXTS", "research")
    done = gpubroker("setup", "kubernetes", "--yes")
    assert done.code == 0, done.out
    assert "✓ login context research: 1 nodes, 8 GPUs" in done.out
    stale = 'error: context "old" does not exist'
    (programs / "kubectl").write_text(f"#!/bin/sh\necho '{stale}' >&2\nexit 1\n")
    monkeypatch.setenv("GPUBROKER_PROVIDERS__KUBERNETES__CONTEXTS", "old")
    done = gpubroker("setup", "kubernetes", "--yes")
    assert done.code == 2
    assert '✗ login kubernetes context old: error: context "old" does not exist' in done.out
    assert "`kubectl config get-contexts` lists what there is" in done.out
