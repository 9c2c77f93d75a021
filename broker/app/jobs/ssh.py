"""Use cases: SSH to a running job, through the engine that runs it.

The job's machine needs no port and no daemon: a ProxyCommand carries the connection through the engine to an sshd that
serves it alone (`broker.agent.ssh_server`). Keys are private to this user: one pair, made here, or the user's own. The
host key is transferred through the engine before the protocol begins, and is checked strictly.
"""

from __future__ import annotations

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
from broker.app.jobs.entering import entrance, record, start
from broker.app.jobs.runs_root import run_folders
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import AskAPerson, BrokerError, InvalidInput, RetryLater
from broker.core.events.views import JobView

_HOST_KEY = "gpubroker-host-key "
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,90}")
_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/=]{20,200}")
_PIECE = 1 << 15


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
        given = (word for name, value in self.options for word in ("-o", f"{name}={value}"))
        return (_program("ssh", "openssh-client"), *given, self.alias)


def access(
    broker: Broker, view: JobView, reference: str, *, node: int | None, identity: Path | None, by: Actor
) -> SshAccess:
    """The settings by which OpenSSH's client reaches the job. ``reference``: the name by which the job is looked up at
    each connection; ``identity``: the user's own private key, with its ``.pub`` next to it; None for one of gpubroker's
    own, made at first use. Opens no connection. Raises as `entrance`, and `InvalidInput` for a key without its public
    half."""
    found = entrance(broker, view, node=node, by=by)
    key = identity.expanduser().absolute() if identity else own_key(broker)
    public_key(key)
    proxy = [_gpubroker(), "ssh-proxy", reference]
    proxy += [] if node is None else ["--node", str(node)]
    proxy += [] if identity is None else ["--identity", str(key)]
    if "GPUBROKER_HOME" in os.environ:  # an editor may start `ssh` without it
        proxy = ["env", f"GPUBROKER_HOME={os.environ['GPUBROKER_HOME']}", *proxy]
    alias = f"gpubroker-{reference}" + (f"-{node}" if node else "")
    options = {
        "HostName": alias,
        "User": _user(broker, view, found.attempt.number, node or 0),
        "ProxyCommand": shlex.join(proxy).replace("%", "%%"),
        "IdentityFile": _quoted(key),
        "IdentitiesOnly": "yes",
        "PreferredAuthentications": "publickey",
        "HostKeyAlias": alias,
        "UserKnownHostsFile": _quoted(_known_hosts(broker, reference, node)),
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
    }
    return SshAccess(alias, tuple(options.items()))


def proxy(broker: Broker, view: JobView, reference: str, *, node: int | None, identity: Path | None, by: Actor) -> int:
    """Carry one SSH connection between this process's standard streams and the job. First writes the host key, which
    comes through the engine, to the file in which `access` makes the client look for it. Returns the exit status of the
    other side. The job's history records the person. Raises as `entrance`; `RetryLater` if the other side does not
    begin."""
    found = entrance(broker, view, node=node, by=by)
    key = public_key(identity.expanduser() if identity else own_key(broker))
    way = found.way(["--sshd", key])
    if way.whole_lines:
        way = found.way(["--sshd", key, "--lines"])
    record(broker, view, found.attempt, "ssh", by=by)
    process = start(way, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        first = process.stdout.readline(_PIECE)
        told = (base64.b64decode(first) if way.whole_lines else first).decode(errors="replace").strip()
        host_key = told.removeprefix(_HOST_KEY)
        if not told.startswith(_HOST_KEY) or not _KEY.fullmatch(host_key):
            status = process.wait()
            raise RetryLater(
                f"the machine of {view.id} did not open an SSH connection (status {status})",
                hint=f"its reason is above; `gpubroker exec {view.id} -- COMMAND` needs no sshd",
            )
        alias = f"gpubroker-{reference}" + (f"-{node}" if node else "")
        _write_private(_known_hosts(broker, reference, node), f"{alias} {host_key}\n")
        feeder = threading.Thread(target=_feed, args=(process.stdin,), name="ssh", daemon=True)
        feeder.start()
        _drain(process.stdout, base64.b64decode if way.whole_lines else bytes, whole_lines=way.whole_lines)
        return process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def tunnel(ports: str) -> tuple[str, ...]:
    """The client's options that make a port of the job's machine (loopback) a port here: ``6006``, or ``HERE:THERE``.
    Raises `InvalidInput`."""
    here, _, there = ports.partition(":")
    if not all(one.isascii() and one.isdigit() and 0 < int(one) < 1 << 16 for one in (here, there or here)):
        raise InvalidInput(
            f"expected a port, or one here and one there, such as 8080:80; got {ports!r}", where="--forward"
        )
    return ("-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{here}:127.0.0.1:{there or here}")


def own_key(broker: Broker) -> Path:
    """The private key of this user, made at first use. Raises `AskAPerson` without OpenSSH's client."""
    folder = broker.settings.home / "ssh"
    key = folder / "id_ed25519"
    if not key.exists():
        make_private(folder)
        draft = folder / f"id_ed25519.{os.getpid()}"
        program = _program("ssh-keygen", "openssh-client")
        words = [program, "-q", "-t", "ed25519", "-N", "", "-C", "gpubroker", "-f", str(draft)]
        done = subprocess.run(words, check=False, capture_output=True, stdin=subprocess.DEVNULL)  # noqa: S603 (ours)
        if done.returncode:
            raise AskAPerson(f"ssh-keygen: {done.stderr.decode(errors='replace').strip()}", where=str(folder))
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
        claims = run_folders(broker).of(view.id).read_state(attempt).claims
    except BrokerError:
        claims = ()
    names = (one.user for one in claims if one.rank == node and _ACCOUNT.fullmatch(one.user))
    return next(names, None) or broker.account.user


def _feed(sink: IO[bytes]) -> None:
    while piece := os.read(0, _PIECE):
        try:
            sink.write(piece)
            sink.flush()
        except (BrokenPipeError, ValueError):
            return
    sink.close()


def _drain(source: IO[bytes], decoded: Callable[[bytes], bytes], *, whole_lines: bool) -> None:
    while piece := source.readline() if whole_lines else source.read1(_PIECE):  # type: ignore[attr-defined]  # a pipe's
        rest = decoded(piece)
        while rest:
            rest = rest[os.write(1, rest) :]


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


def _quoted(path: Path) -> str:
    return f'"{path}"'


def _program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise AskAPerson(f"there is no {name} on this machine", hint=f"install OpenSSH's client (package {package})")
    return found


def _gpubroker() -> str:
    """The path of this program, valid in any folder."""
    beside = Path(sys.executable).with_name("gpubroker")
    return str(beside) if beside.exists() else _program("gpubroker", "gpubroker")
