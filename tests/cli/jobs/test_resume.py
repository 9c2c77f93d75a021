"""Fail, fix, go on: `jobs resume` and `resume_from:`."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from broker.cli.jobs import follow as following
from tests.actors import ANN
from tests.cli.conftest import Gpubroker

JOB = """\
name: mine
resources: {cpus: 1}
workdir: project
run: exec python3 train.py
work: 100m
max_duration: 200m
checkpoint: {every: 1m}
"""

# Trains 100 steps, and saves each twentieth; fails at step 60 unless it was mended.
TRAIN = """\
import os, pathlib
folder = pathlib.Path(os.environ["GPUBROKER_CHECKPOINT_DIR"])
step = max((int(path.name.partition("_")[2]) for path in folder.glob("step_*")), default=0)
print("from", step, os.environ.get("RATE"), flush=True)
while step < 100:
    step += 1
    if step % 20 == 0:
        (folder / ".new").write_text(str(step))
        (folder / ".new").rename(folder / f"step_{step}")
    if step == 60 and not MENDED:
        raise SystemExit("diverged")
print("done", step)
"""


@pytest.fixture
def project(tmp_path: Path, home: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "train.py").write_text("MENDED = False\n" + TRAIN)
    (tmp_path / "job.yaml").write_text(JOB)
    return root


def mend(project: Path) -> None:
    (project / "train.py").write_text("MENDED = True\n" + TRAIN)


@pytest.fixture
def failed(gpubroker: Gpubroker, project: Path, reconciled_by: Callable[[ModuleType], None]) -> str:
    """The id of a job that failed at step 60."""
    reconciled_by(following)
    done = gpubroker("submit", "job.yaml", "--yes", "--json")
    assert done.code == 7
    return str(done.json["id"])


def printed(gpubroker: Gpubroker, job: str) -> list[str]:
    return [line["line"] for line in gpubroker("logs", job, "--json").json["lines"]]


@pytest.mark.system
def test_a_job_that_failed_at_step_60_goes_on_there_with_new_code(
    gpubroker: Gpubroker, failed: str, project: Path
) -> None:
    mend(project)
    done = gpubroker("jobs", "resume", failed, "--env", "RATE=0.5", "--yes", "--json")
    assert done.code == 0, done.err
    assert f"Resumes from the newest checkpoint of {failed}" in done.err
    new = done.json
    assert new["id"] != failed
    assert new["name"] == "mine"
    assert printed(gpubroker, new["id"]) == ["from 60 0.5", "done 100"]
    (attempt,) = new["attempts"]
    assert attempt["resumed_from_step"] == 60
    assert "-MENDED = False" in gpubroker("jobs", "diff", failed, new["id"]).out


@pytest.mark.system
def test_from_an_earlier_step_and_another_folder(gpubroker: Gpubroker, failed: str, project: Path) -> None:
    project.rename(project.with_name("moved"))
    lost = gpubroker("jobs", "resume", failed, "--yes")
    assert lost.code == 2
    assert "--same-files" in lost.err
    mend(project.with_name("moved"))
    done = gpubroker("jobs", "resume", failed, "--workdir", "moved", "--step", "40", "--yes", "--json")
    assert done.code == 0, done.err
    assert printed(gpubroker, done.json["id"]) == ["from 40 None", "done 100"]
    wrong = gpubroker("jobs", "resume", failed, "--workdir", "moved", "--step", "41", "--yes")
    assert wrong.code == 2
    assert "unknown step '41'" in wrong.err


@pytest.mark.system
def test_retry_runs_the_same_files_although_the_source_is_gone(
    gpubroker: Gpubroker, failed: str, project: Path
) -> None:
    shutil.rmtree(project)
    again = gpubroker("jobs", "resume", "--same-files", failed, "--yes", "--json")
    assert again.code == 0, "it resumes behind the step that fails"
    assert printed(gpubroker, again.json["id"]) == ["from 60 None", "done 100"]
    anew = gpubroker("jobs", "resume", failed, "--from-start", "--yes", "--json")
    assert anew.code == 7
    assert printed(gpubroker, anew.json["id"])[0] == "from 0 None"


@pytest.mark.system
def test_a_task_of_an_array_goes_on_as_a_job_of_its_own(
    gpubroker: Gpubroker, project: Path, reconciled_by: Callable[[ModuleType], None]
) -> None:
    reconciled_by(following)
    (project.parent / "job.yaml").write_text(JOB + "array: {range: 1}\n")
    array = gpubroker("submit", "job.yaml", "--yes", "--json").json["id"]
    mend(project)
    for more in ((), ("--same-files",)):
        done = gpubroker("jobs", "resume", f"{array}-0", *more, "--yes", "--json")
        assert done.code == 0, done.err
        assert printed(gpubroker, done.json["id"])[0] == "from 60 None"
    listed = {job["id"] for job in gpubroker("jobs", "list", "--json").json["jobs"]}
    assert len(listed) == 3, "the array, and two jobs"


@pytest.mark.system
def test_tasks_are_listed_by_their_array_which_has_no_results_of_its_own(
    gpubroker: Gpubroker, project: Path, reconciled_by: Callable[[ModuleType], None]
) -> None:
    reconciled_by(following)
    (project.parent / "job.yaml").write_text(JOB + "array: {range: 2}\n")
    array = gpubroker("submit", "job.yaml", "--yes", "--json").json["id"]
    listed = gpubroker("jobs", "list", "-w", f"array={array[:-2]}", "--json").json["jobs"]
    assert {job["id"] for job in listed} == {f"{array}-0", f"{array}-1"}
    assert gpubroker("jobs", "list", "-w", f"array={array},state=succeeded", "--json").json["jobs"] == []
    for command in (
        *("status --attempts", "jobs files --attempt 1", "jobs get --attempt 1", "jobs get --checkpoint latest"),
        "jobs files --checkpoints",
    ):
        refused = gpubroker(*command.split(), array)
        assert refused.code == 2
        assert f"name a task, such as {array}-0" in refused.err
    assert "has saved no results" in gpubroker("jobs", "files", array).out
    row = next(line for line in gpubroker("jobs", "list").out.splitlines() if line.startswith(f"{array} "))
    assert " 0 " not in row, "an array has no attempts of its own"
    alone = gpubroker("jobs", "list", "-w", f"array={array}-0")
    assert (alone.code, f"{array}-0 is not an array" in alone.err) == (2, True)


@pytest.mark.system
def test_results_of_all_tasks_are_fetched_and_those_that_failed_are_run_again(
    gpubroker: Gpubroker, project: Path, reconciled_by: Callable[[ModuleType], None], tmp_path: Path
) -> None:
    reconciled_by(following)
    fails = f"[ $GPUBROKER_TASK_INDEX = 0 ] || [ -e {tmp_path}/mended ]"
    run = f"run: 'echo $SKYPILOT_JOB_RANK of $GPUBROKER_TASK_COUNT > number.txt; {fails}'"
    job = JOB.replace("run: exec python3 train.py", f"outputs: [number.txt]\n{run}")
    (project.parent / "job.yaml").write_text(job + "array: {range: 3}\n")
    submitted = gpubroker("submit", "job.yaml", "--yes", "--json")
    assert submitted.code == 7
    fetched = gpubroker("jobs", "get", submitted.json["id"], "--to", tmp_path / "all", "--json")
    assert fetched.code == 0, fetched.err
    assert fetched.json["files"] == ["0/number.txt", "1/number.txt", "2/number.txt"]
    assert (tmp_path / "all" / "2" / "number.txt").read_text() == "2 of 3\n"
    assert gpubroker("jobs", "get", submitted.json["id"], "none.txt").code == 2
    listed = gpubroker("jobs", "files", submitted.json["id"], "--json").json["files"]
    assert [(row["path"], row["job"][-2:]) for row in listed] == [(f"{n}/number.txt", f"-{n}") for n in range(3)]
    failed = [
        task["id"]
        for task in gpubroker("jobs", "list", "-w", f"array={submitted.json['id']},state=failed", "--json").json["jobs"]
    ]
    assert len(failed) == 2, "all but the first"
    (tmp_path / "mended").touch()
    again = gpubroker("jobs", "resume", "--same-files", submitted.json["id"], "--yes", "--json")
    assert again.code == 0, again.err
    tasks = {task["id"] for task in gpubroker("jobs", "list", "-w", f"array={again.json['id']}", "--json").json["jobs"]}
    ran = {one.replace(submitted.json["id"], again.json["id"]) for one in failed}
    assert tasks == {f"{submitted.json['id']}-0", *ran}, "a retried array stands for all its tasks"
    refused = gpubroker("jobs", "resume", "--same-files", again.json["id"], "--yes")
    assert (refused.code, f"no task of {again.json['id']} has failed" in refused.err) == (2, True)


@pytest.mark.system
def test_the_name_of_an_array_retried_twice_means_the_newest_run_of_each_task(
    gpubroker: Gpubroker, project: Path, reconciled_by: Callable[[ModuleType], None], tmp_path: Path
) -> None:
    reconciled_by(following)
    text = f"for i in 1 2; do [ $i != $GPUBROKER_TASK_INDEX ] || [ -e {tmp_path}/mended$i ] || exit 3; done"
    job = f"name: sweep\nresources: {{cpus: 1}}\narray: {{range: 3}}\noutputs: [x]\nrun: 'date > x; {text}'\n"
    (project.parent / "job.yaml").write_text(job)
    first = gpubroker("submit", "job.yaml", "--yes", "--json").json["id"]
    ids = [first]
    for number, code in ((1, 7), (2, 0)):
        (tmp_path / f"mended{number}").touch()
        again = gpubroker("jobs", "resume", "sweep", "--same-files", "--yes", "--json")
        assert again.code == code, again.err
        ids.append(again.json["id"])
    listed = gpubroker("jobs", "list", "-w", "array=sweep", "--json").json["jobs"]
    assert [job["id"] for job in listed] == [f"{ids[0]}-0", f"{ids[1]}-1", f"{ids[2]}-2"]
    assert "tasks: done 3 of 3" in gpubroker("status", "sweep").out
    assert gpubroker("jobs", "get", "sweep", "--to", "all", "--json").json["files"] == ["0/x", "1/x", "2/x"]
    pick = (
        "name: pick\nresources: {cpus: 1}\nafter: {job: sweep, inputs: [x]}\nrun: 'cd $GPUBROKER_INPUT_DIR; ls */*/x'\n"
    )
    (project.parent / "job.yaml").write_text(pick)
    picked = gpubroker("submit", "job.yaml", "--yes", "--json").json["id"]
    assert printed(gpubroker, picked) == ["sweep/0/x", "sweep/1/x", "sweep/2/x"]
    refused = gpubroker("status", "--attempts", "sweep")
    assert f"name a task, such as {ids[2]}-2" in refused.err


@pytest.mark.system
def test_a_job_file_may_name_where_to_start(gpubroker: Gpubroker, failed: str, project: Path) -> None:
    mend(project)
    job = project.parent / "job.yaml"
    for reference, start in (("mine", 60), (f"{failed}@20", 20)):
        job.write_text(JOB.replace("name: mine", f"name: other\nresume_from: {reference}"))
        done = gpubroker("submit", job, "--yes", "--json")
        assert done.code == 0, done.err
        assert printed(gpubroker, done.json["id"])[0] == f"from {start} None"
    for wrong in ("nobody", "mine@7"):
        job.write_text(JOB + f"resume_from: {wrong}\n")
        assert gpubroker("submit", job, "--yes").code == 2


@pytest.mark.system
def test_what_cannot_be_resumed_is_refused_before_money_is_held(
    gpubroker: Gpubroker, failed: str, project: Path, job: Path
) -> None:
    job.write_text("name: plain\nresources: {cpus: 1}\nrun: 'false'\n")
    assert gpubroker("submit", job, "--yes").code == 7
    none = gpubroker("jobs", "resume", "plain", "--yes")
    assert none.code == 2
    assert "has no checkpoint" in none.err
    assert gpubroker("jobs", "resume", "--same-files", "plain", "--yes").code == 7, (
        "without one it starts from the beginning"
    )
    may_end = project / "may_end"
    waits = f"timeout 300 sh -c 'until [ -e {may_end} ]; do sleep 0.05; done'"
    job.write_text(f'name: long\nresources: {{cpus: 1}}\nrun: "{waits}"\n')
    running = gpubroker("submit", job, "--yes", "--detach", "--json").json["id"]
    for more in ((), ("--same-files",)):
        refused = gpubroker("jobs", "resume", running, *more, "--yes")
        assert refused.code == 3
        assert "has not ended" in refused.err
    may_end.touch()
    other = gpubroker("jobs", "resume", "--same-files", failed, "--yes", by=ANN)
    assert other.code == 3
    assert gpubroker("jobs", "resume", failed, "--env", "RATE", "--yes").code == 2
    assert "--step: does not apply" in gpubroker("jobs", "resume", failed, "--same-files", "--step", "40").err
    assert gpubroker("jobs", "resume", failed, "--env", "GPUBROKER_X=1", "--yes").code == 2


@pytest.mark.system
def test_only_the_work_that_is_left_is_planned(gpubroker: Gpubroker, failed: str, project: Path) -> None:
    mend(project)
    done: Any = gpubroker("jobs", "resume", failed, "--yes", "--detach", "--json")
    assert done.code == 0, done.err
    again = gpubroker("jobs", "diff", failed, done.json["id"], "--json").json["job"]
    assert f"+resume_from: {failed}" in again


@pytest.mark.system
def test_checkpoints_that_another_job_resumes_from_are_not_pruned(gpubroker: Gpubroker, failed: str) -> None:
    prune = ("jobs", "prune", "--keep", "0s", "--newest-too", "--dry-run", "--json")
    assert [one["id"] for one in gpubroker(*prune).json["jobs"]] == [failed]
    assert gpubroker("jobs", "resume", "--same-files", failed, "--yes", "--detach").code == 0
    assert gpubroker(*prune).json["jobs"] == []
