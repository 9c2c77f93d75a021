"""Use cases: SSH to a running job, through the engine that runs it.

The job's machine needs no port and no daemon: a ProxyCommand carries the connection through the engine to an sshd that
serves it alone (`broker.agent.enter`). Keys are private to this user: one pair, made here, or the user's own. The
host key is transferred through the engine before the protocol begins, and is checked strictly.
"""

import base64
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from broker.agent.store import make_private
from broker.app.jobs.sessions import exec_target, record_exec, start
from broker.app.runs_root import run_folders
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import AskAPerson, BrokerError, InvalidInput, RetryLater
from broker.core.events.views import JobView

_HOST_KEY = "gpubroker-host-key "
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,90}")
_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/=]{20,200}")
_CHUNK_BYTES = 1 << 15


@dataclass(frozen=True, slots=True)
class SshAccess:
    """The settings of OpenSSH's client for a job. ``alias``: the host's name; ``options``: names and values, as in
    ``ssh_config``."""

    alias: str
    options: tuple[tuple[str, str], ...]

    @property
    def block(self) -> str:
        """A ``Host`` block for ``~/.ssh/config``."""
        lines = [f"Host {self.alias}", *(f"  {name} {value}" for name, value in self.options)]
        return "\n".join(lines)

    @property
    def words(self) -> tuple[str, ...]:
        """The client's command line, without the host's name."""
        flags = (flag for name, value in self.options for flag in ("-o", f"{name}={value}"))
        return (_find_program("ssh", "openssh-client"), *flags, self.alias)


def access(
    broker: Broker, view: JobView, reference: str, *, node: int | None, identity: Path | None, by: Actor
) -> SshAccess:
    """The settings by which OpenSSH's client reaches the job. ``reference``: the name by which the job is looked up at
    each connection; ``identity``: the user's own private key, with its ``.pub`` next to it; None for one of gpubroker's
    own, made at first use. Opens no connection. Raises as `exec_target`, and `InvalidInput` for a key without its
    public half."""
    target = exec_target(broker, view, node=node, by=by)
    key = identity.expanduser().absolute() if identity else own_key(broker)
    public_key(key)
    proxy = [_gpubroker_path(), "ssh", reference, "--proxy"]
    proxy += [] if node is None else ["--node", str(node)]
    proxy += [] if identity is None else ["--identity", str(key)]
    if "GPUBROKER_HOME" in os.environ:  # an editor may start `ssh` without it
        proxy = ["env", f"GPUBROKER_HOME={os.environ['GPUBROKER_HOME']}", *proxy]
    alias = f"gpubroker-{reference}" + (f"-{node}" if node else "")
    options = {
        "HostName": alias,
        "User": _user(broker, view, target.attempt.number, node or 0),
        "ProxyCommand": shlex.join(proxy).replace("%", "%%"),
        "IdentityFile": _quote(key),
        "IdentitiesOnly": "yes",
        "PreferredAuthentications": "publickey",
        "HostKeyAlias": alias,
        "UserKnownHostsFile": _quote(_known_hosts(broker, reference, node)),
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
    }
    return SshAccess(alias, tuple(options.items()))


def proxy(broker: Broker, view: JobView, reference: str, *, node: int | None, identity: Path | None, by: Actor) -> int:
    """Carry one SSH connection between this process's standard streams and the job. First writes the host key, which
    comes through the engine, to the file in which `access` makes the client look for it. Returns the exit status of the
    other side. The job's history records the person. Raises as `exec_target`; `RetryLater` if the other side does not
    begin."""
    target = exec_target(broker, view, node=node, by=by)
    key = public_key(identity.expanduser() if identity else own_key(broker))
    way_in = target.way(["--sshd", key])
    if way_in.whole_lines:
        way_in = target.way(["--sshd", key, "--lines"])
    record_exec(broker, view, target.attempt, "ssh", by=by)
    process = start(way_in, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        first_line = process.stdout.readline(_CHUNK_BYTES)
        greeting = (base64.b64decode(first_line) if way_in.whole_lines else first_line).decode(errors="replace").strip()
        host_key = greeting.removeprefix(_HOST_KEY)
        if not greeting.startswith(_HOST_KEY) or not _KEY.fullmatch(host_key):
            status = process.wait()
            raise RetryLater(
                f"the machine of {view.id} did not open an SSH connection (status {status})",
                hint=f"its reason is above; `gpubroker exec {view.id} -- COMMAND` needs no sshd",
            )
        alias = f"gpubroker-{reference}" + (f"-{node}" if node else "")
        _write_private(_known_hosts(broker, reference, node), f"{alias} {host_key}\n")
        feeder = threading.Thread(target=_forward_stdin, args=(process.stdin,), name="ssh", daemon=True)
        feeder.start()
        _copy_to_stdout(
            process.stdout, base64.b64decode if way_in.whole_lines else bytes, whole_lines=way_in.whole_lines
        )
        return process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def tunnel_options(ports: str) -> tuple[str, ...]:
    """The client's options that make a port of the job's machine (loopback) a port here: ``6006``, or ``HERE:THERE``.
    Raises `InvalidInput`."""
    local_port, _, remote_port = ports.partition(":")
    if not all(
        port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16
        for port in (local_port, remote_port or local_port)
    ):
        raise InvalidInput(
            f"expected a port, or one here and one there, such as 8080:80; got {ports!r}", where="--forward"
        )
    return ("-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{local_port}:127.0.0.1:{remote_port or local_port}")


def own_key(broker: Broker) -> Path:
    """The private key of this user, made at first use. Raises `AskAPerson` without OpenSSH's client."""
    folder = broker.settings.home / "ssh"
    key = folder / "id_ed25519"
    if not key.exists():
        make_private(folder)
        draft = folder / f"id_ed25519.{os.getpid()}"
        program = _find_program("ssh-keygen", "openssh-client")
        command = [program, "-q", "-t", "ed25519", "-N", "", "-C", "gpubroker", "-f", str(draft)]
        process = subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL)  # noqa: S603 (ours)
        if process.returncode:
            raise AskAPerson(f"ssh-keygen: {process.stderr.decode(errors='replace').strip()}", where=str(folder))
        draft.with_name(f"{draft.name}.pub").replace(folder / "id_ed25519.pub")
        draft.replace(key)
    return key


def public_key(key: Path) -> str:
    """The public half of a private key. Raises `InvalidInput`."""
    file = key.with_name(f"{key.name}.pub")
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"the public key cannot be read: {error}",
            where=str(file),
            hint="`ssh-keygen -y -f KEY > KEY.pub` writes it",
        ) from error
    if "\n" in text or len(text.split()) < 2 or not text.startswith(("ssh-", "ecdsa-", "sk-")):
        raise InvalidInput("expected one public key of OpenSSH", where=str(file))
    return text


def _user(broker: Broker, view: JobView, attempt: int, node: int) -> str:
    """The user account of the job's command on its machine, as the agent reports it; else that of this process."""
    try:
        claims = run_folders(broker).of(view.id).read_attempt(attempt).claims
    except BrokerError:
        claims = ()
    names = (claim.user for claim in claims if claim.rank == node and _ACCOUNT.fullmatch(claim.user))
    return next(names, None) or broker.account.user


def _forward_stdin(sink: IO[bytes]) -> None:
    while chunk := os.read(0, _CHUNK_BYTES):
        try:
            sink.write(chunk)
            sink.flush()
        except (BrokenPipeError, ValueError):
            return
    sink.close()


def _copy_to_stdout(source: IO[bytes], decode: Callable[[bytes], bytes], *, whole_lines: bool) -> None:
    while chunk := source.readline() if whole_lines else source.read1(_CHUNK_BYTES):  # type: ignore[attr-defined]  # a pipe's
        remainder = decode(chunk)
        while remainder:
            remainder = remainder[os.write(1, remainder) :]


def _known_hosts(broker: Broker, reference: str, node: int | None) -> Path:
    if not _REFERENCE.fullmatch(reference):
        raise InvalidInput(f"expected a job's name or id, got {reference[:90]!r}")
    return broker.settings.home / "ssh" / "known_hosts" / (f"{reference}.{node}" if node else reference)


def _write_private(file: Path, text: str) -> None:
    make_private(file.parent)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.replace(file)


def _quote(path: Path) -> str:
    return f'"{path}"'


def _find_program(name: str, package: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise AskAPerson(f"there is no {name} on this machine", hint=f"install OpenSSH's client (package {package})")
    return path


def _gpubroker_path() -> str:
    """The path of this program, valid in any folder."""
    sibling = Path(sys.executable).with_name("gpubroker")
    return str(sibling) if sibling.exists() else _find_program("gpubroker", "gpubroker")
