"""A client that a stock generator makes of the API's description: it submits a job to a real server, follows it to its
end, adds up its bill, and understands a refusal."""

import importlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from tests.program import eventually, kill, processes, run, start
from tests.slurm_cluster import free_ports
from tests.waiting import LONGEST

GENERATOR = os.environ.get("GPUBROKER_OPENAPI_CLIENT") or shutil.which("openapi-python-client")
pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(600),
    pytest.mark.skipif(GENERATOR is None, reason="openapi-python-client is not installed"),
]

JOB = """\
name: generated
team: nlp
resources: {cpus: 1}
constraints: {providers: [sandbox]}
run: echo hello
max_duration: 2h
"""
# Its machines are there at once.
MARKET = """\
name = "ready"
boot_seconds = [0, 0]
max_age_minutes = 100000
minimum_seconds = 60
[behaviours.steady]
machines = [8, 8]
[[zones]]
name = "sandbox-east-a"
region = "sandbox-east"
spot = "steady"
on_demand = "steady"
[[machines]]
instance_type = "sandbox-4cpu"
cpus = 4
memory_gib = 16
on_demand = "0.40"
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A real `gpubroker serve` that runs jobs in the sandbox; its address, and the token of a member."""
    home, (port,) = tmp_path / "home", free_ports(1)
    (tmp_path / "market.toml").write_text(MARKET)
    settings = {
        "GPUBROKER_SERVE__JOBS_HERE": "true",
        "GPUBROKER_PROVIDERS__SANDBOX__SCENARIO": str(tmp_path / "market.toml"),
    }

    def there(*words: str) -> str:
        done = run(*words, home=home, env=settings)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    there("people", "invite", "adam", "--administrator")
    there("people", "invite", "mia")
    there("people", "grant", "mia", "member", "--team", "nlp")
    token = there("tokens", "create", "mia", "--scope", "read", "--scope", "jobs").split()[-1]
    process = start("serve", "--listen", f"127.0.0.1:{port}", home=home, env=settings)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool | None:
        try:
            return httpx.get(f"{url}/healthz", timeout=5).status_code == 200 or None
        except httpx.HTTPError:
            return None

    eventually(answers, "the server answers")
    yield url, token
    process.terminate()
    process.communicate()
    kill(processes(home))


@pytest.fixture
def generated(server: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the package that was generated, without a warning."""
    described, settings = tmp_path / "openapi.json", tmp_path / "settings.yaml"
    described.write_bytes(httpx.get(f"{server[0]}/api/v1/openapi.json", timeout=LONGEST).content)
    settings.write_text("post_hooks: []\n")  # only format the code
    words = ("generate", "--path", described, "--config", settings, "--output-path", tmp_path / "client")
    done = subprocess.run([str(GENERATOR), *words, "--fail-on-warning"], capture_output=True, text=True, check=False)
    assert (done.returncode, "arning" in done.stdout) == (0, False), done.stdout + done.stderr
    monkeypatch.syspath_prepend(tmp_path / "client")
    return "gpubroker_client"


def part(package: str, name: str) -> ModuleType:
    return importlib.import_module(f"{package}.{name}")


def test_a_generated_client_runs_a_job_and_reads_its_bill(server: tuple[str, str], generated: str) -> None:
    url, token = server
    patience = httpx.Timeout(LONGEST)
    client: Any = part(generated, "client").AuthenticatedClient(base_url=url, token=token, timeout=patience)
    models: Any = part(generated, "models")

    def ask(operation: str, *arguments: Any, **options: Any) -> Any:
        return part(generated, f"api.jobs.{operation}").sync_detailed(*arguments, client=client, **options)

    body = models.SubmitJobBody(job_file=JOB)
    sent = ask("submit_job", body=body, idempotency_key="generated-1")
    assert sent.status_code == 201, sent.content
    id = sent.parsed.id
    assert ask("submit_job", body=body, idempotency_key="generated-1").parsed.id == id, "once"

    def ended() -> Any:
        job = ask("show_job", id).parsed
        return job if job.closed else None

    job = eventually(ended, "the job ends")
    assert job.state == "succeeded", job
    lines = ask("job_ledger", id).parsed.entries
    assert sum((Decimal(line.amount) for line in lines), Decimal(0)) == Decimal(job.to_dict()["cost"]["sandbox"]) > 0
    logged = [line.line for line in ask("job_logs", id).parsed.lines]
    assert "hello" in logged

    refused = ask("show_job", "unknown")
    assert isinstance(refused.parsed, models.HttpProblem)
    assert (refused.status_code, refused.parsed.kind) == (404, "unknown_name")
