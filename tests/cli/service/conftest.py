"""Clouds that the program may use, without a real one."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.app import clouds
from broker.engines.registry import ENGINES
from providers import registry
from tests.fakes import checked_skypilot


@pytest.fixture
def skypilot(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """``skypilot("aws")`` registers the provider, and lets SkyPilot's server use it."""
    monkeypatch.setitem(ENGINES, "skypilot", "tests.fakes.checked_skypilot:CheckedSkypilot")
    monkeypatch.setattr(clouds, "is_installed", lambda module: True)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home.parent / "config"))
    monkeypatch.setenv("HOME", str(home.parent))
    checked_skypilot.enabled.clear()
    places = dict(registry.PROVIDERS)
    known = {name: f"providers.{module}" for name, module in PLACES.items()}

    def registered(name: str) -> None:
        places[name] = known[name]
        monkeypatch.setattr(registry, "PROVIDERS", dict(places))
        checked_skypilot.enabled.add(name)

    return registered


PLACES = {
    "aws": "aws.provider:Aws", "azure": "azure.provider:Azure", "gcp": "gcp.provider:Gcp",
    "kubernetes": "kubernetes:KubernetesProvider", "lambda": "lambda_cloud:LambdaCloud", "runpod": "runpod:Runpod",
    "slurm": "slurm:SlurmProvider", "vast": "vast:Vast",
}  # fmt: skip
