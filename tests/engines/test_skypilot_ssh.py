"""How people reach a cluster's machines: what SkyPilot's program writes for OpenSSH, found where it writes it."""

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.core.errors import RetryLater
from broker.engines.skypilot.sdk import Sdk


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder that is not the account's, as a service has it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def sdk(home: Path, monkeypatch: pytest.MonkeyPatch, *, writes: bool) -> Sdk:
    """Its program writes what SkyPilot 0.14 writes, the key's path as it does: with ``~``."""

    def program(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        cluster, generated = words[-1], home / ".sky/generated"
        if writes:
            for folder in ("ssh", "ssh-keys"):
                (generated / folder).mkdir(parents=True)
            (generated / "ssh-keys" / f"{cluster}.key").write_text("key")
            key = f"~/.sky/generated/ssh-keys/{cluster}.key"
            (generated / "ssh" / cluster).write_text(f"Host {cluster}\n  IdentityFile {key}\n  IdentitiesOnly yes\n")
        return subprocess.CompletedProcess(words, 0, "", "Cluster not found.")

    monkeypatch.setattr(subprocess, "run", program)
    return Sdk(cast("Any", SimpleNamespace()), "http://sky.example.org")


def test_openssh_is_given_the_key_by_its_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSH would look for ``~`` in the home that the list of accounts names."""
    options, host = sdk(home, monkeypatch, writes=True).ssh_host("gpb-a", 0)
    generated = home / ".sky/generated"
    assert options == ["-F", str(generated / "ssh/gpb-a"), "-i", str(generated / "ssh-keys/gpb-a.key")]
    assert host == "gpb-a"


def test_the_other_nodes_have_names_of_their_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sdk(home, monkeypatch, writes=True).ssh_host("gpb-a", 2)[1] == "gpb-a-worker2"


def test_a_cluster_without_configuration_is_waited_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RetryLater, match="no SSH configuration of gpb-a: Cluster not found"):
        sdk(home, monkeypatch, writes=False).ssh_host("gpb-a", 0)
