"""`submit` of jobs that come after others: `after:`, `--after`, and results of one as inputs of the next."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from broker.cli.jobs import follow as following
from tests.cli.conftest import Gpubroker

HEAD = "resources: {cpus: 1}\nwork: 10m\nmax_duration: 20m\n"
PREPARE = HEAD + "name: prepare\nrun: 'mkdir -p $GPUBROKER_OUTPUT_DIR/data; echo 42 > $GPUBROKER_OUTPUT_DIR/data/x'\n"
SWEEP = (
    HEAD + "name: sweep\narray: {range: 2}\nafter: {job: prepare, inputs: data/*}\n"
    "run: 'echo $(cat $GPUBROKER_INPUT_DIR/prepare/data/x).$GPUBROKER_TASK_INDEX > $GPUBROKER_OUTPUT_DIR/y'\n"
)
JUDGE = HEAD + "name: judge\nafter: [{job: sweep, inputs: [y]}]\nrun: 'cat $GPUBROKER_INPUT_DIR/sweep/*/y'\n"


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)


@pytest.mark.system
def test_results_of_one_are_inputs_of_the_next(
    gpubroker: Gpubroker, tmp_path: Path, reconciled_by: Callable[[ModuleType], None]
) -> None:
    write(tmp_path, prepare=PREPARE, sweep=SWEEP, judge=JUDGE)
    reconciled_by(following)
    done = gpubroker("submit", "judge.yaml", "sweep.yaml", "prepare.yaml", "--yes", "--json")
    assert done.code == 0, done.err
    lines = gpubroker("logs", done.json["id"], "--json").json["lines"]
    assert [line["line"] for line in lines] == ["42.0", "42.1"]
    (before,) = done.json["after"]
    assert before == {"job": before["job"], "when": "succeeded", "inputs": ["y"]}
    assert before["job"].startswith("sweep-")


@pytest.mark.system
def test_a_job_that_is_resumed_follows_the_retry_of_the_one_before_it(
    gpubroker: Gpubroker, tmp_path: Path, reconciled_by: Callable[[ModuleType], None]
) -> None:
    sweep = SWEEP.replace("after: {job: prepare, inputs: data/*}\n", "")
    run = f"[ $GPUBROKER_TASK_INDEX = 0 ] || [ -e {tmp_path}/mended ] || exit 3; echo 1 > $GPUBROKER_OUTPUT_DIR/y"
    write(tmp_path, sweep=sweep[: sweep.index("run:")] + f"run: '{run}'\n", judge=JUDGE)
    reconciled_by(following)
    first = gpubroker("submit", "judge.yaml", "sweep.yaml", "--yes", "--json")
    assert first.json["state"] == "cancelled", first.err
    refused = gpubroker("jobs", "resume", "judge", "--same-files", "--yes")
    assert refused.code == 2
    (tmp_path / "mended").touch()
    hint = refused.err.partition("`gpubroker ")[2].partition("`")[0]
    again = gpubroker(*hint.split(), "--yes", "--json")
    assert again.code == 0, again.err
    done = gpubroker("jobs", "resume", "judge", "--same-files", "--yes", "--json")
    assert done.code == 0, done.err
    assert [one["job"] for one in done.json["after"]] == [again.json["id"]]
    lines = gpubroker("logs", done.json["id"], "--json").json["lines"]
    assert [line["line"] for line in lines] == ["1", "1"], "both tasks, in the folder that the file names"


def test_what_waits_is_shown_with_what_it_waits_for(gpubroker: Gpubroker, tmp_path: Path) -> None:
    write(tmp_path, prepare=PREPARE, judge=HEAD + "name: judge\nrun: 'true'\n")
    first = gpubroker("submit", "prepare.yaml", "--yes", "--detach", "--json").json["id"]
    then = gpubroker("submit", "judge.yaml", "--after", "prepare", "--yes", "--detach", "--json")
    assert then.code == 0, then.err
    assert then.json["waiting_because"] == f"waits for {first}"
    assert then.json["wait_reason"] == {"kind": "awaits_jobs", "jobs": [first]}
    assert set(then.json["held"].values()) == {"0.00"}
    (later,) = gpubroker("jobs", "queue", "--json").json["later"]
    assert (later["id"], later["after"]) == (then.json["id"], [first])
    assert f"waits for {first}" in gpubroker("jobs", "queue").out
    assert f"comes after {first}" in gpubroker("status", then.json["id"]).out
    write(tmp_path, judge=HEAD + "name: judge\nafter: prepare\nrun: 'true'\n")
    assert "it begins after prepare has succeeded" in gpubroker("plan", "judge.yaml").out


@pytest.mark.system
def test_a_task_that_has_not_begun_is_waited_for(
    gpubroker: Gpubroker, tmp_path: Path, reconciled_by: Callable[[ModuleType], None]
) -> None:
    sweep = SWEEP.replace("after: {job: prepare, inputs: data/*}\n", "").replace(
        "cat $GPUBROKER_INPUT_DIR/prepare/data/x", "echo 7"
    )
    judge = JUDGE.replace("{job: sweep, inputs: [y]}", "{job: sweep-1, inputs: [y]}").replace("sweep/*/y", "sweep-1/y")
    write(tmp_path, sweep=sweep, judge=judge, late=judge.replace("judge", "late"))
    reconciled_by(following)
    done = gpubroker("submit", "judge.yaml", "sweep.yaml", "--yes", "--json")
    assert done.code == 0, done.err
    lines = gpubroker("logs", done.json["id"], "--json").json["lines"]
    assert [line["line"] for line in lines] == ["7.1"]


def test_a_task_of_an_array_that_ended_before_it_never_begins(
    gpubroker: Gpubroker, tmp_path: Path, reconciled_by: Callable[[ModuleType], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, sweep=HEAD + "name: sweep\narray: {range: 3}\nrun: 'true'\n", judge=HEAD + "name: judge\nrun: x\n")
    monkeypatch.setattr("secrets.choice", lambda letters: letters[-8])  # a 2, where digits are allowed
    array = gpubroker("submit", "sweep.yaml", "--yes", "--detach", "--json").json["id"]
    assert gpubroker("submit", "judge.yaml", "--after", "sweep-3", "--yes").code == 2, "it has no such task"
    assert gpubroker("cancel", "sweep", "--yes").code == 0
    reconciled_by(following)
    ended = gpubroker("submit", "judge.yaml", "--after", "sweep-2", "--yes", "--json").json
    assert (ended["state"], ended["after"][0]["job"]) == ("cancelled", f"{array}-2")


def test_a_task_of_an_array_of_the_same_submission_is_not_that_of_an_earlier_one(
    gpubroker: Gpubroker, tmp_path: Path
) -> None:
    write(
        tmp_path,
        sweep=HEAD + "name: sweep\narray: {range: 3}\nrun: 'true'\n",
        judge=HEAD + "name: judge\nafter: sweep-1\nrun: x\n",
    )
    earlier = gpubroker("submit", "sweep.yaml", "--yes", "--detach", "--json").json["id"]
    done = gpubroker("submit", "judge.yaml", "sweep.yaml", "--yes", "--detach", "--json")
    assert done.code == 0, done.err
    (before,) = done.json["after"]
    assert before["job"] in {f"{job['id']}-1" for job in gpubroker("jobs", "list", "--json").json["jobs"]} - {
        f"{earlier}-1"
    }


def test_a_cycle_is_refused_with_its_names_and_half_a_graph_is_taken_back(gpubroker: Gpubroker, tmp_path: Path) -> None:
    write(tmp_path, prepare=PREPARE + "after: sweep\n", sweep=SWEEP)
    refused = gpubroker("submit", "prepare.yaml", "sweep.yaml", "--yes")
    assert refused.code == 2
    assert "prepare → sweep → prepare" in refused.err or "sweep → prepare → sweep" in refused.err
    assert gpubroker("jobs", "list", "--json").json["jobs"] == []
    write(tmp_path, prepare=PREPARE, sweep=SWEEP.replace("cpus: 1", "cpus: 100000"))
    refused = gpubroker("submit", "prepare.yaml", "sweep.yaml", "--yes")
    assert refused.code == 4, refused.err
    (only,) = gpubroker("jobs", "list", "--json").json["jobs"]
    assert (only["name"], only["cancel_requested"]) == ("prepare", True)
    assert gpubroker("submit", "sweep.yaml", "--after", "nobody", "--yes").code == 2
