"""`gpubroker logs --follow` in one process; while jobs run elsewhere it is tried with the system tests."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from broker.app.jobs import logs


@pytest.fixture
def reconciled(reconciled_by: Callable[[ModuleType], None]) -> None:
    reconciled_by(logs)


def submitted(gpubroker: Any, folder: Path, text: str) -> None:
    job = folder / "job.yaml"
    job.write_text(text)
    assert gpubroker("submit", job, "--yes", "--detach").code == 0


@pytest.mark.usefixtures("reconciled")
def test_it_follows_over_all_attempts_to_the_end(gpubroker: Any, tmp_path: Path) -> None:
    script = "echo attempt $GPUBROKER_ATTEMPT; echo and more; [ $GPUBROKER_ATTEMPT = 2 ]"
    submitted(gpubroker, tmp_path, f"name: talker\nretry: {{failures: 1}}\nrun: {script}\n")
    done = gpubroker("logs", "talker", "-f")
    assert done.code == 0, done
    assert done.out == "attempt 1\nand more\nattempt 2\nand more\n"
    assert "--- attempt 2" in done.err
    assert gpubroker("logs", "talker", "-f", "--tail", "3").out == "and more\nattempt 2\nand more\n"
    only = gpubroker("logs", "talker", "-f", "--attempt", "1")
    assert only.out == "attempt 1\nand more\n"


def test_one_document_and_lines_as_they_come_do_not_go_together(gpubroker: Any, tmp_path: Path) -> None:
    submitted(gpubroker, tmp_path, "name: talker\nrun: echo hello\n")
    refused = gpubroker("logs", "talker", "--follow", "--json")
    assert refused.code == 2
    assert "--follow and --json" in refused.json["error"]["message"]
