"""The built wheel in an empty environment, used from a folder that tries to get in its way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable

import pytest

from tests.program import ROOT, environment

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

HEAVY = ("boto3", "botocore", "google.cloud", "azure", "pandas", "numpy", "torch", "sky", "psycopg")
DECOY = 'raise SystemExit("imported from the working directory")\n'

Installed = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Runs a command of the environment that has the wheel and nothing else, from a folder full of decoys."""
    base = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(base / "dist"), str(ROOT)]
    subprocess.run(build, check=True, timeout=300)
    (wheel,) = (base / "dist").glob("gpubroker-*.whl")
    venv.create(base / "env", with_pip=True)
    python = base / "env" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel]
    subprocess.run(pip, check=True, timeout=400)
    here = base / "here"
    for package in ("broker", "providers", "policies"):
        (here / package).mkdir(parents=True)
        (here / package / "__init__.py").write_text(DECOY)
    for module in ("cli", "typer", "psutil", "yaml"):
        (here / f"{module}.py").write_text(DECOY)

    def command(program: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        variables = environment(base / "home", **more)
        variables.pop("PYTHONPATH", None)
        variables["PATH"] = os.pathsep.join([str(python.parent), "/usr/bin", "/bin"])
        return subprocess.run(
            [python.parent / program, *arguments], cwd=here, env=variables, capture_output=True, text=True, timeout=240
        )

    return command


def test_the_commands_are_there_and_answer(installed: Installed) -> None:
    for program in ("gpubroker", "gpubroker-agent"):
        answer = installed(program, "--help")
        assert answer.returncode == 0, answer.stderr
        assert "sage" in answer.stdout


def test_offers_come_from_the_price_book(installed: Installed) -> None:
    answer = installed("gpubroker", "offers", "--json")
    assert answer.returncode == 0, answer.stderr
    assert {"aws", "gcp"} <= {offer["provider"] for offer in json.loads(answer.stdout)["offers"]}


def test_the_demo_runs_where_nothing_but_the_wheel_is(installed: Installed) -> None:
    answer = installed("gpubroker", "demo", "--json")
    assert answer.returncode == 0, answer.stderr
    document = json.loads(answer.stdout)
    assert document["job_state"] == "succeeded"
    assert document["ledger_balanced"] is True


def test_the_base_install_is_light(installed: Installed) -> None:
    probe = f"import importlib.util as u; print([m for m in {HEAVY!r} if u.find_spec(m.partition('.')[0])])"
    assert installed("python", "-P", "-c", probe).stdout.strip() == "[]"


@pytest.mark.parametrize("arguments", [("--help",), ("offers",), ("plan", "--help")])
def test_no_command_imports_what_is_heavy(installed: Installed, arguments: tuple[str, ...]) -> None:
    answer = installed("python", "-P", "-X", "importtime", "-m", "cli", *arguments)
    assert answer.returncode == 0, answer.stderr[-2000:]
    imported = {
        line.rpartition("|")[2].strip() for line in answer.stderr.splitlines() if line.startswith("import time")
    }
    assert "typer" in imported
    heavy = {*HEAVY, *(("sqlalchemy", "pydantic", "obstore", "httpx") if arguments == ("--help",) else ())}
    assert sorted(imported & heavy) == []
