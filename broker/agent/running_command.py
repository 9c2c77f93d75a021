"""Runs a program inside a running job: on its machine, with the same user, folder, variables and CPUs.

Engines start ``gpubroker-agent enter`` through their own access to the machine, with a person's terminal or connection
as its standard streams. The variables and the folder of the program are read from the guard of the job's command
(`broker.agent.guard`), so values of secrets are neither stored nor written on a command line. The program ends with the
attempt: this process ends it once the guard is gone, and the guard ends programs that detached themselves.

Each such program has a file, removed when it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from broker.agent import processes
from broker.agent.names import replace_document
from broker.agent.processes import kernel_start

FOLDER = "visitors"
_CAME = "came"


@dataclass(frozen=True)
class EnteredProgram:
    """A program that runs inside the job.

    ``pid``: the process that started it (`broker.agent.running_command`), its parent; ``born``: its start.
    ``moved``: bytes transferred over its SSH connection; None if it has none. ``terminal``: its terminal device.
    """

    pid: int
    born: str | None
    moved: int | None = None
    terminal: str | None = None


class Visit:
    """The entry of this process in the list of such programs of an attempt. ``scratch``: the agent's folder."""

    def __init__(self, scratch: Path, *, over_ssh: bool) -> None:
        folder = scratch / FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        self._file = folder / f"{os.getpid()}.json"
        terminal = None
        with contextlib.suppress(OSError):
            terminal = os.ttyname(0)
        moved = 0 if over_ssh else None
        self._own = EnteredProgram(os.getpid(), kernel_start(), moved, terminal)
        self._write()
        _touch(folder)

    def record_bytes(self, total: int) -> None:
        """Record the number of bytes transferred over the connection so far."""
        self._own = EnteredProgram(self._own.pid, self._own.born, total, self._own.terminal)
        self._write()

    def over(self) -> None:
        """Remove the entry."""
        with contextlib.suppress(OSError):
            self._file.unlink()
        _touch(self._file.parent)

    def _write(self) -> None:
        replace_document(self._file, asdict(self._own))


def _touch(folder: Path) -> None:
    with contextlib.suppress(OSError):
        (folder / _CAME).touch(mode=0o600)


def last_visit(scratch: Path) -> float | None:
    """When such a program last started or ended (seconds since 1970); None if there was none."""
    try:
        return (scratch / FOLDER / _CAME).stat().st_mtime
    except OSError:
        return None


def visitors(scratch: Path) -> list[EnteredProgram]:
    """The programs that run inside the job now."""
    programs = []
    for file in sorted((scratch / FOLDER).glob("*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            program = EnteredProgram(**json.loads(file.read_text()))
            if kernel_start(program.pid) == program.born:
                programs.append(program)
    return programs


NOT_RUNNING, UNAVAILABLE, NOT_FOUND = 75, 69, 127
"""Exit statuses of this module: the job's command does not run here; no sshd; the program cannot be started."""

_GUARD = "guard.json"
_POLL_SECONDS = 0.5
_PATIENCE = 5.0  # seconds from SIGTERM to SIGKILL once the job's command is gone


class CannotEnter(Exception):
    """The program cannot be started. ``status``: the exit status for the reason."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class GuardedCommand:
    """The running command of an attempt.

    ``scratch``: the agent's folder. ``guard``: the pid of the command's guard; ``born``: its start. ``folder``: the
    working folder of entered programs.
    """

    scratch: Path
    guard: int
    born: str | None
    folder: str
    variables: Mapping[str, str]

    def runs(self) -> bool:
        """Whether the command's guard still runs."""
        return _is_alive(self.guard) and kernel_start(self.guard) == self.born


def record_guard(scratch: Path, guard: int, folder: Path) -> None:
    """Record the guard of the command that runs now, and its folder, for `find_running_command`."""
    record = {"pid": guard, "born": kernel_start(guard), "folder": str(folder)}
    replace_document(scratch / _GUARD, record)


def find_running_command(scratch: Path) -> GuardedCommand:
    """The command that the agent with this scratch folder runs now. Raises `CannotEnter`."""
    try:
        record = json.loads((scratch / _GUARD).read_text())
        guard, born, folder = int(record["pid"]), record["born"], str(record["folder"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _not_running() from error
    if not _is_alive(guard) or kernel_start(guard) != born:
        raise _not_running()
    try:
        environment = processes.variables(guard)
    except OSError as error:
        raise CannotEnter(
            UNAVAILABLE, f"the processes of the job cannot be read: {error.strerror or error}; expected the job's own"
            " user, and Linux's /proc",
        ) from error  # fmt: skip
    environment[processes.ENTERED] = processes.guard_mark(guard)
    for name in ("TERM", "COLORTERM", "LANG"):
        if name in os.environ:
            environment[name] = os.environ[name]
    return GuardedCommand(scratch, guard, born, environment.get("GPUBROKER_SESSION_DIR", folder), environment)


def scratch_of(folder: str, rank: int) -> Path:
    """The scratch folder of the agent that runs this rank of the attempt with this run folder on this machine.

    Raises `CannotEnter`.
    """
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = [os.fsdecode(word) for word in (process / "cmdline").read_bytes().split(b"\0")]
            options = {name: words[words.index(name) + 1] for name in ("--folder", "--rank", "--scratch")}
            if options["--folder"] == folder and int(options["--rank"]) == rank and "enter" not in words:
                return Path(options["--scratch"])
    raise _not_running()


def shell(variables: Mapping[str, str]) -> str:
    """The shell that the job's variables name, if it exists here; else that of this user."""
    preferred = variables.get("SHELL", "")
    if Path(preferred).is_absolute() and os.access(preferred, os.X_OK):
        return preferred
    with contextlib.suppress(KeyError):  # a container may run under a uid without a name
        return pwd.getpwuid(os.geteuid()).pw_shell or "/bin/sh"
    return "/bin/sh"


def run(at: GuardedCommand, command: Sequence[str]) -> int:
    """Run the program with this process's standard streams; returns its exit status, 128 + n for signal n."""
    visit = Visit(at.scratch, over_ssh=False)
    try:
        with _ignore_interrupts():
            try:
                process = subprocess.Popen(list(command), env=dict(at.variables), cwd=at.folder)  # noqa: S603 (its task)
            except OSError as error:
                raise CannotEnter(
                    NOT_FOUND,
                    f"{command[0]} cannot be started in {at.folder}: {error.strerror or error}; expected a program on"
                    " the job's PATH, or a path from that folder",
                ) from error
            return status_of(process, at)
    finally:
        visit.over()


def status_of(process: subprocess.Popen[bytes], at: GuardedCommand) -> int:
    """The exit status of a process that ends with the attempt."""
    while True:
        try:
            status = process.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if not at.runs():
                end_process(process)
        else:
            return status if status >= 0 else 128 - status


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End the process and its descendants, first by SIGTERM."""
    pids = [child.pid for child in processes.descendants([process.pid], processes.processes())]
    _signal(pids or [process.pid], signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and (process.poll() is None or any(map(_is_alive, pids))):
        time.sleep(0.05)
    _signal([pid for pid in pids if _is_alive(pid)], signal.SIGKILL)


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def exec_ssh_program(at: GuardedCommand) -> int:
    """Replaces this process by the program that the SSH client requested: a command for the shell, or the shell."""
    command = os.environ.get("SSH_ORIGINAL_COMMAND")
    ssh_variables = {name: value for name, value in os.environ.items() if name.startswith("SSH_")}
    program = shell(at.variables)
    environment = {**at.variables, **ssh_variables, "SHELL": program}
    os.chdir(at.folder)
    os.execvpe(program, [program, "-c", command] if command else [program], environment)  # noqa: S606 (the user's own shell)


def _not_running() -> CannotEnter:
    return CannotEnter(
        NOT_RUNNING,
        "the job's command is not running on this machine at the moment; `gpubroker status JOB` shows the state",
    )


@contextlib.contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Ctrl-C reaches every process of the terminal; the program decides how to react, and this process waits for it."""
    previous = signal.signal(signal.SIGINT, lambda *_: None)  # a handler, not SIG_IGN, which the program would inherit
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
