"""`import gpubroker` with a team server: as the owner of a token, without a store on this machine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpubroker import Client, Error, JobState, NotAllowed, UnknownName

from broker.app.jobs import jobs
from tests.server.client.conftest import TeamService
from tests.server.world import JOB


@pytest.fixture
def client(service: TeamService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("GPUBROKER_HOME", str(tmp_path / "laptop"))
    monkeypatch.setenv("GPUBROKER_SERVER", service.url)
    monkeypatch.setenv("GPUBROKER_TOKEN", service.world.usual("mia"))
    with Client() as opened:
        yield opened
    assert not (tmp_path / "laptop").exists(), "no store is made here"


def test_jobs_and_functions_are_planned_submitted_and_cancelled(
    service: TeamService, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(JOB.format(name="sent", team="team: nlp", most="2h"))
    plan = client.plan(tmp_path / "job.yaml")
    assert plan.placements
    job = client.submit(tmp_path / "job.yaml", name="by-python")
    assert client.job("by-python").id == job.id
    assert job.job.name == "by-python"
    keys = {
        key: value for key, value in read(tmp_path / "job.yaml").items() if key not in ("name", "run", "file_mounts")
    }
    call = client.submit(len, [1, 2], **keys)
    tasks = client.map(abs, [1, -2], **keys)
    view = jobs.find(service.world.broker, call.id)
    assert (view.user, view.job.snapshot is not None) == ("mia", True)
    assert [task.state for task in tasks] == [JobState.QUEUED] * 2, "a task that has not begun is no error"
    listed = client.jobs(states=["queued", "launching", "planned"], user="mia")
    assert {job.id, call.id} <= {entry.id for entry in listed}
    job.cancel()
    look = job.look()
    assert look is not None
    assert look.cancel_requested
    assert next(event["kind"] for event in job.events()) == "submitted"
    with pytest.raises(Error, match="has not ended"):
        job.resume(workdir=tmp_path)


def read(file: Path) -> dict[str, Any]:
    import yaml

    document = yaml.safe_load(file.read_text())
    return {key: value for key, value in document.items() if key not in ("name", "run", "file_mounts")}


def test_offers_and_approvals_are_the_servers(service: TeamService, client: Client) -> None:
    assert all(offer.accelerator == "H100" for offer in client.offers(gpu="H100", limit=5))
    assert service.world.asking in [request.job for request in client.approvals()]
    with pytest.raises(NotAllowed):
        client.grant(service.world.asking)  # nobody decides their own request
    with Client(server=service.url, token=service.world.usual("apple")) as apple:
        apple.grant(service.world.asking, "agreed")
    assert client.approvals() == []


def test_what_the_server_refuses_is_an_error_with_a_hint(service: TeamService, client: Client) -> None:
    with pytest.raises(UnknownName):
        client.job(service.world.foreign)
    with (
        pytest.raises(Error, match="does not accept the token") as caught,
        Client(server=service.url, token="x") as stranger,
    ):
        stranger.jobs()
    assert caught.value.hint
