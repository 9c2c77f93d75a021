"""A real Slurm cluster on this machine: munged, slurmctld, and a slurmd for each simulated node, on free ports.

Two nodes with two simulated H100s each (device nodes are files: nothing computes on them) and partitions over them:
jobs of `urgent` preempt jobs of `gpu` at once, and jobs of `patient` after a grace period. Needs the Debian packages
munge and slurm-wlm, and root.
"""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

NODES = ("one", "two")
GPUS_A_NODE = 2
PARTITIONS = 3
DAEMONS = ("munged", "slurmctld", "slurmd")

_CONF = """
ClusterName=loop
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=100000,sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=300
KillWait=10
MinJobAge=300
SlurmdParameters=config_overrides
GresTypes=gpu
{nodes}
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=patient Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=5
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def missing() -> str:
    """The requirements of a cluster that this machine lacks; empty if it has all."""
    lacking = [name for name in DAEMONS if shutil.which(name, path=_PATH) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)} (Debian packages munge and slurm-wlm)"
    return "" if os.geteuid() == 0 else "the daemons of a Slurm of its own need root"


_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


@dataclass
class SlurmCluster:
    """A running cluster. ``environment``: the variables with which the Slurm commands find it."""

    folder: Path
    daemons: dict[str, subprocess.Popen[bytes]]
    nodes: int = len(NODES)

    @property
    def environment(self) -> Mapping[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": _PATH}

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def stop(self, name: str) -> None:
        """End a daemon."""
        self.daemons[name].terminate()
        self.daemons.pop(name).wait(240)

    def start(self, name: str, *command: str) -> None:
        """Start a daemon (again): ``slurmctld``, or ``slurmd-NODE``."""
        if not command:
            command = (
                ("slurmctld", "-D") if name == "slurmctld" else ("slurmd", "-D", "-N", name.removeprefix("slurmd-"))
            )
        with (self.folder / f"{name}.out").open("ab") as said:
            self.daemons[name] = subprocess.Popen(
                command, env={**os.environ, **self.environment}, stdout=said, stderr=said, start_new_session=True
            )

    def until(self, look: Callable[[], bool], what: str) -> None:
        """Wait until ``look`` returns true."""
        _eventually(look, what, self.folder)

    def ready(self) -> bool:
        """Whether every node accepts jobs."""
        done = subprocess.run(
            ["sinfo", "-h", "-N", "-o", "%T"],
            env={**os.environ, **self.environment}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout.split() == ["idle"] * PARTITIONS * self.nodes


@contextmanager
def own_cluster() -> Iterator[SlurmCluster]:
    """A cluster in a temporary folder. Skips the test if the machine lacks a requirement."""
    import pytest  # programs import the rest of this file, too

    if lacking := missing():
        pytest.skip(lacking)
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o711)
    with running_cluster(folder) as cluster:
        yield cluster
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_cluster(
    folder: Path, nodes: Sequence[str] = NODES, more: str = "", shards: int = 0, sliced: str = ""
) -> Iterator[SlurmCluster]:
    """Run a cluster in that folder (short and private, as munge requires), and end it with all its jobs.

    ``more``: lines of slurm.conf. ``shards``: of each card; ``sliced``: a node whose GPUs are MIG slices, without
    shards.
    """
    ports = free_ports(1 + len(nodes))
    (folder / "state").mkdir(parents=True)
    (folder / "munge").mkdir(mode=0o711)
    lines = []
    for node, port in zip(nodes, ports[1:], strict=True):
        (folder / f"spool-{node}").mkdir()
        address = f"NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={port}"
        number = shards * GPUS_A_NODE if node != sliced else 0
        has = f"gpu:{_kind(node, sliced)}:{GPUS_A_NODE}" + (f",shard:{number}" if number else "")
        lines.append(f"NodeName={node} {address} CPUs=8 RealMemory=8000 Gres={has} State=UNKNOWN")
    gres = []
    for node in nodes:
        for index in range(GPUS_A_NODE):
            device = folder / f"{node}-gpu{index}"
            if shards:  # from a file, Slurm numbers no device for CUDA
                os.mknod(device, 0o20666, os.makedev(1, 3))
            else:
                device.touch()
            gres.append(f"NodeName={node} Name=gpu Type={_kind(node, sliced)} File={device}")
        if shards and node != sliced:
            gres.append(f"NodeName={node} Name=shard Count={shards * GPUS_A_NODE}")
    conf = _CONF.format(host=socket.gethostname(), port=ports[0], folder=folder, nodes="\n".join(lines))
    conf = conf.replace("GresTypes=gpu", "GresTypes=gpu,shard") if shards else conf
    (folder / "slurm.conf").write_text(conf + more)
    (folder / "gres.conf").write_text("\n".join(gres) + "\n")
    key = folder / "munge" / "key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    cluster = SlurmCluster(folder, {}, len(nodes))
    own = [f"--{what}={folder}/munge/{file}" for what, file in _MUNGE.items()]
    try:
        cluster.start("munged", "munged", "--foreground", "--force", *own)
        _eventually(lambda: (folder / "munge" / "socket").exists(), "munged listens", folder)
        cluster.start("slurmctld")
        for node in nodes:
            cluster.start(f"slurmd-{node}")
        _eventually(cluster.ready, "the nodes are idle", folder)
        yield cluster
    finally:
        with suppress(subprocess.TimeoutExpired):
            if "slurmctld" in cluster.daemons:
                _cancel_all(cluster)
        for daemon in reversed(list(cluster.daemons.values())):
            daemon.kill()
            daemon.wait(240)
        _end_steps(folder)


def _kind(node: str, sliced: str) -> str:
    return "h100_1g.10gb" if node == sliced else "h100"


def _cancel_all(cluster: SlurmCluster) -> None:
    """Cancel the jobs of all users; those that do not end within Slurm's own time are left to `_end_steps`."""
    variables = {**os.environ, **cluster.environment}

    def said(*command: str) -> str:
        done = subprocess.run(command, env=variables, check=False, capture_output=True, text=True, timeout=240)
        return done.stdout

    deadline = time.monotonic() + 15
    while (jobs := said("squeue", "--noheader", "--format=%A").split()) and time.monotonic() < deadline:
        said("scancel", "--quiet", *jobs)
        time.sleep(0.5)  # real daemons end them, and only the queue shows it


def _end_steps(folder: Path) -> None:
    """End Slurm's supervising processes (slurmstepd) and their jobs: they survive the daemons.

    Each has its node's log file open.
    """
    for process in psutil.process_iter(["name"]):
        with suppress(psutil.Error):
            if process.info["name"] != "slurmstepd":
                continue
            if any(Path(file.path).is_relative_to(folder) for file in process.open_files()):
                for one in (*process.children(recursive=True), process):
                    with suppress(psutil.Error):
                        one.kill()


_MUNGE = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed", "log-file": "log"}


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _eventually(look: Callable[[], bool], what: str, folder: Path) -> None:
    deadline = time.monotonic() + 60
    while not look():
        if time.monotonic() > deadline:
            said = "\n".join(path.read_text(errors="replace")[-1500:] for path in folder.glob("*.out"))
            raise AssertionError(f"{what}: not within a minute\n{said}")
        time.sleep(0.1)
