"""The program ``gpubroker-agent enter``: runs a program, or serves one SSH connection, inside a running job.

The connection is served by OpenSSH's sshd as the job's own user, over this process's standard streams, in its inetd
mode: no daemon, no port, no root. It accepts one key, no password, and only this user. Its host key is created once per
attempt and sent to the client before the first byte of the protocol, through the same channel, which the engine has
authenticated; so the client can check it strictly.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import selectors
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from broker.agent import processes
from broker.agent.claims import own_user
from broker.agent.running_command import (
    UNAVAILABLE,
    CannotEnter,
    GuardedCommand,
    Visit,
    end_process,
    exec_ssh_program,
    find_running_command,
    run,
    scratch_of,
    shell,
)
from broker.agent.store import make_private

HOST_KEY = b"gpubroker-host-key "
"""The prefix of the line before the protocol."""

_SEARCH_PATH = (*os.environ.get("PATH", os.defpath).split(os.pathsep), "/usr/sbin", "/sbin", "/usr/local/sbin")
_SFTP = ("/usr/lib/openssh", "/usr/libexec/openssh", "/usr/lib/ssh", "/usr/libexec", "/usr/lib64/misc")
_PIECE = 1 << 15
_REPORT_EVERY = 1.0
_AGENT = "import sys; sys.path.insert(0, {root!r}); from broker.agent.enter import main; sys.exit(main(sys.argv[1:]))"

_CONFIG = """\
HostKey {folder}/host_key
AuthorizedKeysFile {own}/authorized_keys
AuthenticationMethods publickey
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AllowUsers {user}
UsePAM no
StrictModes no
UseDNS no
PrintMotd no
PrintLastLog no
PidFile none
X11Forwarding no
AcceptEnv LANG LC_* COLORTERM
LogLevel ERROR
{sftp}ForceCommand {command}
"""


def serve(at: GuardedCommand, public_key: str, *, lines: bool) -> int:
    """Serve one connection until it ends.

    ``lines``: write the output as lines of base64, for a channel that forwards only whole lines of text. Raises
    `CannotEnter` if there is no sshd here.
    """
    sshd = _find_program("sshd")
    folder = at.scratch / "ssh"
    own_folder = folder / str(os.getpid())
    make_private(own_folder)
    out = _line_writer if lines else _writer
    visit = Visit(at.scratch, over_ssh=True)
    try:
        host_key = _host_key(folder)
        _write_private(own_folder / "authorized_keys", public_key.strip() + "\n")
        _write_private(own_folder / "config", _config(at, folder, own_folder))
        if os.geteuid() == 0:  # as root, sshd needs this folder, which distributions create when its service starts
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        out(HOST_KEY + host_key.encode() + b"\n")
        process = subprocess.Popen(  # noqa: S603 (a program of the system, and options of ours)
            [sshd, "-i", "-f", str(own_folder / "config"), "-E", str(own_folder / "log")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.pathsep.join(_SEARCH_PATH), processes.ENTERED: processes.guard_mark(at.guard)},
        )
        _relay(process, at, visit, out)
        status = process.wait()
        if status:
            with contextlib.suppress(OSError):
                sys.stderr.write((own_folder / "log").read_text(errors="replace")[-2000:])
        return status if status >= 0 else 128 - status
    finally:
        visit.over()
        shutil.rmtree(own_folder, ignore_errors=True)


def _relay(process: subprocess.Popen[bytes], at: GuardedCommand, visit: Visit, out: Callable[[bytes], None]) -> None:
    """Forward bytes both ways until one side closes, or the attempt ends."""
    assert process.stdin is not None
    assert process.stdout is not None
    moved, reported, reported_at = 0, 0, time.monotonic()
    with selectors.DefaultSelector() as ready:
        ready.register(0, selectors.EVENT_READ)
        ready.register(process.stdout, selectors.EVENT_READ)
        while True:
            events = ready.select(0.5)
            if not events and not at.runs():
                break
            for key, _ in events:
                piece = os.read(key.fd, _PIECE)
                if key.fd == 0 and not piece:
                    ready.unregister(0)
                    process.stdin.close()
                elif not piece:
                    return  # sshd has ended
                else:
                    moved += len(piece)
                    try:
                        process.stdin.write(piece) if key.fd == 0 else out(piece)
                        process.stdin.flush()
                    except (BrokenPipeError, ValueError):
                        if key.fd != 0:
                            end_process(process)  # the client is gone
                            return
            if moved != reported and time.monotonic() - reported_at >= _REPORT_EVERY:
                reported, reported_at = moved, time.monotonic()
                visit.record_bytes(moved)
    end_process(process)


def _writer(piece: bytes) -> None:
    while piece:
        piece = piece[os.write(1, piece) :]


def _line_writer(piece: bytes) -> None:
    _writer(base64.b64encode(piece) + b"\n")


def _host_key(folder: Path) -> str:
    """The public host key of the attempt; creates the key if there is none."""
    key = folder / "host_key"
    if not key.exists():
        draft = folder / f"host_key.{os.getpid()}"
        subprocess.run(  # noqa: S603 (a program of the system, and options of ours)
            [_find_program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", "gpubroker", "-f", str(draft)],
            check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        with contextlib.suppress(FileExistsError):
            os.link(draft, key)  # if two processes create it at once, the first wins
        for file in (draft, draft.with_name(f"{draft.name}.pub")):
            file.unlink()
    answer = subprocess.run(  # noqa: S603 (a program of the system, and options of ours)
        [_find_program("ssh-keygen"), "-y", "-f", str(key)], check=True, stdin=subprocess.DEVNULL, capture_output=True
    )
    return " ".join(answer.stdout.decode().split()[:2])


def _config(at: GuardedCommand, folder: Path, own_folder: Path) -> str:
    user = own_user()
    if not user:
        raise CannotEnter(
            UNAVAILABLE,
            f"sshd serves accounts with a name, and number {os.geteuid()} has none on {socket.gethostname()}: add a"
            " line to /etc/passwd in the image; `gpubroker exec` works without it",
        )
    root = str(Path(__file__).parents[2])
    words = [sys.executable, "-I", "-c", _AGENT.format(root=root), "--scratch", str(at.scratch), "--over-ssh"]
    places = [Path(place) / "sftp-server" for place in _SFTP]
    server = next((str(place) for place in places if place.is_file()), None)
    return _CONFIG.format(
        folder=folder,
        own=own_folder,
        user=user,
        sftp=f"Subsystem sftp {server}\n" if server else "",
        command=shlex.join(words),
    )


def _write_private(file: Path, text: str) -> None:
    file.touch(mode=0o600)
    file.write_text(text)


def _find_program(program: str) -> str:
    path = shutil.which(program, path=os.pathsep.join(_SEARCH_PATH))
    if path is None:
        raise CannotEnter(
            UNAVAILABLE,
            f"there is no {program} on {socket.gethostname()}: install OpenSSH's server there (package openssh-server),"
            " for example in the job's `setup:` or image; `gpubroker exec` works without it",
        )
    return path


def main(argv: Sequence[str]) -> int:
    """``enter``; returns the exit status of the program, or one of this module's."""
    options, command = _split(argv)
    parser = argparse.ArgumentParser(prog="gpubroker-agent enter", description=__doc__)
    parser.add_argument("--scratch", type=Path, help="the agent's folder")
    parser.add_argument("--folder", help="or the attempt's run folder, by which the agent is found")
    parser.add_argument("--rank", type=int, default=0, help="with --folder: which node of the gang (default 0)")
    parser.add_argument("--sshd", metavar="PUBLIC_KEY", help="serve one SSH connection for the owner of this key")
    parser.add_argument("--lines", action="store_true", help="with --sshd: encode the output as lines of base64")
    parser.add_argument("--over-ssh", action="store_true", help="run what the SSH client asked for")
    arguments = parser.parse_args(options)
    try:
        scratch = arguments.scratch or scratch_of(arguments.folder or "", arguments.rank)
        at = find_running_command(scratch)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, os.sched_getaffinity(at.guard))
        if arguments.over_ssh:
            return exec_ssh_program(at)
        if arguments.sshd:
            return serve(at, arguments.sshd, lines=arguments.lines)
        return run(at, command or [shell(at.variables)])
    except CannotEnter as error:
        print(f"gpubroker: {error}", file=sys.stderr)  # noqa: T201 (what the person sees)
        return error.status


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options, and the command after ``--``."""
    words = list(argv)
    separator = words.index("--") if "--" in words else len(words)
    return words[:separator], words[separator + 1 :]
