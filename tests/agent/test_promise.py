"""A job that promises checkpoints and writes none hears of it: while it runs, or at its end."""

import pytest

from broker.core.events.agent_events import CheckpointsMissing
from tests.agent.node import SAVE, Node

HURRY = {"promise": 0.05}


def missing(node: Node, attempt: int = 1) -> list[CheckpointsMissing]:
    return [body for body in node.events(attempt) if isinstance(body, CheckpointsMissing)]


def test_it_is_said_while_the_job_runs_once_and_with_what_lies_there(node: Node) -> None:
    assert node.run(SAVE + "save step_1") == 0
    node.spec("cd $GPUBROKER_CHECKPOINT_DIR; ls; echo > half.tmp; exec sleep 300", 2, every=0.05, intervals=HURRY)
    agent = node.start(2)
    told = node.until_event("checkpoints_missing", 2)
    assert isinstance(told, CheckpointsMissing)
    assert (told.every, told.ended, told.unfinished) == (0.05, False, ("half.tmp",))
    assert told.seconds >= 0.15
    agent.terminate()
    agent.wait(240)
    assert node.output(2) == ["step_1"], "what was restored is finished"
    assert len(missing(node, 2)) == 1


@pytest.mark.system
def test_it_is_said_at_the_end_where_there_was_time_for_one(node: Node) -> None:
    assert node.run("sleep 0.3; echo x > elsewhere.pt", every=0.2) == 0
    (told,) = missing(node)
    assert told.ended


@pytest.mark.system
def test_a_program_that_saves_or_promises_nothing_or_is_quick_hears_nothing(node: Node) -> None:
    assert node.run(SAVE + "save step_1; sleep 0.5", every=0.05, intervals=HURRY) == 0
    assert missing(node) == []
    node.spec("sleep 0.3", 2, intervals=HURRY)
    assert node.start(2).wait(240) == 0
    node.spec("true", 3, every=60.0)
    assert node.start(3).wait(240) == 0
    assert missing(node, 2) == missing(node, 3) == []
