"""A store that is away, and checkpoints that it has torn."""

import subprocess

import pytest

from broker.agent.formats import Lease
from broker.core.events.agent_events import CheckpointTrouble
from broker.core.events.outcomes import Cause
from tests.agent.node import SAVE, Node, eventually

SLEEP = "echo up; exec sleep 300"


def test_a_store_in_trouble_does_not_stop_training(node: Node) -> None:
    node.spec(
        SAVE + "save step_1; echo up; while [ ! -e go ]; do sleep 0.02; done; rm go; save step_2; echo done; sleep 0.3"
    )
    (node.job / "checkpoints").write_text("in the way")  # every upload fails with an error of the operating system
    agent = node.start()
    node.until_said("up")
    trouble = node.until_event("checkpoint_trouble")
    assert isinstance(trouble, CheckpointTrouble)
    assert "Not a directory" in trouble.because or "cannot" in trouble.because
    (node.scratch() / "checkpoints" / "go").touch()
    node.until_said("done")
    (node.job / "checkpoints").unlink()
    assert agent.wait(240) == 0
    assert set(node.saved()) == {1, 2}, "made up for"
    assert [body.kind for body in node.events()].count("checkpoint_trouble") <= 3, "said, not shouted"


def cannot_save(node: Node, *, patience: float) -> subprocess.Popen[bytes]:
    """An agent whose command ends with a checkpoint that the run folder does not take."""
    spec = SAVE + "echo up; while [ ! -e go ]; do sleep 0.02; done; rm go; save step_1"
    node.spec(spec, intervals={"patience": patience})
    agent = node.start()
    node.until_said("up")
    (node.job / "checkpoints").write_text("in the way")
    (node.scratch() / "checkpoints" / "go").touch()
    return agent


def test_what_could_not_be_saved_is_said_and_not_thrown_away(node: Node) -> None:
    assert cannot_save(node, patience=0.5).wait(240) == 0
    assert node.ending().evidence == "not saved: step_1"
    assert (node.scratch() / "checkpoints" / "step_1").exists()


@pytest.mark.system
def test_who_is_told_to_stop_does_not_go_on_trying_to_save(node: Node) -> None:
    agent = cannot_save(node, patience=600)
    node.until_event("checkpoint_trouble")
    node.runs.write_lease(1, Lease(stop="cancelled_by_user"))
    assert agent.wait(240) == 0
    assert (node.ending().cause, node.ending().evidence) == (Cause.COMPLETED, "not saved: step_1")


@pytest.mark.system
def test_a_run_folder_that_is_not_there_in_time(node: Node) -> None:
    agent = node.start()  # no spec yet
    eventually(lambda: "there is no spec.json" in node.said(), "it says what it waits for")
    node.spec("echo late")
    assert agent.wait(240) == 0
    assert node.output() == ["late"]
