"""Programs that people run inside a job."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker.agent.formats import Lease
from broker.agent.running_command import visitors
from tests.agent.node import SLEEP, Node, alive, eventually

pytestmark = pytest.mark.system  # each starts real agents

ENTER = (sys.executable, "-P", "-m", "broker.agent", "enter")


def enter(*words: str, **given: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ENTER, *words], capture_output=True, text=True, check=False, timeout=240, env={**os.environ, **given}
    )


@pytest.fixture
def running(node: Node) -> Node:
    node.spec(f"echo here > mine; {SLEEP}", envs={"COLOUR": "green"})
    node.start()
    node.until_said("up")
    return node


def test_it_has_the_folder_and_the_variables_of_the_command_and_not_the_callers(running: Node) -> None:
    script = "cat mine; echo $COLOUR ${OF_THE_CALLER-none} $GPUBROKER_ATTEMPT; exit 9"
    done = enter("--scratch", str(running.scratch()), "--", "sh", "-c", script, OF_THE_CALLER="yes")
    assert (done.returncode, done.stdout) == (9, "here\ngreen none 1\n")


def test_the_agent_is_found_by_its_run_folder_and_rank(running: Node) -> None:
    folder = running.runs.attempt_url(1)
    assert enter("--folder", folder, "--", "echo", "found").stdout == "found\n"
    for words in (("--folder", f"{folder}0"), ("--folder", folder, "--rank", "1")):
        assert enter(*words, "--", "echo", "found").returncode == 75


def test_a_shell_without_a_command(running: Node) -> None:
    done = subprocess.run(
        [*ENTER, "--scratch", running.scratch()],
        input="cat mine\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    assert done.stdout == "here\n"


def test_what_cannot_be_started_and_a_command_that_has_ended_are_told(running: Node) -> None:
    done = enter("--scratch", str(running.scratch()), "--", "no-such-program")
    assert done.returncode == 127
    assert "no-such-program cannot be started" in done.stderr
    running.processes[0].terminate()
    running.processes[0].wait(240)
    done = enter("--scratch", str(running.scratch()), "--", "true")
    assert done.returncode == 75
    assert "not running" in done.stderr


def test_what_detached_itself_ends_with_the_attempt_and_visitors_are_known_while_they_are_there(running: Node) -> None:
    pids = running.folder / "pids"
    script = f"setsid sleep 300 & echo $! > {pids}; exec sleep 300"
    visiting = subprocess.Popen([*ENTER, "--scratch", running.scratch(), "--", "sh", "-c", script])
    detached = int(eventually(lambda: pids.read_text().strip() if pids.exists() else None, "the program runs"))
    assert [one.pid for one in visitors(running.scratch())] == [visiting.pid]
    running.runs.write_lease(1, Lease(stop="cancelled_by_user"))
    running.processes[0].wait(240)
    assert visiting.wait(240) == 143
    assert not alive(detached)
    assert visitors(running.scratch()) == []


def test_nothing_of_it_is_readable_for_others(running: Node) -> None:
    assert enter("--scratch", str(running.scratch()), "--", "true").returncode == 0
    record = running.scratch() / "guard.json"
    assert set(json.loads(record.read_text())) == {"pid", "born", "folder"}
    for path in (record, running.scratch() / "visitors", running.scratch()):
        assert not Path(path).stat().st_mode & 0o077
