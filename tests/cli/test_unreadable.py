"""What people are told of a job that this version cannot read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.store import Store
from tests.unreadable import add_newer_event, damage_view


@pytest.fixture
def two(gpubroker: Any, write: Callable[[str, str], Path], job: Path) -> list[str]:
    """The ids of two jobs, both submitted."""
    other = write("other.yaml", job.read_text().replace("tiny", "other"))
    return [gpubroker("submit", path, "--yes", "--detach", "--json").json["id"] for path in (job, other)]


def test_a_list_has_the_others_and_tells_of_it(gpubroker: Any, two: list[str], store: Store) -> None:
    damage_view(store, two[0])
    done = gpubroker("jobs", "list", "--json")
    assert done.code == 0
    assert [one["id"] for one in done.json["jobs"]] == [two[1]]
    (told,) = done.json["unreadable"]
    assert (told["id"], told["name"], told["written_by_newer_version"]) == (two[0], "tiny", True)
    done = gpubroker("jobs", "list")
    assert "other" in done.out
    assert f"job {two[0]} cannot be read here: written by a newer version of gpubroker" in done.err
    assert "upgrade gpubroker on this host" in done.err


@pytest.mark.parametrize("command", [("status",), ("cancel",), ("status", "--attempts")])
def test_who_asks_for_it_is_told_why_not(
    gpubroker: Any, two: list[str], store: Store, command: tuple[str, ...]
) -> None:
    add_newer_event(store, two[0])
    for reference in (two[0], "tiny", two[0][:-1]):
        done = gpubroker(*command, reference, "--json")
        assert done.code == 5, reference
        assert done.json["error"]["kind"] == "unreadable_job"
        assert "newer version" in done.json["error"]["message"]
    assert gpubroker("status", two[1]).code == 0


def test_other_commands_work(gpubroker: Any, policy: Path, two: list[str], store: Store) -> None:
    damage_view(store, two[0], lambda text: text[:-1])
    for command in (
        "jobs queue", "approvals list", "approvals list --all", "budget", "report spend", "offers", "policy show",
    ):  # fmt: skip
        assert gpubroker(*command.split()).code == 0, command


def test_another_job_can_be_submitted(gpubroker: Any, two: list[str], store: Store, job: Path) -> None:
    damage_view(store, two[0])
    assert gpubroker("submit", job, "--yes", "--detach").code == 0


def test_the_doctor_tells_of_it(gpubroker: Any, two: list[str], store: Store) -> None:
    assert "job" not in {one["area"] for one in gpubroker("doctor", "--json").json["findings"]}
    damage_view(store, two[0])
    (told,) = (one for one in gpubroker("doctor", "--json").json["findings"] if one["area"] == "job")
    assert told["health"] == "problem"
    assert two[0] in told["message"]
    assert "upgrade" in told["fix"]
