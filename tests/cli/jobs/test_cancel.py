"""`gpubroker cancel`: one job, several, or all of mine."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Gpubroker
from tests.this_machine import CPUS


@pytest.fixture
def three(gpubroker: Gpubroker, job: Path) -> list[str]:
    """The ids of three open jobs, of which one has all of this machine."""
    job.write_text(job.read_text().replace("cpus: 1", f"cpus: {CPUS}"))
    names = ("one", "two", "three")
    return [gpubroker("submit", job, "--yes", "--detach", "--json", "--name", name).json["id"] for name in names]


def cancelled(gpubroker: Gpubroker) -> set[str]:
    return {each["name"] for each in gpubroker("status", "--json").json["jobs"] if each["cancel_requested"]}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["one"], {"one"}),
        (["one", "three", "one"], {"one", "three"}),
        (["--all", "--yes"], {"one", "two", "three"}),
        (["--state", "queued", "--yes"], {"two", "three"}),
        (["--state", "running", "--yes"], set()),
    ],
)
def test_jobs_are_cancelled(gpubroker: Gpubroker, three: list[str], arguments: list[str], expected: set[str]) -> None:
    done = gpubroker("cancel", *arguments, "--json")
    assert done.code == 0
    assert cancelled(gpubroker) == expected
    document: Any = done.json
    stopped = [document] if "name" in document else document["jobs"]
    assert {each["name"] for each in stopped} == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected jobs, --all or --state"),
        (["one", "--all"], "expected jobs, --all or --state"),
        (["one", "onne"], "unknown job 'onne'; did you mean 'one'?"),
        (["--all"], "no terminal for the confirmation"),
        (["--state", "succeeded"], "got 'succeeded'"),
    ],
)
def test_nothing_is_cancelled_by_mistake(
    gpubroker: Gpubroker, three: list[str], arguments: list[str], message: str
) -> None:
    done = gpubroker("cancel", *arguments)
    assert done.code == 2
    assert message in done.err
    assert cancelled(gpubroker) == set()
