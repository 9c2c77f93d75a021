"""An older version of the program beside a newer one, on one store. The older one is this program without one field of
a job: `FIELD`."""

import json
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from broker.core.events.events import Submitted
from broker.core.extras import own_version
from broker.core.job.jobs import Job, MachineRequest
from broker.core.values.clock import SystemClock
from broker.core.values.money import Money
from broker.store import open_store
from tests.program import eventually, run, start

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

FIELD = "value_of_time"
WITHOUT_FIELD = f"""
from broker.core.job.file.schema import JobFile
from broker.core.job.jobs import Job
for model in (Job, JobFile):
    del model.__pydantic_fields__[{FIELD!r}]
    model.model_rebuild(force=True)
Job.{FIELD} = None
"""
JOB = "name: {name}\nresources: {{cpus: 1+}}\nrun: echo hello\nwork: 1s\nmax_duration: 10m\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home


@pytest.fixture
def older(tmp_path: Path) -> dict[str, str]:
    """The environment in which the program is the older one."""
    folder = tmp_path / "older"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WITHOUT_FIELD)
    return {"PYTHONPATH": str(folder)}


def write(home: Path, name: str, more: str = "") -> str:
    file = home.parent / f"{name}.yaml"
    file.write_text(JOB.format(name=name) + more)
    return str(file)


def show(home: Path, job: str, **env: str) -> dict[str, Any]:
    shown = run("status", job, "--json", home=home, env=env)
    assert shown.returncode == 0, shown.stderr
    document: dict[str, Any] = json.loads(shown.stdout)
    return document


def test_an_older_leader_runs_every_job_that_it_can_read(home: Path, older: dict[str, str]) -> None:
    unknown = run("plan", write(home, "unknown", f"{FIELD}: $5\n"), home=home, env=older)
    assert (unknown.returncode, FIELD in unknown.stderr) == (2, True), "the older one does not know the field"
    leader = start("serve", "--provider", "owned", "--listen", "off", home=home, env=older)
    assert leader.stderr is not None
    eventually(lambda: "reconciling jobs" in (leader.stderr.readline() if leader.stderr else ""), "it leads")
    try:
        refused = run("submit", write(home, "valued", f"{FIELD}: $5\n"), "--yes", "--json", home=home)
        assert refused.returncode == 2
        message = json.loads(refused.stdout)["error"]["message"]
        assert f"does not know {FIELD}; this is gpubroker" in message
        assert message.count(f"gpubroker {own_version()}") == 2, "both versions"
        submitted = run("submit", write(home, "plain"), "--yes", home=home)
        assert submitted.returncode == 0, submitted.stderr
        assert show(home, "plain")["state"] == "succeeded", "by the older leader"

        store = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=SystemClock())
        job = Job(name="valued", run="x", resources=(MachineRequest(cpus=1),), value_of_time=Money.usd("5"))
        body = Submitted(job=job, user=show(home, "plain")["user"], max_duration_seconds=60)
        with store.writing() as tx:  # as under a newer leader, before the older one took over
            tx.append("valued-1", [(None, body)], datetime.now(UTC))
        later = run("submit", write(home, "later"), "--yes", home=home)
        assert later.returncode == 0, later.stderr
        shown = show(home, "valued-1")
        assert (shown["state"], shown["attempts"]) == ("queued", []), "the older leader leaves it alone"
        assert f"which runs the jobs of this store, does not know {FIELD}" in "; ".join(shown["troubles"])
        assert FIELD in "; ".join(show(home, "valued-1", **older)["troubles"])
        canceled = run("cancel", "valued-1", "--yes", home=home, env=older)
        assert canceled.returncode == 0, canceled.stderr
        with store.reading() as reader:
            view = reader.job("valued-1")
        store.close()
        assert view is not None
        assert view.cancel_requested
        assert view.job == job, "the older version wrote back what it does not know"
    finally:
        leader.send_signal(signal.SIGTERM)
        leader.communicate(timeout=60)
