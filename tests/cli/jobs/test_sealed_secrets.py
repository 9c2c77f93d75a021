"""A job's secrets are sealed at submission, open for who looks after it alone, and go when it is closed."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import cli
from broker.app.jobs import jobs
from broker.app.jobs.sealed_secrets import KEY_FILE, JobSecrets, publish_service_key, service_key
from broker.app.service.duties import ReconcileDuty
from broker.app.service.health import Pulses
from broker.app.wiring import Broker
from broker.cli.jobs import follow as following
from broker.core.actors import ProcessAccount
from broker.core.errors import InvalidInput, SecretsAbsent
from broker.core.events.views import JobView
from broker.settings import Settings, read_settings
from tests.cli.conftest import Gpubroker

JOB = "name: mine\nresources: {cpus: 1}\nsecrets: [TOKEN]\nrun: test ${#TOKEN} = 7 && echo opened\n"
NOBODY = ProcessAccount("nobody")


@pytest.fixture
def submitted(gpubroker: Gpubroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], JobView]:
    """Submits a job with a secret, which is not in the environment afterwards."""

    def submit() -> JobView:
        (tmp_path / "job.yaml").write_text(JOB)
        monkeypatch.setenv("TOKEN", "hunter2")
        done = gpubroker("submit", "job.yaml", "--yes", "--detach", "--json")
        assert done.code == 0, done.err
        monkeypatch.delenv("TOKEN")
        return jobs.find(broker_of(read_settings()), done.json["id"])

    return submit


def broker_of(settings: Settings) -> Broker:
    return Broker(settings, cli.registries(), NOBODY)


def elsewhere(tmp_path: Path) -> Broker:
    """Another home over the same store and run folders."""
    here = read_settings()
    return broker_of(
        here.model_copy(update={"home": tmp_path / "elsewhere", "store": here.store_url, "runs": here.runs_url})
    )


def seals(home: Path) -> list[Path]:
    return list((home / "runs").glob("snapshots-*/sealed/*"))


def test_the_job_runs_without_the_submitters_terminal_and_the_seal_goes_with_it(
    gpubroker: Gpubroker,
    submitted: Callable[[], JobView],
    home: Path,
    reconciled_by: Callable[[ModuleType], None],
) -> None:
    reconciled_by(following)
    submitted()
    assert len(seals(home)) == 1
    assert (home / KEY_FILE).stat().st_mode & 0o077 == 0
    kept = [path for path in home.rglob("*") if path.is_file()]
    assert not [path for path in kept if b"hunter2" in path.read_bytes()], "nowhere in the clear"
    assert gpubroker("status", "mine", "--wait").code == 0
    assert gpubroker("logs", "mine").out == "opened\n"
    assert seals(home) == []


def test_another_home_cannot_open_it(submitted: Callable[[], JobView], tmp_path: Path) -> None:
    view, other = submitted(), elsewhere(tmp_path)
    for _ in range(2):
        assert JobSecrets(other).missing(view.job) == ["TOKEN"]
        with pytest.raises(SecretsAbsent):
            JobSecrets(other).of(view, NOBODY)
        publish_service_key(other)  # too late for what was submitted before


def test_a_service_that_has_told_its_key_can(submitted: Callable[[], JobView], tmp_path: Path) -> None:
    service = elsewhere(tmp_path)
    publish_service_key(service)
    publish_service_key(service)
    view = submitted()
    assert JobSecrets(service).missing(view.job) == []
    assert JobSecrets(service).of(view, NOBODY) == {"TOKEN": "hunter2"}


def test_a_service_with_another_key_does_not_start(
    gpubroker: Gpubroker, submitted: Callable[[], JobView], tmp_path: Path
) -> None:
    def start(broker: Broker) -> None:
        stop = threading.Event()
        ReconcileDuty(broker, health=Pulses(), say=lambda _: stop.set()).run(stop)

    here, other = broker_of(read_settings()), elsewhere(tmp_path)
    publish_service_key(here)
    with here.store.lead() as leads:
        assert leads is not None
        with pytest.raises(InvalidInput, match="sealed for another key") as standby:
            start(other)
    assert str(other.settings.home / KEY_FILE) in str(standby.value.where)
    submitted()
    with pytest.raises(InvalidInput, match="sealed for another key"):
        start(other)
    assert gpubroker("cancel", "mine", "--yes").code == 0
    start(other)  # nothing is lost
    assert service_key(here) == service_key(other)
    with pytest.raises(InvalidInput), other.store.lead():
        start(here)
    (here.settings.home / KEY_FILE).write_bytes((other.settings.home / KEY_FILE).read_bytes())
    with other.store.lead():
        start(here)


def test_it_opens_for_no_other_job(submitted: Callable[[], JobView], home: Path) -> None:
    first, second = submitted(), submitted()
    assert first.job.seal
    assert second.job.seal
    mine, its = (home / "runs" / seal.pool / "sealed" / f"{seal.id}.json" for seal in (first.job.seal, second.job.seal))
    broker = broker_of(read_settings())
    assert JobSecrets(broker).of(first, NOBODY) == {"TOKEN": "hunter2"}
    mine.write_bytes(its.read_bytes())
    assert JobSecrets(broker).missing(first.job) == ["TOKEN"]
    for torn in (b"", b"{", json.dumps({"boxes": {}}).encode()):
        mine.write_bytes(torn)
        assert JobSecrets(broker).missing(first.job) == ["TOKEN"]


def test_a_refused_job_leaves_none(
    gpubroker: Gpubroker, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "hunter2")
    (tmp_path / "job.yaml").write_text(JOB.replace("cpus: 1", "accelerators: 'H100:8'"))
    assert gpubroker("submit", "job.yaml", "--yes").code != 0
    assert seals(home) == []


@pytest.mark.system
def test_a_retry_seals_anew(
    gpubroker: Gpubroker,
    submitted: Callable[[], JobView],
    reconciled_by: Callable[[ModuleType], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reconciled_by(following)
    view = submitted()
    assert gpubroker("status", "mine", "--wait").code == 0
    assert gpubroker("jobs", "resume", view.id, "--same-files", "--yes").code == 2, "its secrets are gone"
    monkeypatch.setenv("TOKEN", "hunter2")
    assert gpubroker("jobs", "resume", view.id, "--same-files", "--yes").code == 0
    assert gpubroker("logs", "mine").out == "opened\n"
