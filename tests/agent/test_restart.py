"""Agents that are started again on their machine."""

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.agent.claims import Claim, is_predecessor_dead, make_claim
from broker.agent.clock import NodeClock
from broker.agent.environment import Scratch
from broker.agent.formats import Exit
from broker.agent.processes import kernel_start
from broker.agent.store import ObjectFolder, to_bytes
from broker.agent.supervise import CLAIM_LOST
from broker.core.events.agent_events import Restored
from broker.core.events.outcomes import OUTCOMES, Cause, Next
from tests.agent.node import SAVE, Node, alive, eventually

BEAT = 0.01
RUNS_ON = f"{SAVE} save step_1; trap '' TERM HUP; setsid sleep 300 & echo $!; echo $$; wait"


def test_what_died_is_told_at_once_and_the_job_goes_on(node: Node) -> None:
    node.spec(RUNS_ON)
    agent = node.start()
    eventually(lambda: node.saved() == [1] and len(node.output()) == 2, "it runs")
    pids = [int(line) for line in node.output()]
    agent.kill()
    agent.wait()
    assert node.start(scratch=0).wait(240) == CLAIM_LOST
    assert not [pid for pid in pids if alive(pid)], "said only when nothing of it is left"
    ending = node.ending()
    assert ending.cause is Cause.AGENT_DIED
    assert OUTCOMES[ending.cause].next is Next.RE_PLACE
    assert ending.evidence == f"the agent (pid {agent.pid}) died and was started again"
    assert node.output() == [str(pid) for pid in pids], "it did not begin anew"
    assert node.run("cat $GPUBROKER_CHECKPOINT_DIR/*", attempt=2) == 0
    assert [body.step for body in node.events(2) if isinstance(body, Restored)] == [1]


@pytest.mark.system
def test_while_the_first_one_lives_nothing_is_told(node: Node) -> None:
    node.spec("echo up; exec sleep 300")
    first = node.start()
    node.until_said("up")
    assert node.start(scratch=0).wait(240) == CLAIM_LOST
    assert node.start().wait(240) == CLAIM_LOST, "nor from another folder"
    assert node.runs.read_attempt(1).exit is None
    assert first.poll() is None


@pytest.mark.system
def test_its_own_last_word_stays(node: Node) -> None:
    assert node.run("exit 3") == 3
    assert node.start(scratch=0).wait(240) == CLAIM_LOST
    assert node.ending().cause is Cause.EXIT_STATUS


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    made = Scratch(tmp_path)
    made.make()
    return made


def claimed(scratch: Scratch, **changed: object) -> Claim:
    """The claim of an agent that died, and what it left behind."""
    own = make_claim(0, "", NodeClock())
    scratch.record.write_text(json.dumps({"pid": own.pid, "born": "1"}))
    return Claim(**{**own.__dict__, "started": "1", **changed})


def test_a_pid_that_is_somebody_elses_by_now_is_no_sign_of_life(scratch: Scratch) -> None:
    assert is_predecessor_dead(claimed(scratch), scratch, BEAT)


@pytest.mark.parametrize("changed", [{"host": "another"}, {"pid": 1}, {"started": "2"}])
def test_another_machines_or_another_folders_agent_is_not_judged(scratch: Scratch, changed: dict[str, object]) -> None:
    assert not is_predecessor_dead(claimed(scratch, **changed), scratch, BEAT)


def test_one_that_lives_is_not_dead(scratch: Scratch) -> None:
    holder = claimed(scratch, started=kernel_start())
    scratch.record.write_text(json.dumps({"pid": os.getpid(), "born": kernel_start()}))
    assert not is_predecessor_dead(holder, scratch, BEAT)


def test_without_a_trace_nothing_is_told(scratch: Scratch) -> None:
    holder = claimed(scratch)
    scratch.record.write_text("{")
    assert not is_predecessor_dead(holder, scratch, BEAT)
    scratch.record.unlink()
    assert not is_predecessor_dead(holder, scratch, BEAT)


def test_one_that_ended_by_itself_did_not_die(scratch: Scratch) -> None:
    holder = claimed(scratch)
    record = json.loads(scratch.record.read_text())
    scratch.record.write_text(json.dumps({**record, "ended": {"at": "2026-11-21T12:00:00Z", "cause": "completed"}}))
    assert not is_predecessor_dead(holder, scratch, BEAT)


def test_one_that_cannot_be_seen_is_heard(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lives in another container: no process of it is here, but it touches its file."""
    holder = claimed(scratch)
    scratch.alive.touch()

    def touched_meanwhile(_: float) -> None:
        os.utime(scratch.alive, ns=(1, 1))

    monkeypatch.setattr(time, "sleep", touched_meanwhile)
    assert not is_predecessor_dead(holder, scratch, 0.2)


def test_an_end_that_is_told_twice_is_the_first(tmp_path: Path) -> None:
    store = ObjectFolder.open(tmp_path.as_uri())
    for cause in ("exit_status", "agent_died"):
        store.create("exit.json", to_bytes(Exit(cause, datetime.now(UTC)).to_json()))
    document = store.read_json("exit.json")
    assert document is not None
    assert document["cause"] == "exit_status"
