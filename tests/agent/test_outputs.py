"""Results reach the run folder: as they appear, at the end, and none that was brought along."""

from pathlib import Path
from typing import Any

import pytest

from broker.agent.outputs import OutputFile
from broker.core.events.agent_events import CheckpointTrouble, OutputsSaved, OutputTrouble
from broker.core.events.outcomes import Cause
from tests.agent.node import Node, eventually


def results(node: Node, attempt: int = 1) -> dict[str, bytes]:
    found = node.runs.outputs(attempt)
    return {one.file.path: b"".join(node.runs.output_content(attempt, one.file)) for one in found}


def test_what_is_named_and_what_lies_in_the_output_folder_is_kept(node: Node) -> None:
    command = (
        "mkdir -p results/deep other; echo 1 > results/deep/a.txt; echo 2 > results/b.json; echo 3 > other/c.txt; "
        'echo 4 > d.json; echo 5 > "$GPUBROKER_OUTPUT_DIR/e ü.txt"'
    )
    assert node.run(command, outputs=("results/", "*.json", "missing")) == 0
    assert results(node) == {
        "results/deep/a.txt": b"1\n",
        "results/b.json": b"2\n",
        "d.json": b"4\n",
        "e ü.txt": b"5\n",
    }
    large = node.runs.outputs(1)[2]
    assert b"".join(node.runs.output_content(1, large.file, 1)) == b"\n", "from a position on"
    (saved,) = [body for body in node.events() if isinstance(body, OutputsSaved)]
    assert (saved.files, saved.size) == (4, 8)
    assert not list(node.scratch().glob("outputs/*")), "nothing is left on the machine"


@pytest.mark.system
def test_a_job_without_results_says_nothing(node: Node) -> None:
    assert node.run("echo x > here") == 0
    assert node.runs.outputs(1) == ()
    assert not [body for body in node.events() if isinstance(body, OutputsSaved)]


def test_results_appear_while_the_job_runs_and_again_when_they_change(node: Node) -> None:
    node.spec(
        "echo one > r; while [ ! -e go ]; do sleep 0.02; done; echo two > r; exec sleep 300",
        outputs=("r",),
        intervals={"outputs": 0.05},
    )
    node.start()
    eventually(lambda: results(node) == {"r": b"one\n"}, "the first version is kept")
    (node.scratch() / "work" / "go").touch()
    eventually(lambda: results(node) == {"r": b"two\n"}, "the second version replaces it")


@pytest.mark.system
@pytest.mark.parametrize("end", ["exit 3", "kill -9 $$"])
def test_what_a_failed_command_wrote_is_kept(node: Node, end: str) -> None:
    node.run(f"echo half > r; {end}", outputs=("r",))
    assert results(node) == {"r": b"half\n"}


def test_a_stop_keeps_results_too(node: Node) -> None:
    node.spec("echo up > r; echo up; exec sleep 300", outputs=("r",))
    agent = node.start()
    node.until_said("up")
    agent.terminate()
    agent.wait(240)
    assert node.ending().cause is Cause.PREEMPTED
    assert results(node) == {"r": b"up\n"}


@pytest.mark.system
def test_each_attempt_has_its_own(node: Node) -> None:
    for attempt in (1, 2):
        node.spec(f"echo {attempt} > r", attempt, outputs=("r",))
        assert node.start(attempt).wait(240) == 0
    assert [results(node, attempt) for attempt in (1, 2)] == [{"r": b"1\n"}, {"r": b"2\n"}]


@pytest.mark.system
def test_what_cannot_be_kept_is_told_once(node: Node, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    command = f"echo 1 > real; ln -s real inside; ln -s {tmp_path}/secret outside; ln -s nowhere broken; mkfifo pipe"
    assert node.run(command, outputs=(".",)) == 0
    assert sorted(results(node)) == ["broken", "inside", "real"]
    (told,) = [body.because for body in node.events() if isinstance(body, OutputTrouble)]
    assert (
        told
        == f"not kept: outside: a link that points outside the folder, to {tmp_path}/secret; pipe: a named pipe,"
        + (" which cannot be kept")
    )


@pytest.mark.system
def test_the_ranks_of_a_gang_keep_their_own(node: Node) -> None:
    node.spec("echo $GPUBROKER_RANK > r", nodes=2, outputs=("r",))
    agents = [node.start(rank=rank, gang="g") for rank in (0, 1)]
    assert [agent.wait(240) for agent in agents] == [0, 0]
    assert [(one.rank, one.file.path) for one in node.runs.outputs(1)] == [(0, "r"), (1, "r")]
    assert [b"".join(node.runs.output_content(1, one.file)) for one in node.runs.outputs(1)] == [b"0\n", b"1\n"]


def test_a_result_that_cannot_be_read_is_told_and_delays_no_end(node: Node) -> None:
    node.spec("echo 1 > r; echo 2 > s", outputs=("r", "s"), intervals={"patience": 1.0})
    blocked = node.job / "attempts" / "1" / "outputs"
    blocked.parent.mkdir(parents=True, exist_ok=True)
    blocked.write_text("a file where a folder should be")
    assert node.start().wait(240) == 0
    (trouble, *_) = [body for body in node.events() if isinstance(body, OutputTrouble)]
    assert trouble.because
    assert node.ending().cause is Cause.COMPLETED


@pytest.mark.parametrize(
    "values", [{"path": "../x"}, {"path": "/x"}, {"object": "../../spec.json"}, {"size": -1}, {"at": "never"}]
)
def test_an_index_that_leads_out_of_its_folder_is_refused(values: dict[str, Any]) -> None:
    good = {"path": "a", "object": "outputs/a", "size": 1, "sha256": "0", "at": "2026-01-01T00:00:00Z"}
    assert OutputFile.from_json(good).path == "a"
    with pytest.raises(ValueError, match=r"leaves its folder|never"):
        OutputFile.from_json(good | values)


def test_what_cannot_be_kept_is_named_each_once(node: Node) -> None:
    command = (
        'for i in 1 2 3 4 5 6 7; do mkfifo "$GPUBROKER_OUTPUT_DIR/p$i"; done; cd "$GPUBROKER_CHECKPOINT_DIR"; '
        "for i in 1 2 3; do mkdir .s; echo w > .s/w; mkfifo .s/p .s/q; mv .s step_$i; "
        'while [ ! -e "$OLDPWD/go$i" ]; do sleep 0.02; done; done'
    )
    node.spec(command, intervals={"outputs": 0.05})
    agent = node.start()
    for step in (1, 2, 3):
        eventually(lambda: node.saved()[-1:] == [step], "it is saved")  # noqa: B023  # called at once
        (node.scratch() / "work" / f"go{step}").touch()
    assert agent.wait(240) == 0
    told = [body.because for body in node.events() if isinstance(body, OutputTrouble)]
    assert all(sum(f"p{number}: a named pipe" in text for text in told) == 1 for number in range(1, 8)), told
    troubles = [body.because for body in node.events() if isinstance(body, CheckpointTrouble)]
    reason = "a named pipe, which cannot be kept; the rest is saved without it"
    assert sorted(troubles) == [f"step_{step}/{name}: {reason}" for step in (1, 2, 3) for name in "pq"]
