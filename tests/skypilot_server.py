"""A real SkyPilot API server on this machine, whose cloud is a real Slurm (`tests.slurm_cluster`) reached over SSH.

Everything is in a scratch folder and on free ports: an sshd on loopback with a separate login user (SkyPilot's nodes
must not be root), a home for SkyPilot. Nothing of SkyPilot is patched. The programs that it downloads to a node with
curl (uv, and with that a Python 3.10) are put first on that user's PATH instead: a uv from the package index, and this
machine's Python. Needs root, the Debian packages openssh-server, rsync and socat, and the extra `skypilot`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import psutil

from tests.slurm_cluster import SlurmCluster, free_ports
from tests.slurm_cluster import missing as slurm_missing

USER = "gpubroker-node"
PROGRAMS = ("sshd", "ssh-keygen", "rsync", "socat", "curl")
# Folders with a Python that every user may run; SkyPilot's own environment on the nodes is made from it.
_PYTHONS = "/usr/local/bin:/usr/bin"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"  # a private package index may need them

_SSHD = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/ssh/host
AuthorizedKeysFile {folder}/ssh/login.pub
PidFile none
PasswordAuthentication no
PubkeyAuthentication yes
UsePAM no
StrictModes no
Subsystem sftp internal-sftp
AllowUsers {user}
MaxSessions 100
MaxStartups 100
SetEnv PATH={folder}/shims:{path}
"""
_LOGIN = """
Host {cluster}
    HostName 127.0.0.1
    Port {port}
    User {user}
    IdentityFile {folder}/ssh/login
    IdentitiesOnly yes
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
"""
# SkyPilot would download its catalogue of clouds; a cluster needs no more of it than this.
_CATALOGUE = {
    "accelerators.csv": "AcceleratorName,Clouds\nH100,\"['AWS']\"\n",
    "metadata.csv": "GPU,MemoryGB\nH100,80\n",
}
_PROFILE = """
export PATH="{folder}/shims:{path}"
export SLURM_CONF="{slurm}/slurm.conf"
"""
_CURL = """#!/bin/bash
case "$*" in
  *astral.sh/uv*) echo 'mkdir -p "$UV_INSTALL_DIR" && cp {folder}/shims/uv "$UV_INSTALL_DIR/uv"' ;;
  *) exec {curl} "$@" ;;
esac
"""
_UV = """#!/bin/bash
given=()
for one in "$@"; do [ "$one" = 3.10 ] && one={python}; given+=("$one"); done
export UV_CACHE_DIR={folder}/uv-cache UV_PYTHON_DOWNLOADS=never
[ -f {certificates} ] && export SSL_CERT_FILE={certificates}
exec {folder}/uv/bin/uv "${{given[@]}}"
"""


def missing() -> str:
    """The requirements of a server that this machine lacks; empty if it has all."""
    if find_spec("sky") is None:
        return "extra `skypilot` is not installed"
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
    lacking = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    lacking += [] if shutil.which("python3", path=_PYTHONS) else [f"python3 in {_PYTHONS}"]
    if lacking:
        return f"not installed: {', '.join(lacking)} (Debian packages openssh-server, rsync, socat and curl)"
    return slurm_missing()


@dataclass
class SkyServer:
    """A running server.

    ``environment``: the variables, including HOME, that a client needs to use this server and no other.
    """

    folder: Path
    environment: Mapping[str, str]
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, name: str, *command: str, **more: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as said:
            environment = {**os.environ, **self.environment, **more}
            process = subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True)
        self.daemons.append(process)

    def start_api(self, port: int, metrics_port: int) -> None:
        """Start the API server, and wait until it answers."""
        ports = [f"--port={port}", f"--metrics-port={metrics_port}"]
        self.start("skypilot", sys.executable, "-m", "sky.server.server", *ports, IS_SKYPILOT_SERVER="true")

        def up() -> bool:
            assert self.daemons[-1].poll() is None, f"SkyPilot's API server ended: {self.last_words()}"
            return _answers(port)

        _eventually(up, "SkyPilot's API server answers", self)

    def end(self) -> None:
        """Kill every daemon with all its child processes."""
        for daemon in reversed(self.daemons):
            _kill_all(daemon)

    def sky(self, *command: str) -> str:
        """Run a command of SkyPilot; returns its output."""
        done = subprocess.run(
            [Path(sys.executable).with_name("sky"), *command],
            env={**os.environ, **self.environment, "NO_COLOR": "1", "COLUMNS": "200"},
            capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, f"sky {command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def last_words(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in self.folder.glob("*.out"))


def api_ports() -> tuple[int, int]:
    """Free ports for an API server and for its metrics.

    The server takes a third one, for its queue, computed from the first (sky/server/requests/queues/mp_queue.py of
    SkyPilot 0.14).
    """
    while True:
        port, metrics_port = free_ports(2)
        with socket.socket() as queue, suppress(OSError):
            queue.bind(("127.0.0.1", 50000 + (11 + port - 46580) % 10000))
            return port, metrics_port


def address(port: int) -> dict[str, str]:
    """The variables with which a client finds a server on this machine at that port."""
    return {
        "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
        "SKYPILOT_API_SERVER_LOCAL_PORT": str(port),
        "SKYPILOT_API_SERVER_ENDPOINT": f"http://127.0.0.1:{port}",
    }


@contextmanager
def running_server(folder: Path, cluster: SlurmCluster) -> Iterator[SkyServer]:
    """Run a server in that folder (which all users may enter), with that cluster; at the end, kill it with all its
    child processes.
    """
    (ssh_port,) = free_ports(1)
    home = folder / "home"
    for name in ("shims", "ssh", "home/.slurm", "home/.sky/catalogs/v8/common", "node", "uv-cache"):
        (folder / name).mkdir(parents=True)
    path = cluster.environment["PATH"]
    words = {"folder": folder, "port": ssh_port, "user": USER, "path": path, "slurm": cluster.folder}
    words |= {"cluster": "loop", "python": shutil.which("python3", path=_PYTHONS), "curl": shutil.which("curl")}
    words |= {"certificates": _CERTIFICATES}
    for shim, text in (("curl", _CURL), ("uv", _UV)):
        (folder / "shims" / shim).write_text(text.format(**words))
        (folder / "shims" / shim).chmod(0o755)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder / "uv"), "uv"]
    subprocess.run(install, check=True, timeout=240)
    for key in ("host", "login"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "ssh" / key], check=True)
    (folder / "ssh" / "sshd_config").write_text(_SSHD.format(**words))
    (home / ".slurm" / "config").write_text(_LOGIN.format(**words))
    for name, text in _CATALOGUE.items():
        (home / ".sky" / "catalogs" / "v8" / "common" / name).write_text(text)
    index = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in package_index().items())
    for name in (".bash_profile", ".bashrc"):
        (folder / "node" / name).write_text(_PROFILE.format(**words) + index)
        (folder / "node" / name).chmod(0o600)
    sky_port, metrics_port = api_ports()  # at the last moment: they are free now
    server = SkyServer(folder, {"HOME": str(home), "PATH": path, **address(sky_port)})
    _remove_user(server)  # an earlier run that was killed left its user
    subprocess.run(
        ["useradd", "--home-dir", folder / "node", "--shell", "/bin/bash", "--password", "*", USER], check=True
    )
    try:
        subprocess.run(["chown", "-R", f"{USER}:", folder / "node", folder / "uv-cache"], check=True)
        Path("/run/sshd").mkdir(exist_ok=True)
        sshd = shutil.which("sshd", path=path)
        assert sshd is not None
        server.start("sshd", sshd, "-D", "-e", "-f", str(folder / "ssh" / "sshd_config"))
        server.start_api(sky_port, metrics_port)
        yield server
    finally:
        server.end()
        _remove_user(server)


def package_index() -> dict[str, str]:
    """The package index of this user's pip, as variables for another user's pip and uv; empty if it is the default."""
    said = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True, check=False
    )
    url = os.environ.get("PIP_INDEX_URL") or said.stdout.strip()
    return {"PIP_INDEX_URL": url, "UV_DEFAULT_INDEX": url} if url else {}


def _answers(port: int) -> bool:
    import httpx

    try:
        return httpx.get(f"http://127.0.0.1:{port}/api/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def _remove_user(server: SkyServer) -> None:
    """Delete the login user and kill all its processes."""
    with suppress(psutil.Error):
        for process in psutil.process_iter(["username"]):
            if process.info["username"] == USER:
                process.kill()
    _eventually(_user_gone, "the login user is gone", server)


def _user_gone() -> bool:
    return subprocess.run(["userdel", USER], check=False, capture_output=True).returncode in (0, 6)


def _kill_all(daemon: subprocess.Popen[bytes]) -> None:
    """Kill a daemon and all processes in its session."""
    with suppress(psutil.Error):
        for child in psutil.Process(daemon.pid).children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
    with suppress(ProcessLookupError):
        daemon.send_signal(signal.SIGKILL)
    daemon.wait(240)


def _eventually(look: Callable[[], bool], what: str, server: SkyServer) -> None:
    deadline = time.monotonic() + 90
    while not look():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within 90 s\n{server.last_words()}")
        time.sleep(0.2)
