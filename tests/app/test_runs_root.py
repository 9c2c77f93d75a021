"""The run folders of a store's jobs lie in one place: another one is refused before anything is stored or held."""

import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from broker.agent.store import ObjectFolder
from broker.app.jobs import background
from broker.app.jobs.job_files import run_folder_url
from broker.app.jobs.jobs import cancel
from broker.app.jobs.retention import prune
from broker.app.jobs.submit import submit
from broker.app.runs_root import claim, root
from broker.app.service.passes import reconciler
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from tests.actors import ANN, BOB


def asked(broker: Broker, name: str) -> JobView:
    text = f"name: {name}\nrun: 'true'\nresources: {{cpus: 1}}\nmax_duration: 1h\n"
    return submit(broker, parse_job(text, file="job.yaml", now=broker.clock.now()), by=ANN)


@pytest.fixture
def elsewhere(new_broker: Callable[[], Broker], tmp_path: Path) -> Broker:
    """The same store, by a process whose settings name another place."""
    broker = new_broker()
    broker.settings.runs = (tmp_path / "elsewhere").as_uri()
    return broker


def test_another_place_is_refused_while_a_job_is_open(broker: Broker, elsewhere: Broker) -> None:
    first = asked(broker, "first")
    with pytest.raises(InvalidInput) as caught:
        asked(elsewhere, "second")
    assert broker.settings.runs_url in str(caught.value)
    assert first.id in str(caught.value)
    assert f"set GPUBROKER_RUNS={broker.settings.runs_url}" in caught.value.hint
    with broker.store.reading() as look:
        assert [view.id for view in look.jobs()] == [first.id]
    asked(broker, "second")


def test_another_place_is_fine_once_nobody_looks_at_the_first(broker: Broker, elsewhere: Broker) -> None:
    cancel(broker, asked(broker, "first"), by=ANN)
    worker = reconciler(broker)
    while background.has_work_left(broker):
        worker.tick()
    with broker.store.lead() as leading:
        assert leading
        with pytest.raises(InvalidInput, match="background process that uses that place still runs"):
            asked(elsewhere, "second")
    asked(elsewhere, "second")
    with pytest.raises(InvalidInput, match="jobs that have not ended"):
        asked(broker, "third")


def test_who_names_no_place_goes_with_the_one_there_is(broker: Broker, elsewhere: Broker, tmp_path: Path) -> None:
    asked(broker, "first")
    elsewhere.settings.runs, elsewhere.settings.home = None, tmp_path / "home"
    asked(elsewhere, "second")
    assert root(elsewhere) == broker.settings.runs_url
    with pytest.raises(InvalidInput, match="jobs that have not ended"):
        claim(elsewhere)  # as a service that would look for them in its own place


def test_one_folder_under_two_names_is_one_place(broker: Broker, elsewhere: Broker, tmp_path: Path) -> None:
    asked(broker, "first")
    (tmp_path / "link").symlink_to(tmp_path)
    elsewhere.settings.runs = (tmp_path / "link" / "runs").as_uri() + "/"
    asked(elsewhere, "second")


def test_a_reconciler_looks_where_the_jobs_are_whoever_starts_it(
    broker: Broker, elsewhere: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(broker, "first")
    started: list[dict[str, str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *_, env, **__: started.append(env))
    assert background.ensure(elsewhere)
    assert started[0]["GPUBROKER_RUNS"] == broker.settings.runs_url


@pytest.fixture
def silent(new_broker: Callable[[], Broker]) -> Broker:
    """The same store, by a process whose settings name no place."""
    broker = new_broker()
    broker.settings.runs = None
    return broker


def test_where_the_settings_name_no_place_run_folders_are_those_of_the_store(silent: Broker, elsewhere: Broker) -> None:
    view = asked(elsewhere, "first")
    assert run_folder_url(silent, view) == f"{elsewhere.settings.runs}/{view.id}"
    silent.settings.home.joinpath("runs").write_text("no folder: a submission must not check for room here")
    asked(silent, "second")


def test_checkpoints_are_pruned_where_the_jobs_of_the_store_have_them(silent: Broker, elsewhere: Broker) -> None:
    view = asked(elsewhere, "first")
    cancel(elsewhere, view, by=ANN)
    worker = reconciler(elsewhere)
    while background.has_work_left(elsewhere):
        worker.tick()
    ObjectFolder.open(f"{elsewhere.settings.runs}/{view.id}").write(
        "checkpoints/0001-000000000001-step-1/rank-0/model.bin", b"x"
    )
    (pruned,) = prune(silent, silent.clock.now() + timedelta(hours=1), {}, by=ANN, newest_too=True)
    assert [one.id for one in pruned.gone] == ["0001-000000000001-step-1"]


def test_checkpoints_of_the_tasks_of_arrays_are_pruned(broker: Broker) -> None:
    text = "name: many\nrun: 'true'\nresources: {cpus: 1}\nmax_duration: 1h\narray: {range: 2}\n"
    array = submit(broker, parse_job(text, file="job.yaml", now=broker.clock.now()), by=ANN)
    worker = reconciler(broker)
    while not (tasks := of_arrays(broker)):
        worker.tick()
    cancel(broker, array, by=ANN)
    while background.has_work_left(broker):
        worker.tick()
    name = "checkpoints/0001-000000000001-step-1/rank-0/model.bin"
    ObjectFolder.open(f"{broker.settings.runs}/{tasks[0].id}").write(name, b"x")
    assert prune(broker, broker.clock.now() + timedelta(hours=1), {}, by=BOB, newest_too=True) == []
    (pruned,) = prune(broker, broker.clock.now() + timedelta(hours=1), {}, by=ANN, newest_too=True)
    assert pruned.view.id == tasks[0].id


def of_arrays(broker: Broker) -> list[JobView]:
    with broker.store.reading() as look:
        return [view for view in look.jobs(with_tasks=True) if view.job.task is not None]
