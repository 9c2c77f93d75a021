"""One rank of an attempt, end to end: how it begins, runs and ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from broker.core.events import CheckpointSaved, NoticeReceived, Restored
from broker.core.outcomes import Cause
from broker.launch.agent.clock import NodeClock, to_text
from broker.launch.agent.formats import Lease
from broker.launch.agent.supervise import CLAIM_LOST, FENCED, FOLDER_OUT_OF_REACH, INTERRUPTED
from tests.launch.agent.node import SAVE, Node, alive, eventually

SLEEP = "echo up; exec sleep 300"


def now() -> datetime:
    return datetime.now(UTC)


# --- a whole life ---------------------------------------------------------------------------------------------------


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
    state = node.runs.read_state(1)
    assert state.heartbeat is not None
    assert state.heartbeat.step == 10
    assert [claim.rank for claim in state.claims] == [0]
    assert node.output() == ["working"]
    assert [node.runs.verify(one.id) for one in node.runs.checkpoints()] == [None, None]
    assert not (node.scratch() / "checkpoints").exists(), "what is safe in the store does not fill the disk"


def test_the_next_attempt_goes_on_from_the_newest_checkpoint(node: Node) -> None:
    assert node.run(SAVE + "save step_5; save step_10 ten; exit 1") == 1
    assert node.run("cat $GPUBROKER_CHECKPOINT_DIR/*; ls $GPUBROKER_CHECKPOINT_DIR", attempt=2) == 0
    restored = node.events(2)[1]
    assert isinstance(restored, Restored)
    assert (restored.step, restored.passed_over) == (10, ())
    assert node.output(2) == ["ten", "step_10"]
    assert node.saved(2) == [], "what was restored is not saved again"


def test_the_command_finds_its_environment(node: Node) -> None:
    names = "JOB_ID ATTEMPT RANK NODES CHECKPOINT_DIR PROGRESS_FILE STORE"
    script = f"for n in {names}; do v=GPUBROKER_$n; echo $n=${{!v}}; done; "
    script += "echo $COLOUR $SKYPILOT_NUM_GPUS_PER_NODE; pwd; umask"
    node.spec(script, envs={"COLOUR": "red"}, gpus=4)
    old = os.umask(0o022)
    try:
        assert node.start(env={"GPUBROKER_STORE": "postgresql://user:password@host"}).wait(20) == 0
    finally:
        os.umask(old)
    said = dict(line.split("=") for line in node.output()[:7])
    assert (said["JOB_ID"], said["ATTEMPT"], said["RANK"], said["NODES"]) == ("j", "1", "0", "1")
    assert said["CHECKPOINT_DIR"].startswith(str(node.scratch()))
    assert said["STORE"] == "", "the broker's own settings are not the job's business"
    assert node.output()[7:] == ["red 4", str(node.scratch() / "work"), "0022"]
    assert not (node.scratch().stat().st_mode | node.job.stat().st_mode) & 0o077, "private"


def test_progress_is_what_the_program_says_else_what_its_checkpoints_are_called(node: Node) -> None:
    node.spec('echo \'{"step": 7, "total": 20}\' > $GPUBROKER_PROGRESS_FILE; ' + SLEEP)
    node.start()

    def step() -> bool:
        heart = node.runs.read_state(1).heartbeat
        return heart is not None and (heart.step, heart.total, heart.phase) == (7, 20, "running")

    eventually(step, "the heartbeat tells the progress")


def test_the_helper_saves_whole_and_tells_the_step(node: Node) -> None:
    script = """python3 - <<'END'
from gpubroker_checkpoint import newest, progress, save
assert newest() is None
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
print(newest().name)
progress(44, 100)
END"""
    assert node.run(script) == 0
    assert node.saved()[-1] == 44
    assert node.output() == ["folder"]
    assert all("broken" not in one.id for one in node.runs.checkpoints())


def test_only_the_newest_are_kept(node: Node) -> None:
    script = SAVE + "for i in 1 2 3 4 5; do save step_$i; sleep 0.15; done"
    assert node.run(script, keep=2) == 0
    assert node.saved() == [1, 2, 3, 4, 5]
    assert [one.step for one in node.runs.checkpoints()] == [4, 5]
    assert len(list((node.job / "checkpoints").iterdir())) == 2, "nothing of the others is left"


# --- failures -------------------------------------------------------------------------------------------------------


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


def test_a_folder_that_is_not_there_cannot_start(node: Node) -> None:
    assert node.run("true", workdir="/nowhere/at/all") != 0
    assert node.ending().cause is Cause.CANNOT_START
    assert "/nowhere/at/all" in node.ending().evidence


def test_a_killed_program_loses_what_it_wrote_in_place_and_keeps_what_it_renamed(node: Node) -> None:
    """A torn file cannot be told from a whole one once its writer is dead."""
    script = SAVE + "save step_1; sleep 0.2; save step_2; echo half > step_3; kill -9 $$"
    assert node.run(script) == 137
    assert node.saved() == [1, 2]


def test_what_is_written_in_place_counts_when_it_rests(node: Node) -> None:
    node.spec("cd $GPUBROKER_CHECKPOINT_DIR; echo one > step_1; exec 3> step_2; echo two >&3; echo up; exec sleep 300")
    node.start()
    node.until_said("up")
    eventually(lambda: node.saved() == [1], "the closed one is saved")
    eventually(lambda: (node.runs.read_state(1).heartbeat or 0) and node.saved() == [1], "the open one is not")


def test_what_runs_on_in_the_background_ends_with_the_command(node: Node) -> None:
    assert node.run("sleep 300 & echo $!; setsid sleep 300 & echo $!") == 0
    assert not [line for line in node.output() if alive(int(line))]


# --- being stopped --------------------------------------------------------------------------------------------------

SAVES_WHEN_TOLD = SAVE + "trap 'save step_9; exit 0' TERM; echo up; while :; do sleep 0.02; done"


def test_sigterm_is_an_interruption_with_time_to_save(node: Node) -> None:
    node.spec(SAVES_WHEN_TOLD)
    agent = node.start()
    node.until_said("up")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(10) == INTERRUPTED
    assert node.ending().cause is Cause.PREEMPTED
    assert node.ending().evidence == "SIGTERM"
    assert node.saved() == [9]
    assert [body.source for body in node.events() if isinstance(body, NoticeReceived)] == ["SIGTERM"]


def test_a_shell_waits_for_the_program_that_is_saving(node: Node) -> None:
    program = "trap 'sleep 0.3; save step_9; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    node.spec(f"{SAVE} ( {program} ); echo never")
    agent = node.start()
    node.until_said("up")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(10) == INTERRUPTED
    assert node.saved() == [9]
    assert "never" not in node.output(), "the rest of the script is not run"


def test_a_notice_tells_when_the_machine_goes(node: Node) -> None:
    notice = node.folder / "notice.json"
    node.spec(SAVES_WHEN_TOLD, grace=60.0)
    agent = node.start(env={"GPUBROKER_NOTICE_FILE": str(notice)})
    node.until_said("up")
    at = now() + timedelta(seconds=5)
    notice.write_text(json.dumps({"source": "the cloud", "terminates_at": to_text(at)}))
    assert agent.wait(10) == INTERRUPTED
    told = [body for body in node.events() if isinstance(body, NoticeReceived)]
    assert [(body.source, body.terminates_at) for body in told] == [("the cloud", at)]
    assert node.ending().cause is Cause.PREEMPTED
    assert node.saved() == [9]


def test_half_of_the_notice_is_left_for_uploading(node: Node) -> None:
    notice = node.folder / "notice.json"
    node.spec("trap '' TERM; echo up; while :; do sleep 0.02; done", grace=60.0)
    agent = node.start(env={"GPUBROKER_NOTICE_FILE": str(notice)})
    node.until_said("up")
    began = now()
    notice.write_text(json.dumps({"terminates_at": to_text(began + timedelta(seconds=2))}))
    assert agent.wait(10) == INTERRUPTED
    assert timedelta(seconds=0.9) < node.ending().at - began < timedelta(seconds=2)


def test_who_ignores_sigterm_is_killed_after_the_grace(node: Node) -> None:
    node.spec("trap '' TERM; echo up; while :; do sleep 0.02; done", grace=0.3)
    agent = node.start()
    node.until_said("up")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(10) == INTERRUPTED
    assert node.ending().cause is Cause.PREEMPTED


@pytest.mark.parametrize("cause", [Cause.CANCELLED_BY_USER, Cause.MAX_COST, Cause.MOVED])
def test_the_broker_stops_it_through_the_lease(node: Node, cause: Cause) -> None:
    node.spec(SAVES_WHEN_TOLD)
    agent = node.start()
    node.until_said("up")
    node.runs.write_lease(1, Lease(stop=cause.value))
    assert agent.wait(10) == INTERRUPTED
    assert node.ending().cause is cause
    assert node.saved() == [9]
    assert not [body for body in node.events() if isinstance(body, NoticeReceived)], "no notice of a provider's"


def test_sigterm_after_the_broker_asked_is_the_brokers_stop(node: Node) -> None:
    node.spec(SAVES_WHEN_TOLD, intervals={"mail": 60.0, "log": 0.05})
    agent = node.start()
    output = node.scratch() / "output.log"
    eventually(lambda: output.exists() and "up" in output.read_text(), "it runs")
    node.runs.write_lease(1, Lease(stop="cancelled_by_user"))
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(10) == INTERRUPTED
    assert node.ending().cause is Cause.CANCELLED_BY_USER


@pytest.mark.parametrize(("field", "cause"), [("paid_until", Cause.PAID_UNTIL), ("ends_at", Cause.MAX_DURATION)])
def test_it_does_not_outlive_its_money_or_its_time(node: Node, field: str, cause: Cause) -> None:
    """On a clock 100 times as fast as the wall's, and with nobody there to renew anything."""
    clock = NodeClock(now(), datetime(2026, 1, 1, tzinfo=UTC), 100.0)
    node.spec(SAVES_WHEN_TOLD, clock=clock)
    agent = node.start()
    node.until_said("up")
    until = clock.now() + timedelta(seconds=20)
    node.runs.write_lease(1, Lease(**{field: until}))
    assert agent.wait(10) == INTERRUPTED
    assert node.ending().cause is cause
    assert until <= node.ending().at < until + timedelta(seconds=300)
    assert node.saved() == [9]


def test_a_longer_lease_lets_it_run_on(node: Node) -> None:
    node.spec(SLEEP)
    agent = node.start()
    node.until_said("up")
    node.runs.write_lease(1, Lease(paid_until=now() + timedelta(seconds=1)))
    node.runs.write_lease(1, Lease(paid_until=now() + timedelta(hours=1)))
    with pytest.raises(subprocess.TimeoutExpired):
        agent.wait(1.3)


@pytest.mark.parametrize("torn", [None, b"", b'{"paid_until": "2026-01-0', b"{}", b"[]"])
def test_without_a_lease_nothing_begins(node: Node, torn: bytes | None) -> None:
    """Who does not know how long it is paid for does not guess "for ever"."""
    node.spec("echo ran", intervals={"patience": 0.3})
    lease = node.job / "attempts" / "1" / "lease.json"
    lease.unlink()
    if torn is not None:
        lease.write_bytes(torn)
    assert node.start().wait(10) == FOLDER_OUT_OF_REACH
    assert node.output() == []
    assert node.runs.read_state(1).claims == (), "another machine may try"


def test_a_lease_that_comes_late_is_waited_for(node: Node) -> None:
    node.spec("echo ran")
    lease = node.job / "attempts" / "1" / "lease.json"
    lease.write_bytes(b"{")
    agent = node.start()
    eventually(lambda: "the lease cannot be read" in node.said(), "it says what it waits for")
    node.runs.write_lease(1, Lease())
    assert agent.wait(10) == 0
    assert node.output() == ["ran"]


@pytest.mark.parametrize("torn", [None, b'{"paid_until": null'])
def test_a_lease_torn_later_does_not_undo_the_last_one(node: Node, torn: bytes | None) -> None:
    node.spec(SAVES_WHEN_TOLD)
    agent = node.start()
    node.until_said("up")
    node.runs.write_lease(1, Lease(paid_until=now() + timedelta(seconds=1)))

    def beat() -> object:
        heart = node.runs.read_state(1).heartbeat
        return heart and heart.at

    for _ in range(2):  # the lease is read before each
        last = beat()
        eventually(lambda last=last: beat() != last or agent.poll() is not None, "another heartbeat")
    lease = node.job / "attempts" / "1" / "lease.json"
    if torn is None:
        lease.unlink()
    else:
        lease.write_bytes(torn)
    assert agent.wait(10) == INTERRUPTED
    assert node.ending().cause is Cause.PAID_UNTIL


def test_uploading_does_not_outlive_its_money_either(node: Node) -> None:
    """The command has ended well and before its time, and the store does not take what it saved."""
    node.spec(SAVE + "save step_1", grace=1.0, intervals={"patience": 300.0})
    (node.job / "checkpoints").write_text("in the way")
    agent = node.start()

    def saving() -> bool:
        heart = node.runs.read_state(1).heartbeat
        return heart is not None and heart.phase == "saving"

    eventually(saving, "it tries to upload")
    paid_until = now() + timedelta(seconds=0.2)
    node.runs.write_lease(1, Lease(paid_until=paid_until))
    assert agent.wait(10) == 0
    assert node.ending().evidence == "not saved: step_1"
    assert node.ending().at < paid_until + timedelta(seconds=3), "three times the grace is all that is paid for"


def test_nobody_looking_after_it_for_too_long(node: Node) -> None:
    node.spec(SLEEP, lease=Lease(max_unattended=0.5, renewed_at=now()))
    assert node.start().wait(10) == INTERRUPTED
    assert node.ending().cause is Cause.UNATTENDED


def test_a_stop_that_was_there_before_it_began(node: Node) -> None:
    node.spec("echo ran", lease=Lease(stop="cancelled_by_user"))
    assert node.start().wait(10) == INTERRUPTED
    assert node.ending().cause is Cause.CANCELLED_BY_USER
    assert node.output() == []


def test_sigterm_while_setting_up(node: Node) -> None:
    node.spec("echo ran", setup="echo up; exec sleep 300")
    agent = node.start()
    node.until_said("up")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(10) == INTERRUPTED
    assert node.ending().cause is Cause.PREEMPTED
    assert node.output() == ["up"]


# --- who may run it -------------------------------------------------------------------------------------------------


def test_a_second_machine_loses_the_claim_and_goes_away(node: Node) -> None:
    node.spec("echo up; sleep 0.5")
    first = node.start()
    node.until_said("up")
    assert node.start().wait(10) == CLAIM_LOST
    assert "nothing to do here" in node.said(1)
    assert first.wait(10) == 0
    assert node.output() == ["up"]
    assert node.start().wait(10) == CLAIM_LOST, "not even after it has ended"


def test_of_many_at_once_one_runs(node: Node) -> None:
    node.spec("echo up; sleep 0.5")
    agents = [node.start() for _ in range(4)]
    assert sorted(agent.wait(20) for agent in agents) == [0, CLAIM_LOST, CLAIM_LOST, CLAIM_LOST]
    assert node.output() == ["up"]


def test_a_newer_attempt_fences_the_older_one_off(node: Node) -> None:
    node.spec(SAVE + "save step_1; echo up; echo $$; exec sleep 300")
    agent = node.start()
    eventually(lambda: node.saved() == [1] and len(node.output()) == 2, "a checkpoint, and the log")
    pid = int(node.output()[1])
    node.spec("true", attempt=2)
    assert agent.wait(10) == FENCED
    assert not alive(pid)
    assert node.runs.read_state(1).exit is None, "writes nothing more"
    assert node.start(attempt=1).wait(10) != 0
    assert node.start(attempt=2).wait(10) == 0
    restored = node.events(2)[1]
    assert isinstance(restored, Restored)
    assert restored.step == 1


def test_an_attempt_that_left_no_trace_is_no_hole_in_the_fence(node: Node) -> None:
    """The second one ended before anything was prepared for it."""
    node.spec(SLEEP)
    agent = node.start()
    node.until_said("up")
    node.spec("true", attempt=3)
    assert agent.wait(10) == FENCED
    assert node.start(attempt=1).wait(10) == FENCED


def test_the_agent_killed_kills_its_command_and_grandchildren(node: Node) -> None:
    node.spec("setsid sleep 300 & echo $!; (sleep 300 & echo $!); echo $$; trap '' TERM HUP; wait")
    agent = node.start()
    pids = [int(line) for line in eventually(lambda: node.output() if len(node.output()) == 3 else None, "it runs")]
    agent.kill()
    eventually(lambda: not [pid for pid in pids if alive(pid)], "everything dies")


def test_the_guard_killed_is_not_a_way_out(node: Node) -> None:
    node.spec("echo $$; echo $PPID; exec sleep 300")
    agent = node.start()
    pid, guard = (int(x) for x in eventually(lambda: node.output() if len(node.output()) == 2 else None, "it runs"))
    os.kill(guard, signal.SIGKILL)
    assert agent.wait(10) == 137
    assert not alive(pid)
    assert node.ending().cause is Cause.KILLED_BY_SIGNAL


# --- trouble with the store -----------------------------------------------------------------------------------------


def test_a_store_in_trouble_does_not_stop_training(node: Node) -> None:
    node.spec(
        SAVE + "save step_1; echo up; while [ ! -e go ]; do sleep 0.02; done; rm go; save step_2; echo done; sleep 0.3"
    )
    (node.job / "checkpoints").write_text("in the way")  # every upload fails with an error of the operating system
    agent = node.start()
    node.until_said("up")
    trouble = node.until_event("checkpoint_trouble")
    assert "Not a directory" in trouble.because or "cannot" in trouble.because  # type: ignore[union-attr]
    (node.scratch() / "checkpoints" / "go").touch()
    node.until_said("done")
    (node.job / "checkpoints").unlink()
    assert agent.wait(15) == 0
    assert set(node.saved()) == {1, 2}, "made up for"
    assert [body.kind for body in node.events()].count("checkpoint_trouble") <= 3, "said, not shouted"


def test_what_could_not_be_saved_is_said_and_not_thrown_away(node: Node) -> None:
    node.spec(SAVE + "echo up; while [ ! -e go ]; do sleep 0.02; done; rm go; save step_1", intervals={"patience": 0.5})
    agent = node.start()
    node.until_said("up")
    (node.job / "checkpoints").write_text("in the way")
    (node.scratch() / "checkpoints" / "go").touch()
    assert agent.wait(15) == 0
    assert node.ending().evidence == "not saved: step_1"
    assert (node.scratch() / "checkpoints" / "step_1").exists()


def test_a_run_folder_that_is_not_there_in_time(node: Node) -> None:
    agent = node.start()  # no spec yet
    eventually(lambda: "there is no spec.json" in node.said(), "it says what it waits for")
    node.spec("echo late")
    assert agent.wait(15) == 0
    assert node.output() == ["late"]


# --- torn checkpoints -----------------------------------------------------------------------------------------------


def _truncate(newest: str, node: Node) -> None:
    file = node.job / "checkpoints" / newest / "rank-0" / "step_2"
    file.write_bytes(file.read_bytes()[:-1])


def _flip(newest: str, node: Node) -> None:
    file = node.job / "checkpoints" / newest / "rank-0" / "step_2"
    file.write_bytes(b"X" + file.read_bytes()[1:])


def _remove(newest: str, node: Node) -> None:
    (node.job / "checkpoints" / newest / "rank-0" / "step_2").unlink()


def _halve(newest: str, node: Node) -> None:
    manifest = node.job / "checkpoints" / newest / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[: manifest.stat().st_size // 2])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_truncate, "step_2 has 3 bytes instead of 4"),
        (_flip, "step_2 has another content than was saved"),
        (_remove, "step_2 is missing"),
        (_halve, "its manifest cannot be read"),
    ],
)
def test_a_torn_checkpoint_is_passed_over_with_the_reason(node: Node, damage: object, reason: str) -> None:
    assert node.run(SAVE + "save step_1 one; sleep 0.2; save step_2 two") == 0
    newest = [body.checkpoint for body in node.events() if isinstance(body, CheckpointSaved)][-1]
    damage(newest, node)  # type: ignore[operator]
    assert node.run("cat $GPUBROKER_CHECKPOINT_DIR/*", attempt=2) == 0
    restored = node.events(2)[1]
    assert isinstance(restored, Restored)
    assert restored.step == 1
    assert [one.checkpoint for one in restored.passed_over] == [newest]
    assert restored.passed_over[0].because.startswith(reason)
    assert node.output(2) == ["one"]


@pytest.mark.parametrize("status", [0, 3])
def test_a_command_that_was_told_before_the_agent_was_is_interrupted_too(node: Node, status: int) -> None:
    """As on a machine that is shut down: everybody is told at once, and the command may be the quicker one."""
    node.spec(f"{SAVE} trap 'save step_9; exit {status}' TERM; echo $$; while :; do sleep 0.02; done")
    agent = node.start()
    command = int(eventually(lambda: node.output(), "it runs")[0])
    os.kill(command, signal.SIGTERM)
    eventually(lambda: not alive(command), "it has ended")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(10) == INTERRUPTED
    assert node.ending().cause is Cause.PREEMPTED
    assert node.saved() == [9]
