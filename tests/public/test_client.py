"""The Python interface, used as a program uses it: a store of its own, this machine's engine, a real reconciler."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import gpubroker
import pytest
from gpubroker import (
    CapacityType,
    Client,
    InvalidInput,
    Job,
    JobState,
    MachineRequest,
    Money,
    NoFeasibleCapacity,
    NotAllowed,
    UnknownName,
)

from broker.core.policy.policy import Answer
from tests.program import kill, processes

JOB = Job(name="hello", run="echo hello from $GPUBROKER_JOB_ID", resources=(MachineRequest(cpus=1),))


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    for name in list(os.environ):
        if name.startswith("GPUBROKER_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GPUBROKER_ENGINES__LOCAL__REGISTER", str(tmp_path / "given"))
    monkeypatch.chdir(tmp_path)
    with Client(home=tmp_path / "home") as made:
        yield made
    kill(processes(tmp_path / "home"))


def test_all_names_of_the_interface_are_there() -> None:
    assert all(hasattr(gpubroker, name) for name in gpubroker.__all__)
    assert (Path(gpubroker.__file__).parent / "py.typed").exists()


def test_a_plan_says_where_the_job_would_run_and_holds_nothing(client: Client) -> None:
    seen = client.plan(JOB)
    assert seen.exit_code == 0
    assert [one.offer.capacity_type for one in seen.plan.placements][:1] == [CapacityType.OWNED]
    assert seen.admission is not None
    assert seen.admission.answer is Answer.ALLOW
    assert client.jobs() == []


def test_a_job_is_submitted_waited_for_and_read(client: Client) -> None:
    job = client.submit(JOB)
    result = job.result(timeout=timedelta(minutes=4))
    assert result.succeeded, result
    assert (result.state, result.attempts, result.interruptions) == (JobState.SUCCEEDED, 1, 0)
    assert result.cost == Money.ZERO
    assert result.end_reason is not None
    assert result.wait_reason is None
    assert list(job.logs()) == [f"hello from {job.id}"]
    assert job.job == JOB
    assert [one.id for one in client.jobs(states=[JobState.SUCCEEDED])] == [job.id]
    assert client.jobs(states=[JobState.FAILED]) == []
    assert client.job("hello").id == job.id


@pytest.mark.system
def test_a_job_for_each_value_and_what_happened_to_it(client: Client) -> None:
    told = "echo $WHAT | tee $GPUBROKER_OUTPUT_DIR/what.txt"
    submitted = client.map(JOB.model_copy(update={"run": told}), WHAT=["a", "b"])
    assert all(one.result(timeout=timedelta(minutes=4)).succeeded for one in submitted)
    assert [list(one.logs()) for one in submitted] == [["a"], ["b"]]
    (file,) = submitted[1].fetch(Path("results"))
    assert (file, file.read_text()) == (Path("results/what.txt"), "b\n")
    kinds = [event.kind for event in submitted[0].events()]
    assert kinds[0] == "submitted"
    assert kinds[-1] == "job_closed"


def test_a_map_of_which_one_is_refused_leaves_nothing_running(client: Client, tmp_path: Path) -> None:
    too_much = JOB.model_copy(update={"resources": (MachineRequest(cpus=100_000),)})
    with pytest.raises(NoFeasibleCapacity):
        client.map(too_much, WHAT=["a", "b"])
    assert client.jobs() == []


@pytest.mark.system
def test_a_job_goes_on_when_nobody_waits_for_it_any_longer_and_is_cancelled(client: Client) -> None:
    job = client.submit(JOB.model_copy(update={"run": "sleep 600"}))
    with pytest.raises(TimeoutError, match=job.id):
        job.result(timeout=timedelta(0))
    assert not job.state.final
    job.cancel()
    assert job.result(timeout=timedelta(minutes=4)).state is JobState.CANCELLED


def test_what_no_capacity_serves_is_not_submitted(client: Client) -> None:
    nowhere = JOB.model_copy(update={"resources": (MachineRequest(accelerator="H100", count=8, infra="owned"),)})
    with pytest.raises(NoFeasibleCapacity) as caught:
        client.submit(nowhere)
    assert not caught.value.preview.plan.placements
    assert client.jobs() == []


def test_what_a_policy_denies_is_not_submitted(tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strict.yaml").write_text(
        "version: 1\npolicy: strict\nguardrails: [{name: nothing-here, allowed_locations: {providers: [aws]}}]\n"
    )
    monkeypatch.setenv("GPUBROKER_POLICY", str(tmp_path / "strict.yaml"))
    with Client(home=tmp_path / "home") as strict, pytest.raises(NotAllowed):
        strict.submit(JOB)


def test_errors_say_what_is_wrong_and_where(tmp_path: Path, client: Client) -> None:
    (tmp_path / "job.yaml").write_text("run: echo hello\ntypo: 1\n")
    with pytest.raises(InvalidInput) as caught:
        client.read_job(tmp_path / "job.yaml")
    assert [(one.line, one.key) for one in caught.value.problems] == [(2, "typo")]
    with pytest.raises(UnknownName):
        client.job("nobody")
