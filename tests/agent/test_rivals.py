"""Who may run an attempt: one machine, of the newest attempt; and nothing of it survives its agent."""

import os
import signal

import pytest

from broker.agent.supervise import CLAIM_LOST, FENCED
from broker.core.events.agent_events import Restored
from broker.core.events.outcomes import Cause
from tests.agent.node import SAVE, SLEEP, Node, alive, eventually


def test_a_second_machine_loses_the_claim_and_goes_away(node: Node) -> None:
    node.spec("echo up; sleep 0.5")
    first = node.start()
    node.until_said("up")
    assert node.start().wait(240) == CLAIM_LOST
    assert "nothing to do here" in node.said(1)
    assert first.wait(240) == 0
    assert node.output() == ["up"]
    assert node.start().wait(240) == CLAIM_LOST, "not even after it has ended"


def test_a_newer_attempt_fences_the_older_one_off(node: Node) -> None:
    node.spec(SAVE + "save step_1; echo up; echo $$; exec sleep 300")
    agent = node.start()
    eventually(lambda: node.saved() == [1] and len(node.output()) == 2, "a checkpoint, and the log")
    pid = int(node.output()[1])
    node.spec("true", attempt=2)
    assert agent.wait(240) == FENCED
    assert not alive(pid)
    assert node.runs.read_attempt(1).exit is None, "writes nothing more"
    assert node.start(attempt=1).wait(240) != 0
    assert node.start(attempt=2).wait(240) == 0
    restored = node.events(2)[1]
    assert isinstance(restored, Restored)
    assert restored.step == 1


@pytest.mark.system
def test_an_attempt_that_left_no_trace_is_no_hole_in_the_fence(node: Node) -> None:
    """The second one ended before anything was prepared for it."""
    node.spec(SLEEP)
    agent = node.start()
    node.until_said("up")
    node.spec("true", attempt=3)
    assert agent.wait(240) == FENCED
    assert node.start(attempt=1).wait(240) == FENCED


def test_the_guard_killed_is_not_a_way_out(node: Node) -> None:
    node.spec("setsid sleep 300 & echo $!; env -i setsid sleep 300 & echo $!; echo $$; echo $PPID; exec sleep 300")
    agent = node.start()
    *pids, guard = (int(x) for x in eventually(lambda: node.output() if len(node.output()) == 4 else None, "it runs"))
    os.kill(guard, signal.SIGKILL)
    assert agent.wait(240) == 137
    assert not [pid for pid in pids if alive(pid)]
    assert node.ending().cause is Cause.KILLED_BY_SIGNAL
