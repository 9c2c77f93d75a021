"""A job may start from the checkpoint of another one."""

import pytest

from broker.agent.formats import BadDocument, Spec
from broker.core.events.agent_events import Restored
from broker.core.events.outcomes import Cause
from broker.engines.runfolder.runfolder import RunFolder
from tests.agent.node import SAVE, Node

LIST = "ls $GPUBROKER_CHECKPOINT_DIR"


def other_job(node: Node) -> RunFolder:
    """A job ``k`` beside this node's, which goes on from checkpoints of ``j``."""
    node.runs = RunFolder((node.folder / "runs").as_uri(), "k")
    return node.runs


def restored(node: Node, attempt: int = 1) -> list[tuple[int | None, int]]:
    found = [body for body in node.events(attempt) if isinstance(body, Restored)]
    return [(body.step, len(body.passed_over)) for body in found]


@pytest.mark.system
def test_it_gets_the_newest_or_the_one_that_is_named(node: Node) -> None:
    assert node.run(SAVE + "save step_1; sleep 0.3; save step_2", keep=5) == 0
    first = node.runs.checkpoints()[0].id
    other_job(node)
    assert node.run(LIST, resume_from=("j", None)) == 0
    assert (node.output(), restored(node)) == (["step_2"], [(2, 0)])
    node.spec(LIST, 2, resume_from=("j", first))
    assert node.start(2).wait(240) == 0
    assert (node.output(2), restored(node, 2)) == (["step_1"], [(1, 0)])


@pytest.mark.system
def test_its_own_checkpoints_come_first(node: Node) -> None:
    assert node.run(SAVE + "save step_5") == 0
    other_job(node)
    assert node.run(SAVE + "save step_3", resume_from=("j", None)) == 0
    node.spec("true", 2, resume_from=("j", None))
    assert node.start(2).wait(240) == 0
    assert [step for step, _ in restored(node, 2)] == [3]


@pytest.mark.system
@pytest.mark.parametrize("wanted", [None, "0001-000000000009-000000-step_9"])
def test_it_does_not_start_from_the_beginning_instead(node: Node, wanted: str | None) -> None:
    assert node.run("true") == 0
    other_job(node)
    node.run("echo ran", resume_from=("j", wanted))
    assert node.ending().cause is Cause.CANNOT_START
    assert "no checkpoint of j can be restored" in node.ending().evidence
    assert node.output() == []


def test_a_spec_names_a_folder_beside_its_own_only() -> None:
    document = Spec("k", 1, "k-1", "true", resume_from=("j", None)).to_json()
    assert Spec.from_json(document).resume_from == ("j", None)
    with pytest.raises(BadDocument, match="not the name of a folder"):
        Spec.from_json(document | {"resume_from": {"job": "../j"}})
