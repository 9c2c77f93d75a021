"""The program as people run it, in this process: `cli.registries`, the real parser, a home of its own for each test."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cli
from broker.app.jobs import background
from broker.app.service.passes import reconciler
from broker.app.wiring import Broker
from broker.cli.program import asks_for_json, run
from broker.core.actors import Actor
from broker.core.values.clock import SystemClock
from broker.reconciler.loop import Reconciler
from broker.store import Store, open_store
from providers import registry
from tests.cli.documents import check_any, names_of

# No test here may reach a network, nor ask a scheduler that this machine may have.
LOCAL = tuple(name for name in cli.registries().local_providers if name not in {"kubernetes", "slurm"})
OFFLINE = (*LOCAL, "sandbox")

JOB = """\
name: tiny
resources: {cpus: 1}
run: echo hello
work: 1m
max_duration: 10m
checkpoint: {every: 10s, size: 1MB, restart: 1s}
"""

SANDBOX_JOB = """\
name: trial
resources: {accelerators: "L4:1"}
constraints: {providers: [sandbox]}
run: echo hello
work: 2h
max_duration: 6h
checkpoint: {every: 5m, size: 1MB, restart: 2m}
"""

POLICY = """\
version: 1
policy: test
budgets:
  - {name: real, amount: $500, period: month}
  - {name: pretend, amount: $3, period: quarter, counts: [sandbox]}
guardrails:
  - {name: prices, max_price_per_gpu_hour: $3}
"""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture(scope="session")
def ready_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose store is made and filled from the price book, to be copied: making one takes half a second."""
    home = tmp_path_factory.mktemp("ready") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUBROKER_HOME", str(home))
        assert run(["offers", "--json"], cli.registries) == 0
    return home


@pytest.fixture
def home(ready_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This test's home, in force; the working directory is the folder it is in."""
    home = tmp_path / "home"
    shutil.copytree(ready_home, home)
    for name in [name for name in os.environ if name.startswith("GPUBROKER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GPUBROKER_HOME", str(home))
    monkeypatch.setenv("GPUBROKER_ENGINES__LOCAL__REGISTER", str(home / "given"))
    monkeypatch.setenv("GPUBROKER_RECONCILE_EVERY", "0.05")
    monkeypatch.setenv("GPUBROKER_OFFLINE", "true")
    monkeypatch.setenv("COLUMNS", "500")  # a terminal this wide folds nothing
    monkeypatch.setattr(registry, "PROVIDERS", {name: registry.PROVIDERS[name] for name in OFFLINE})
    monkeypatch.chdir(tmp_path)
    return home


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{home / 'gpubroker.db'}", clock=SystemClock())
    yield opened
    opened.close()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The reconcilers that commands would have started; none is."""
    calls: list[object] = []

    def ensure(broker: Broker, **more: object) -> bool:
        calls.append(broker)
        return True

    monkeypatch.setattr(background, "ensure", ensure)
    return calls


Gpubroker = Callable[..., Done]


@pytest.fixture
def gpubroker(home: Path, started: list[object], capfd: pytest.CaptureFixture[str]) -> Gpubroker:
    """``gpubroker("offers", "--json")`` runs that command, ``by`` somebody or by the user of this process; its exit
    code, standard output and standard error. A document that it prints is as its schema says."""

    def command(*arguments: str | Path, by: Actor | None = None) -> Done:
        capfd.readouterr()
        code = run([str(argument) for argument in arguments], cli.registries, by)
        captured = capfd.readouterr()
        done = Done(code, captured.out, captured.err)
        if code == 0 and asks_for_json([str(argument) for argument in arguments]):
            check_any(names_of([str(argument) for argument in arguments]), done.json)
        return done

    return command


@pytest.fixture
def reconciled_by(monkeypatch: pytest.MonkeyPatch, gpubroker: Gpubroker) -> Callable[[ModuleType], None]:
    """Jobs are looked after while that module follows them: by the reconciler itself, in this process, one round a
    look."""

    def by(following: ModuleType) -> None:
        workers: dict[int, Reconciler] = {}

        def ensure(broker: Broker, **more: object) -> bool:
            workers.setdefault(id(broker), reconciler(broker)).tick()
            return False

        monkeypatch.setattr(background, "ensure", ensure)
        monkeypatch.setattr(following, "_REVIVE_EVERY", 1)
        monkeypatch.setattr(following, "_POLL_SECONDS", 0.1)

    return by


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """``write("job.yaml", text)`` makes a file in the working directory."""

    def file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return file


@pytest.fixture
def job(write: Callable[[str, str], Path]) -> Path:
    """A job that this machine can run."""
    return write("job.yaml", JOB)


@pytest.fixture
def sandbox_job(write: Callable[[str, str], Path]) -> Path:
    """A job for simulated capacity."""
    return write("trial.yaml", SANDBOX_JOB)


@pytest.fixture
def policy(gpubroker: Gpubroker, write: Callable[[str, str], Path]) -> Path:
    """A policy with a budget of $500, and one of $3 in pretend money; in force."""
    path = write("policy.yaml", POLICY)
    assert gpubroker("policy", "apply", path).code == 0
    return path
