"""A job may take results of other jobs as its inputs."""

import pytest

from broker.agent.formats import BadDocument, Spec, WantedInput
from broker.core.events.outcomes import Cause
from broker.engines.runfolder.runfolder import RunFolder
from tests.agent.node import Node

LIST = "cd $GPUBROKER_INPUT_DIR && find . -type f | sort && cat first/a/x.txt"


def follower(node: Node) -> None:
    """A job ``k`` beside ``j``."""
    node.runs = RunFolder((node.folder / "runs").as_uri(), "k")


@pytest.mark.system
def test_it_finds_the_newest_version_of_what_it_named(node: Node) -> None:
    assert node.run("cd $GPUBROKER_OUTPUT_DIR; mkdir a; echo old > a/x.txt; echo y > y.json; echo z > z.log") == 0
    node.spec("cd $GPUBROKER_OUTPUT_DIR; mkdir a; echo new > a/x.txt", 2)
    assert node.start(2).wait(240) == 0
    follower(node)
    assert node.run(LIST, inputs=(WantedInput("j", "first", ("a", "*.json")),)) == 0
    assert node.output() == ["./first/a/x.txt", "./first/y.json", "new"]


@pytest.mark.system
@pytest.mark.parametrize("damage", [None, "newer"])
def test_it_does_not_start_without_them(node: Node, damage: str | None) -> None:
    assert node.run("echo fine > $GPUBROKER_OUTPUT_DIR/x") == 0
    follower(node)
    wanted = "x" if damage else "data/*"
    if damage:
        (node.job / "attempts" / "1" / "outputs" / "x").write_text(damage)
    node.run("echo ran", inputs=(WantedInput("j", "first", (wanted,)),))
    assert node.ending().cause is Cause.CANNOT_START
    told = "x differs from what was saved" if damage else "j has no result 'data/*'"
    assert told in node.ending().evidence
    assert node.output() == []


@pytest.mark.system
def test_a_task_may_lack_what_the_others_have(node: Node) -> None:
    follower(node)
    assert node.run("ls $GPUBROKER_INPUT_DIR", inputs=(WantedInput("j", "sweep/0", ("x",), may_lack=True),)) == 0


@pytest.mark.parametrize("wrong", [{"job": "../j"}, {"to": "../../etc"}, {"to": "/etc"}, {"to": ""}])
def test_inputs_stay_in_their_folder(wrong: dict[str, str]) -> None:
    document = Spec("k", 1, "k-1", "true", inputs=(WantedInput("j", "first", ("x",)),)).to_json()
    assert Spec.from_json(document).inputs == (WantedInput("j", "first", ("x",)),)
    with pytest.raises(BadDocument):
        Spec.from_json(document | {"inputs": [{**document["inputs"][0], **wrong}]})
