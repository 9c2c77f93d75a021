"""One rank of an attempt, end to end: how it begins, runs and ends by itself."""

import os
from datetime import UTC, datetime

import psutil
import pytest

from broker.agent.supervise import INTERRUPTED
from broker.core.events.agent_events import Restored
from broker.core.events.outcomes import Cause
from tests.agent.node import SAVE, Node, alive, eventually


def now() -> datetime:
    return datetime.now(UTC)


def test_a_life_from_claim_to_exit(node: Node) -> None:
    before = now()
    assert node.run(SAVE + "echo working; save step_5; save step_10") == 0
    events = node.events()
    assert [body.kind for body in events[:3]] == ["claimed", "restored", "command_started"]
    assert node.saved() == [5, 10], "the last one, too, though the command ended at once"
    assert isinstance(events[1], Restored)
    assert events[1].checkpoint is None
    ending = node.ending()
    assert (ending.cause, ending.exit_status, ending.step) == (Cause.COMPLETED, 0, 10)
    assert before <= ending.at <= now()
    state = node.runs.read_attempt(1)
    assert state.heartbeat is not None
    assert state.heartbeat.step == 10
    assert [claim.rank for claim in state.claims] == [0]
    assert node.output() == ["working"]
    assert [node.runs.verify(one.id) for one in node.runs.checkpoints()] == [None, None]
    assert not (node.scratch() / "checkpoints").exists(), "what is safe in the store does not fill the disk"


@pytest.mark.system
@pytest.mark.parametrize("instead", ["", "; touch $GPUBROKER_CHECKPOINT_DIR"])
def test_a_command_that_takes_its_checkpoint_folder_away_ends_as_it_ends(node: Node, instead: str) -> None:
    node.spec(f"cd /; rm -r $GPUBROKER_CHECKPOINT_DIR{instead}; exit 3", intervals={"patience": 600})
    assert node.start().wait(240) == 3
    assert (node.ending().cause, node.ending().exit_status) == (Cause.EXIT_STATUS, 3)


def test_the_command_finds_its_environment(node: Node) -> None:
    names = "JOB_ID ATTEMPT RANK NODES CHECKPOINT_DIR PROGRESS_FILE STORE"
    script = f"for n in {names}; do v=GPUBROKER_$n; echo $n=${{!v}}; done; "
    script += "echo $COLOUR $SKYPILOT_NUM_GPUS_PER_NODE; pwd; umask"
    node.spec(script, envs={"COLOUR": "red"}, gpus=4)
    old = os.umask(0o022)
    try:
        assert node.start(env={"GPUBROKER_STORE": "postgresql://user:password@host"}).wait(240) == 0
    finally:
        os.umask(old)
    said = dict(line.split("=") for line in node.output()[:7])
    assert (said["JOB_ID"], said["ATTEMPT"], said["RANK"], said["NODES"]) == ("j", "1", "0", "1")
    assert said["CHECKPOINT_DIR"].startswith(str(node.scratch()))
    assert said["STORE"] == "", "the broker's own settings are not the job's business"
    assert node.output()[7:] == ["red 4", str(node.scratch() / "work"), "0022"]
    assert not (node.scratch().stat().st_mode | node.job.stat().st_mode) & 0o077, "private"


def test_a_task_of_an_array_finds_its_number_where_jobs_of_skypilot_do(node: Node) -> None:
    task = {"GPUBROKER_TASK_INDEX": "2", "GPUBROKER_TASK_COUNT": "3"}
    node.spec("echo $SKYPILOT_JOB_RANK of $SKYPILOT_NUM_JOBS", envs=task)
    assert node.start(env={"SKYPILOT_JOB_RANK": "0", "SKYPILOT_NUM_JOBS": "1"}).wait(240) == 0
    assert node.output() == ["2 of 3"]


def test_progress_is_what_the_program_says_else_what_its_checkpoints_are_called(node: Node) -> None:
    node.spec('echo \'{"step": 7, "total": 20}\' > $GPUBROKER_PROGRESS_FILE; exec sleep 300')
    node.start()

    def step() -> bool:
        heart = node.runs.read_attempt(1).heartbeat
        return heart is not None and (heart.step, heart.total, heart.phase) == (7, 20, "running")

    eventually(step, "the heartbeat tells the progress")


@pytest.mark.system
def test_the_helper_saves_whole_and_tells_the_step(node: Node) -> None:
    script = """python3 - <<'END'
from gpubroker_checkpoint import progress, resume, save
assert resume() is None
with save("latest.txt", step=42) as path:
    path.write_text("first")
with save("latest.txt", step=43) as path:
    path.write_text("second")
with save("folder", step=44) as path:
    path.mkdir()
    (path / "part").write_text("third")
try:
    with save("broken") as path:
        path.write_text("half")
        raise KeyError
except KeyError:
    pass
print(resume().name)
progress(44, 100)
END"""
    assert node.run(script) == 0
    assert node.saved()[-1] == 44
    assert node.output() == ["folder"]
    assert all("broken" not in one.id for one in node.runs.checkpoints())


@pytest.mark.system
def test_only_the_newest_are_kept(node: Node) -> None:
    script = SAVE + "for i in 1 2 3 4 5; do save step_$i; sleep 0.15; done"
    assert node.run(script, keep=2) == 0
    assert node.saved() == [1, 2, 3, 4, 5]
    assert [one.step for one in node.runs.checkpoints()] == [4, 5]
    assert len(list((node.job / "checkpoints").iterdir())) == 2, "nothing of the others is left"


def test_the_exit_status_is_passed_on_with_the_last_words(node: Node) -> None:
    assert node.run("echo; echo 'ValueError: no' >&2; exit 3") == 3
    ending = node.ending()
    assert (ending.cause, ending.exit_status) == (Cause.EXIT_STATUS, 3)
    assert ending.evidence == "exit status 3; ValueError: no"


@pytest.mark.parametrize("script", ["kill -9 $$", "bash -c 'kill -9 $$'; exit $?"])
def test_a_signal_is_told_as_one(node: Node, script: str) -> None:
    assert node.run(script) == 137
    assert (node.ending().cause, node.ending().exit_status) == (Cause.KILLED_BY_SIGNAL, 137)
    assert "SIGKILL" in node.ending().evidence


def test_a_setup_that_fails_says_so_and_the_command_is_not_run(node: Node) -> None:
    assert node.run("echo ran", setup="echo preparing; exit 4") == 4
    assert (node.ending().cause, node.ending().exit_status) == (Cause.EXIT_STATUS, 4)
    assert node.ending().evidence == "setup: exit status 4; preparing"
    assert node.output() == ["preparing"]
    assert "command_started" not in [body.kind for body in node.events()]


def test_setup_comes_first(node: Node) -> None:
    assert node.run("echo two", setup="echo one") == 0
    assert node.output() == ["one", "two"]


def test_a_killed_program_loses_what_it_wrote_in_place_and_keeps_what_it_renamed(node: Node) -> None:
    """A torn file cannot be told from a whole one once its writer is dead."""
    script = SAVE + "save step_1; sleep 0.2; save step_2; echo half > step_3; kill -9 $$"
    assert node.run(script) == 137
    assert node.saved() == [1, 2]


@pytest.mark.system
def test_what_runs_on_in_the_background_ends_with_the_command(node: Node) -> None:
    assert node.run("sleep 300 & echo $!; setsid sleep 300 & echo $!") == 0
    assert not [line for line in node.output() if alive(int(line))]


@pytest.mark.system
def test_nothing_of_the_script_is_in_the_list_of_processes_and_it_may_be_long(node: Node) -> None:
    node.spec(f": {'x' * 200_000}\necho up; sleep 300 & wait", setup=": setup-planted; true")
    agent = node.start()
    node.until_said("up")
    words = [" ".join(one.cmdline()) for one in psutil.Process(agent.pid).children(recursive=True)]
    assert any("command-2.sh" in one for one in words), words
    assert not [one for one in words if "xxx" in one or "planted" in one]
    (script,) = node.folder.rglob("command-2.sh")
    assert script.stat().st_mode & 0o077 == 0
    agent.terminate()
    assert agent.wait(240) == INTERRUPTED
