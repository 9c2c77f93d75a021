"""Two people with two folders and two tokens, and no access to the server's store: they submit code with secrets to one
server before a real Slurm, one approves the other's jobs at the page, and neither does what they may not."""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.program import eventually, kill, processes, run, start
from tests.server.page.browsing import FormFields
from tests.slurm_cluster import SlurmCluster, free_ports
from tests.system.conftest import RunBucket

pytestmark = [pytest.mark.system, pytest.mark.timeout(600), pytest.mark.xdist_group("slurm")]

POLICY = """\
version: 1
policy: company
budgets:
  - {name: nlp, amount: $100, period: month, scope: {team: [nlp]}}
guardrails:
  - {name: asks, max_job_duration: 1m, action: ask, approvers: [ann]}
"""
JOB = """\
name: NAME
team: nlp
resources: {cpus: 1}
constraints: {providers: [slurm]}
workdir: .
run: python3 code.py
secrets: {API_KEY: null}
max_duration: 30m
"""
CODE = """\
import hashlib, os, pathlib
digest = hashlib.sha256(os.environ["API_KEY"].encode()).hexdigest()
(pathlib.Path(os.environ["GPUBROKER_OUTPUT_DIR"]) / "answer.txt").write_text(f"WHOSE {digest}")
"""


class OwnMachine:
    """A person's machine: a folder, a token, a secret, and the address of the server."""

    def __init__(self, name: str, folder: Path, url: str, token: str, secret: str) -> None:
        self.name, self.secret, self.folder = name, secret, folder / name
        self.folder.mkdir()
        (self.folder / "code.py").write_text(CODE.replace("WHOSE", name))
        (self.folder / "job.yaml").write_text(JOB.replace("NAME", f"{name}s"))
        self._variables = {"GPUBROKER_SERVER": url, "GPUBROKER_TOKEN": token, "API_KEY": secret}

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run(*words, home=self.folder / "home", cwd=self.folder, timeout=120, env=self._variables)

    def submit(self) -> str:
        """The id of a job that waits for an approval."""
        done = self("submit", "job.yaml", "--yes", "--detach", "--json")
        assert done.returncode == 6, done.stdout + done.stderr
        return str(json.loads(done.stdout)["id"])

    def ended(self, id: str) -> dict[str, Any]:
        """The job, once it is closed."""
        return eventually(lambda: one if (one := self.job(id))["closed"] else None, f"{id} ends", 240)

    def job(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("status", id, "--json").stdout)
        return found


@pytest.fixture
def server(cluster: SlurmCluster, run_bucket: RunBucket, tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A real `gpubroker serve` with three people; its address and their tokens. It starts jobs on Slurm."""
    home, (port,) = tmp_path / "server" / "home", free_ports(1)
    home.parent.mkdir()
    (home.parent / "policy.yaml").write_text(POLICY)
    settings = {
        **run_bucket.variables,
        **cluster.environment,
        "GPUBROKER_RUNS": "s3://runs/jobs",
        "PATH": f"{cluster.environment['PATH']}:{os.environ['PATH']}",
        "GPUBROKER_PROVIDERS__SLURM__PRICE_PER_CPU_NODE_HOUR": "3.6",
        "GPUBROKER_PROVIDERS__SLURM__PARTITIONS": "gpu",
        "GPUBROKER_ENGINES__SLURM__ENVIRONMENT": " ".join(run_bucket.variables),
    }

    def there(*words: str) -> str:
        done = run(*words, home=home, timeout=120, env=settings)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    there("people", "invite", "adam", "--administrator")
    tokens = {}
    for name, team, role in (("ann", "nlp", "approver"), ("bob", "nlp", "member"), ("eve", "vision", "member")):
        there("people", "invite", name)
        there("people", "grant", name, role, "--team", team)
        scopes = ("--scope", "read", "--scope", "jobs", "--scope", "approvals")
        tokens[name] = there("tokens", "create", name, *scopes).split()[-1]
    there("policy", "apply", str(home.parent / "policy.yaml"), "--yes")
    there("prices", "poll", "--provider", "slurm")
    process = start("serve", "--listen", f"127.0.0.1:{port}", home=home, env=settings)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool | None:
        try:
            return httpx.get(f"{url}/healthz", timeout=5).status_code == 200 or None
        except httpx.HTTPError:
            return None

    eventually(answers, "the server answers")
    yield url, tokens
    process.terminate()
    process.communicate(timeout=60)
    kill(processes(home))


def test_two_people_share_a_server_and_not_their_rights(
    server: tuple[str, dict[str, str]], run_bucket: RunBucket, tmp_path: Path
) -> None:
    url, tokens = server
    ann, bob, eve = (
        OwnMachine(name, tmp_path, url, tokens[name], f"secret-of-{name}-{os.urandom(8).hex()}")
        for name in ("ann", "bob", "eve")
    )
    bobs, anns = bob.submit(), ann.submit()

    assert ann("approvals", "grant", anns).returncode == 3, "nobody approves their own"
    assert bob("cancel", anns).returncode == 3
    assert bob("approvals", "grant", bobs).returncode == 3, "bob is no approver"
    for command in (("status",), ("logs",), ("jobs", "get"), ("cancel",)):
        assert eve(*command, bobs).returncode == 2, "another team's job is not there"
    assert eve("submit", "job.yaml", "--yes", "--detach").returncode == 3, "nor is its budget"
    assert bobs not in eve("jobs", "list", "--json").stdout

    approve_at_the_page(url, tokens["ann"], bobs)
    ended = bob.ended(bobs)
    assert ended["state"] == "succeeded", ended
    assert bob("jobs", "get", bobs, "--to", "results").returncode == 0
    digest = hashlib.sha256(bob.secret.encode()).hexdigest()
    assert (bob.folder / "results" / "answer.txt").read_text() == f"bob {digest}"
    assert ann.job(anns)["state"] == "awaiting_approval", "hers still waits"
    for secret in (ann.secret, bob.secret):
        assert not files_with(tmp_path / "server", secret), "no secret lies there in the clear"
        assert not run_bucket.holding(secret), "nor among the run folders"
    assert not (bob.folder / "home" / "gpubroker.db").exists(), "nor has anybody else a store"


def approve_at_the_page(url: str, token: str, id: str) -> None:
    with httpx.Client(base_url=url, headers={"Origin": url}) as browser:
        assert browser.post("/sign-in", data={"token": token}).status_code == 303
        form = FormFields(browser.get("/approvals").text).forms[f"/approvals/{id}/grant"]
        assert browser.post(f"/approvals/{id}/grant", data=form).status_code == 303


def files_with(folder: Path, text: str) -> list[Path]:
    """The files that contain it."""
    files = [file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    return [file for file in files if text.encode() in file.read_bytes()]
