"""A server as a job on this machine: its tokens are counted, and what they cost is what the job cost. The server is a
stand-in that counts as vLLM does (`tests/serving_engine.py`)."""

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.program import ROOT, counted, eventually, run
from tests.slurm_cluster import free_ports
from tests.system.conftest import WEAR

pytestmark = pytest.mark.system


def answer(home: Path, *arguments: str) -> Any:
    done = run(*arguments, "--json", home=home, env=WEAR)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def submit(home: Path, folder: Path, name: str, command: str, port: int) -> str:
    file = folder / f"{name}.yaml"
    file.write_text(
        f"name: {name}\nworkload: inference\nserving_ports: {port}\nmax_duration: 1h\nresources: {{cpus: 1}}\n"
        f"run: {command}\n"
    )
    done = run("submit", str(file), "--yes", "--detach", "--json", home=home, env=WEAR)
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["id"])


def post(port: int, path: str) -> bool:
    try:
        return bool(urlopen(Request(f"http://127.0.0.1:{port}{path}", method="POST"), timeout=60).status == 200)
    except OSError:
        return False


def test_the_tokens_of_a_server_cost_what_its_job_cost(tmp_path: Path) -> None:
    home, (port,) = tmp_path / "home", free_ports(1)
    command = f"{sys.executable} {ROOT / 'tests' / 'serving_engine.py'} {port}"
    serving = submit(home, tmp_path, "serving", f"exec {command} Qwen3-32B", port)
    eventually(lambda: post(port, "/serve?input=9000&cached=2500&output=600"), "the server answers")
    late = submit(home, tmp_path, "late", "'true'", port)
    eventually(counted(home, "job_closed"), "the job whose port is taken has ended")
    assert (
        f"port {port}: another program used it before the job began" in run("status", late, home=home, env=WEAR).stdout
    )
    post(port, "/running?requests=1")
    assert run("cancel", serving, "--yes", home=home, env=WEAR).returncode == 0
    eventually(counted(home, "job_closed", 2), "the server's job is closed")
    status = run("status", serving, home=home, env=WEAR).stdout
    assert "served 9,000 tokens in and 600 out" in status
    served = {row["model"]: row for row in answer(home, "report", "units", "--period", "month")["served"]}
    row = served["Qwen3-32B"]
    assert (row["input"], row["cached"], row["output"]) == (9000, 2500, 600)
    spent = {entry["group"]: entry for entry in answer(home, "report", "spend", "--by", "job")["rows"]}
    assert Decimal(row["cost"]) == Decimal(spent[serving]["amortised"]) + Decimal(spent[serving]["cash"]) > 0
    assert Decimal(row["cost"]) == sum(Decimal(row[f"{part}_cost"]) for part in ("input", "output", "idle"))
    assert row["by_weights"] is False
