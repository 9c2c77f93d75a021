"""The built wheel in an empty environment, used from a folder that tries to get in its way; and an editable install."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.program import ROOT, environment

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("wheel")]  # its environments are made once

HEAVY = ("boto3", "botocore", "google.cloud", "azure", "pandas", "torch", "sky", "psycopg")
DECOY = 'raise SystemExit("imported from the working directory")\n'

Installed = Callable[..., subprocess.CompletedProcess[str]]

# A program as a user of the Python interface writes it; it is type-checked, and run where there is no capacity for it.
CLIENT = """
from gpubroker import Client, Job, JobDetails, NoFeasibleCapacity

def train(rate: float) -> dict[str, float]:
    return {"loss": 2 * rate}

job = Job(name="hello", run="true", resources={"accelerators": "H100:8", "infra": "owned"})
with Client() as client:
    print("placements", len(client.plan(job).placements))
    try:
        result: JobDetails = client.submit(job).result()
        loss: dict[str, float] = client.submit(train, 1e-4, resources="H100:8", max_cost="$40").result()
        losses: list[dict[str, float]] = [task.result() for task in client.map(train, [1e-3, 1e-4])]
        print(result.cost_so_far, loss, losses)
    except NoFeasibleCapacity as error:
        print("refused:", error.message)
"""


class Environment(NamedTuple):
    """A virtual environment with gpubroker, and a folder full of decoys."""

    python: Path
    here: Path

    def site_packages(self) -> set[str]:
        """What lies in it that came with gpubroker."""
        (folder,) = self.python.parents[1].glob("lib/python3.*/site-packages")
        (record,) = folder.glob("gpubroker-*.dist-info/RECORD")
        files = [line.rpartition(",")[0].rpartition(",")[0] for line in record.read_text().splitlines()]
        return {name.split("/")[0] for name in files if not name.startswith("..") and ".dist-info" not in name}


def environment_at(base: Path, *install: str | Path) -> Environment:
    """A new environment into which pip has installed that."""
    venv.create(base / "env", with_pip=True)
    python = base / "env" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", *install]
    subprocess.run(pip, check=True, timeout=400)
    here = base / "here"
    for package in ("broker", "providers", "policies"):
        (here / package).mkdir(parents=True)
        (here / package / "__init__.py").write_text(DECOY)
    for module in ("cli", "typer", "psutil", "yaml"):
        (here / f"{module}.py").write_text(DECOY)
    return Environment(python, here)


@pytest.fixture(scope="module")
def wheel_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """One that has the wheel and nothing else."""
    base = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(base / "dist"), str(ROOT)]
    subprocess.run(build, check=True, timeout=300)
    (wheel,) = (base / "dist").glob("gpubroker-*.whl")
    return environment_at(base, wheel)


@pytest.fixture(scope="module")
def editable_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """One that has this checkout; what it depends on is borrowed from the environment that runs the tests."""
    made = environment_at(tmp_path_factory.mktemp("editable"), "--no-deps", "--editable", ROOT)
    (folder,) = made.python.parents[1].glob("lib/python3.*/site-packages")
    (folder / "zz_borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return made


@pytest.fixture(scope="module")
def installed(wheel_environment: Environment) -> Installed:
    """Runs a command of the environment that has the wheel, from its folder full of decoys."""
    return runner(wheel_environment)


def runner(made: Environment) -> Installed:
    def command(program: str, *arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        variables = environment(made.here.parent / "home", **more)
        variables.pop("PYTHONPATH", None)
        variables["PATH"] = os.pathsep.join([str(made.python.parent), "/usr/bin", "/bin"])
        arguments_of = [made.python.parent / program, *arguments]
        return subprocess.run(arguments_of, cwd=made.here, env=variables, capture_output=True, text=True, timeout=240)

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
    heavy = {*HEAVY, "numpy", *(("sqlalchemy", "pydantic", "obstore", "httpx") if arguments == ("--help",) else ())}
    assert sorted(imported & heavy) == []


@pytest.mark.parametrize("how", ["wheel", "editable"])
def test_the_python_interface_works_and_general_names_stay_out_of_site_packages(
    how: str, request: pytest.FixtureRequest
) -> None:
    made: Environment = request.getfixturevalue(f"{how}_environment")
    expected = {"gpubroker", "gpubroker.pth"} if how == "wheel" else {"_gpubroker.pth"}
    assert made.site_packages() == expected
    program = made.here.parent / "client" / "client.py"
    program.parent.mkdir()
    program.write_text(CLIENT)
    answer = runner(made)("python", program)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[0] == "placements 0"
    assert answer.stdout.splitlines()[1].startswith("refused: ")


@pytest.mark.parametrize("how", ["wheel", "editable"])
def test_a_program_that_uses_it_passes_strict_type_checks(how: str, request: pytest.FixtureRequest) -> None:
    made: Environment = request.getfixturevalue(f"{how}_environment")
    folder = made.here.parent / "typed"
    folder.mkdir()
    (folder / "client.py").write_text(CLIENT)
    (folder / "wrong.py").write_text(CLIENT.replace("loss: dict[str, float]", "loss: str"))
    mypy: list[str | Path] = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--python-executable",
        made.python,
        "--cache-dir",
        folder / "c",
    ]
    for name, code in (("client.py", 0), ("wrong.py", 1)):
        checked = subprocess.run([*mypy, name], cwd=folder, capture_output=True, text=True, timeout=400)
        assert checked.returncode == code, checked.stdout + checked.stderr
    assert "Incompatible types in assignment" in checked.stdout


def test_a_file_that_hides_a_part_is_named(installed: Installed, wheel_environment: Environment) -> None:
    answer = installed("python", "-c", "import gpubroker")  # the working folder comes first on the path
    assert answer.returncode == 1
    assert (
        f"ImportError: {wheel_environment.here}/broker/__init__.py hides gpubroker's own part 'broker'" in answer.stderr
    )
