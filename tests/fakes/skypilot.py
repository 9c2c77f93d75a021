"""A fake of SkyPilot's SDK and API server: requests take a moment, and machines are local processes.

It behaves as version 0.14.1 did on a real cluster: a launch is pending, then running; its cluster is INIT until setup
has run; a launch on an existing cluster runs the job there again; after its job, a cluster is ended (as on clouds); a
machine that its cloud took away is listed until a refresh is requested; `down` of a missing cluster fails. A node is a
home folder and the processes with that HOME. Secrets are only in its environment.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import psutil

from broker.engines.skypilot.evidence import CloudStatement, CloudVerdict
from tests.fakes import skypilot_catalogue


class StatusRefreshMode(Enum):
    NONE = "NONE"
    FORCE = "FORCE"


class ClusterStatus(Enum):
    INIT = "INIT"
    UP = "UP"


class ClusterDoesNotExist(ValueError):
    pass


class ResourcesUnavailableError(Exception):
    pass


class RequestCancelled(Exception):
    pass


@dataclass
class FakeSkyTask:
    config: Mapping[str, Any]

    @classmethod
    def from_yaml_config(cls, config: Mapping[str, Any]) -> FakeSkyTask:
        skypilot_catalogue.check(config.get("resources", {}))
        return cls(config)


@dataclass
class FakeSkyRequest:
    """A request with the fields of SkyPilot's payloads."""

    name: str
    cluster_name: str | None
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created_at: float = field(default_factory=time.time)
    status: str = "PENDING"
    value: Any = None
    error: Exception | None = None
    aborted: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)


@dataclass
class FakeSkyCluster:
    name: str
    home: Path
    nodes: int
    launched_at: int = field(default_factory=lambda: int(time.time()))
    status: ClusterStatus = ClusterStatus.INIT
    there: bool = True

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("HOME") == str(self.home):
                    found.append(process)
        return found

    def end(self) -> None:
        """End it like a machine that is switched off."""
        while victims := self.processes():
            for process in victims:
                with suppress(psutil.Error):
                    process.kill()
            time.sleep(0.01)


# The package index that a node would use: obstore as installed here.
_PYTHON = """#!/bin/sh
case "$*" in
  "-m pip --version") echo pip ;;
  "-m pip install "*)
    while [ "$1" != --target ]; do shift; done
    mkdir -p "$2" && cp -r {obstore} "$2/" ;;
  *) exec {python} "$@" ;;
esac
"""


RefreshOfSky = StatusRefreshMode  # in `Sky` an attribute has this name


class Sky:
    """The module `sky`, as far as the engine uses it."""

    Task = FakeSkyTask
    StatusRefreshMode = StatusRefreshMode

    def __init__(self, folder: Path) -> None:
        import obstore

        self._folder = folder
        (folder / "bin").mkdir(parents=True, mode=0o700)
        python = folder / "bin" / "python3"
        python.write_text(_PYTHON.format(obstore=Path(obstore.__file__).parent, python=sys.executable))
        python.chmod(0o700)
        self._lock = threading.RLock()
        self._requests: dict[str, FakeSkyRequest] = {}
        self._clusters: dict[str, FakeSkyCluster] = {}
        self._lost: dict[str, FakeSkyCluster] = {}
        self._ended: dict[str, tuple[int, int]] = {}
        self._taken: set[str] = set()
        self.announced: set[str] = set()
        self.never: set[str] = set()
        self.words_trouble: Exception | None = None
        self.refuse: Exception | None = None
        self.tasks: list[Mapping[str, Any]] = []
        self.status_calls = 0

    def launch(self, task: FakeSkyTask, cluster_name: str, down: bool) -> str:
        assert down, "nobody would take it down"
        print("Running on cluster:", cluster_name)  # to standard output, like SkyPilot's SDK
        self.tasks.append(task.config)
        return self._start("sky.launch", cluster_name, lambda request: self._launch(request, task.config, cluster_name))

    def down(self, cluster_name: str) -> str:
        return self._start("sky.down", cluster_name, lambda _: self._down(cluster_name))

    def status(
        self, names: Sequence[str] | None, refresh: RefreshOfSky = StatusRefreshMode.NONE, all_users: bool = False
    ) -> str:
        assert all_users, "a colleague's clusters would be taken for gone"
        self.status_calls += 1
        return self._start("sky.status", None, lambda _: self._status(names, refresh))

    def cost_report(self, days: int | None = None) -> str:
        assert days, "some old ones would be left out, or all be asked for"
        with self._lock:
            intervals = {**self._ended, **{one.name: (one.launched_at, None) for one in self._clusters.values()}}
        rows = [{"name": name, "usage_intervals": [interval]} for name, interval in intervals.items()]
        return self._start("sky.status", None, lambda _: rows)

    def api_status(
        self, request_ids: Sequence[str] | None = None, cluster_name: str | None = None, all_status: bool = False
    ) -> list[FakeSkyRequest]:
        with self._lock:
            if request_ids is not None:
                return [self._requests[id] for id in request_ids if id in self._requests]
            found = [one for one in self._requests.values() if one.cluster_name == cluster_name]
            return [one for one in found if all_status or not one.done.is_set()]

    def get(self, request_id: str) -> Any:
        request = self._requests[request_id]
        request.done.wait()
        if request.error is not None:
            raise request.error
        return request.value

    def api_cancel(self, request_ids: Sequence[str], silent: bool) -> str:
        for id in request_ids:
            self._requests[id].aborted.set()
        return "cancelled"

    def take_away(self, cluster_name: str) -> None:
        """Take the machines back, as the cloud does."""
        cluster = self._clusters[cluster_name]
        cluster.there = False
        self._taken.add(cluster_name)
        cluster.end()

    def lose(self, cluster_name: str) -> None:
        """Make SkyPilot abandon the cluster without finding a machine to end, while the cloud has it."""
        self._lost[cluster_name] = self._clusters.pop(cluster_name)

    def end_lost(self, cluster_name: str, region: str) -> None:
        if lost := self._lost.pop(cluster_name, None):
            lost.there = False
            lost.end()
            self._ended[cluster_name] = (lost.launched_at, int(time.time()))

    def word(self, cluster_name: str, region: str) -> CloudStatement:
        """The cloud's statement about who ended a cluster's machines."""
        if self.words_trouble is not None:
            raise self.words_trouble
        if cluster_name in self._taken:
            return CloudStatement(CloudVerdict.TAKEN, "the cloud: taken back")
        if cluster_name in self._lost:
            return CloudStatement(CloudVerdict.RUNS, "the cloud: running")
        if cluster_name in self._clusters:
            return CloudStatement(CloudVerdict.ANNOUNCED if cluster_name in self.announced else CloudVerdict.RUNS)
        if cluster_name in self.never or cluster_name not in self._ended:
            return CloudStatement(CloudVerdict.UNKNOWN, "the cloud: no such machine")
        return CloudStatement(CloudVerdict.ASKED_FOR, "the cloud: on request")

    def home(self, cluster_name: str) -> Path:
        """The home folder on the cluster's machines."""
        return self._clusters[cluster_name].home

    def ssh_host(self, cluster_name: str, node: int) -> tuple[list[str], str]:
        """The configuration for OpenSSH's client, as SkyPilot's program writes it; it uses a separate sshd process
        instead of a port.
        """
        assert node == 0, "the others are reached by the same words with another name"
        ssh = self._folder / "ssh"
        ssh.mkdir(exist_ok=True)
        for name in ("host", "login"):
            if not (ssh / name).exists():
                subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh / name)], check=True)
        there = self.home(cluster_name)
        inside = f"cd {there}; HOME={there} PATH={self._folder / 'bin'}:{os.environ['PATH']} exec bash -c"
        (ssh / "sshd").write_text(
            f"HostKey {ssh}/host\nAuthorizedKeysFile {ssh}/login.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
            f'ForceCommand {inside} "$SSH_ORIGINAL_COMMAND"\n'
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        sshd = shutil.which("sshd", path="/usr/sbin:/sbin")
        (ssh / cluster_name).write_text(
            f"Host {cluster_name}\n  HostName 10.0.0.1\n  User {pwd.getpwuid(os.geteuid()).pw_name}\n"
            f"  IdentityFile {ssh}/login\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n"
            f"  UserKnownHostsFile=/dev/null\n  GlobalKnownHostsFile=/dev/null\n"
            f"  ProxyCommand {sshd} -i -f {ssh}/sshd\n"
        )
        return ["-F", str(ssh / cluster_name)], cluster_name

    def forget_requests(self) -> None:
        """Forget all requests, like a newly installed server."""
        self._requests.clear()

    def close(self) -> None:
        for request in list(self._requests.values()):
            request.aborted.set()
        for cluster in [*self._clusters.values(), *self._lost.values()]:
            cluster.end()

    def _start(self, name: str, cluster: str | None, work: Callable[[FakeSkyRequest], Any]) -> str:
        request = FakeSkyRequest(name, cluster)
        with self._lock:
            self._requests[request.request_id] = request

        def run() -> None:
            if name != "sky.status":
                time.sleep(0.02)  # requests are pending for a moment, as real ones are
            request.status = "RUNNING"
            try:
                request.value = work(request)
                request.status = "SUCCEEDED"
            except RequestCancelled as error:
                request.status, request.error = "CANCELLED", error
            except Exception as error:  # noqa: BLE001 (a server keeps whatever a request ended with)
                request.status, request.error = "FAILED", error
            request.done.set()

        threading.Thread(target=run, daemon=True).start()
        return request.request_id

    def _launch(self, request: FakeSkyRequest, config: Mapping[str, Any], name: str) -> None:
        if request.aborted.is_set():
            raise RequestCancelled("cancelled by another process")
        if self.refuse is not None:
            raise self.refuse
        with self._lock:
            cluster = self._clusters.get(name)
            if cluster is None:
                cluster = FakeSkyCluster(
                    name, self._folder / f"{name}-{request.request_id[:8]}", int(config["num_nodes"])
                )
                cluster.home.mkdir(mode=0o700)
                self._clusters[name] = cluster
        for place, source in config["file_mounts"].items():
            target = Path(place.replace("~", str(cluster.home)))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
        self._on_every_node(cluster, config, config["setup"], request)
        if request.aborted.is_set():
            raise RequestCancelled("cancelled by another process")
        cluster.status = ClusterStatus.UP

        def job() -> None:
            with suppress(RequestCancelled):
                self._on_every_node(cluster, config, config["run"], None)
            with suppress(ClusterDoesNotExist):
                if cluster.there:
                    self._down(name)

        threading.Thread(target=job, daemon=True).start()

    def _on_every_node(
        self, cluster: FakeSkyCluster, config: Mapping[str, Any], script: str, request: FakeSkyRequest | None
    ) -> None:
        running = []
        for rank in range(cluster.nodes):
            environment = {
                **config.get("secrets", {}),
                "HOME": str(cluster.home),
                "PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}",
                "SKYPILOT_NODE_RANK": str(rank),
                "SKYPILOT_TASK_ID": f"sky-{cluster.home.name}",
            }
            running.append(
                subprocess.Popen(["bash", "-c", script], env=environment, cwd=cluster.home, start_new_session=True)
            )
        for process in running:
            while process.poll() is None:
                if request is not None and request.aborted.is_set():
                    raise RequestCancelled("cancelled by another process")
                time.sleep(0.01)
            if request is not None and process.returncode:
                raise RuntimeError(f"setup: {shlex.quote(script)[:60]} exit code {process.returncode}")

    def _down(self, name: str) -> None:
        with self._lock:
            cluster = self._clusters.get(name)
        if cluster is None:
            raise ClusterDoesNotExist(f"Cluster {name!r} does not exist.")
        cluster.end()
        with self._lock:
            self._remove(name)

    def _remove(self, name: str) -> None:
        """Remove a cluster. SkyPilot records as its end the time when it noticed it."""
        cluster = self._clusters.pop(name, None)
        if cluster is not None:
            self._ended[name] = (cluster.launched_at, int(time.time()))

    def _status(self, names: Sequence[str] | None, refresh: RefreshOfSky) -> list[dict[str, Any]]:
        with self._lock:
            if refresh is StatusRefreshMode.FORCE:
                for name in [name for name, one in self._clusters.items() if not one.there]:
                    self._remove(name)
            return [
                {"name": one.name, "status": one.status, "launched_at": one.launched_at, "init_status_reason": None}
                for one in self._clusters.values()
                if names is None or one.name in names
            ]
