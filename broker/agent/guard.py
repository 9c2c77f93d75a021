"""Runs a command and kills it, with all its children, when the process that started the guard dies.

A separate program, run as a script, standard library only. File descriptor 0 is the *leash*: ``T`` on it sends SIGTERM
to the command's process group; its end (the other side closed it, or died) kills everything with SIGKILL. File
descriptor 1 carries reports, one per line: ``started PID``, ``failed WHY``, ``exited STATUS`` (negative: the signal
that killed the command), ``left STATUS`` (how a process ended that the command had left running), ``empty`` (no process
of the group is left).

Usage: guard.py OUTPUT_FD WITNESS UMASK LOCKS COMMAND…

WITNESS: a file to write the time of death into, or ``-``. LOCKS: descriptors of locks, separated by commas, or ``-``.
On Linux the command inherits them, so that a lock is held while a process of it lives, even if the guard was killed.

On Linux the guard also adopts the command's orphans, so it kills children that left the process group, and then the
programs that people started inside the job (`broker.agent.running_command`). On other systems it kills the process
group only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_ENTERED, _VISITORS_GRACE = "GPUBROKER_ENTERED", 2.0


def _start_time() -> str | None:
    with contextlib.suppress(OSError):
        return Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    return None


_BORN = _start_time()


def _prctl(option: int, value: int) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _report(line: str) -> None:
    with contextlib.suppress(OSError):  # the reader is gone; the leash will end, too
        os.write(1, line.encode() + b"\n")


def _children() -> set[int]:
    """The guard's direct children. Orphans become its children, so repeated calls find everything the command
    started."""
    children = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = (process / "stat").read_bytes()
            if int(stat.rpartition(b")")[2].split()[1]) == os.getpid():
                children.add(int(process.name))
    return children


def _visitors() -> list[int]:
    """Processes of this user that people started inside the job, including detached ones."""
    marker, pids = f"{_ENTERED}={os.getpid()}-{_BORN}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marker in (process / "environ").read_bytes().split(b"\0"):
                pids.append(int(process.name))
    return pids


def _end_visitors() -> None:
    """End these processes, first by SIGTERM, then by SIGKILL."""
    number, deadline = signal.SIGTERM, time.monotonic() + _VISITORS_GRACE
    while pids := _visitors():
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        if time.monotonic() >= deadline:
            if number is signal.SIGKILL:
                return
            number, deadline = signal.SIGKILL, time.monotonic() + _VISITORS_GRACE
        time.sleep(0.05)


class Guard:
    """The command while it runs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None
        self.empty = False

    def reap(self) -> bool:
        """Reap dead children. False if no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            code = os.waitstatus_to_exitcode(status)
            if pid == self.pid:
                self.status = code
            _report(f"exited {code}" if pid == self.pid else f"left {code}")

    def signal_group(self, number: int) -> bool:
        """Send the signal to the process group; false if the group is empty."""
        if self.empty:
            return False
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            self.empty = self.status is not None
            return not self.empty
        except PermissionError:  # macOS: only zombies are left
            return self.status is None
        return True

    def kill_all(self) -> None:
        while True:
            self.signal_group(signal.SIGKILL)
            for child in _children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            if not self.reap() and not self.signal_group(0):
                return
            time.sleep(0.005)

    def hold(self, wake: int) -> None:
        """Wait until the leash ends."""
        while True:
            waiting_for_orphans = self.status is not None and not self.empty
            ready, _, _ = select.select([0, wake], [], [], 0.05 if waiting_for_orphans else None)
            if wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, 4096)
            self.reap()
            if self.status is not None and not self.empty and not self.signal_group(0):
                _report("empty")
            if 0 in ready:
                order = os.read(0, 64)
                if not order:
                    return
                if b"T" in order:
                    self.signal_group(signal.SIGTERM)


def _quiet_signals() -> int:
    """Prevent signals to the process group from ending the guard; each writes a byte to the returned descriptor."""
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        # A handler, not SIG_IGN: an ignored signal would stay ignored in the command.
        signal.signal(number, lambda *_: None)
    return reading


def _before_exec(umask: int) -> Callable[[], None]:
    def prepare() -> None:
        os.umask(umask)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # in case the guard itself is killed

    return prepare


def main(arguments: list[str]) -> int:
    output, witness, umask, command = int(arguments[0]), arguments[1], int(arguments[2], 8), arguments[4:]
    inherits = sys.platform.startswith("linux") and arguments[3] != "-"
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake = _quiet_signals()
    try:
        process = subprocess.Popen(  # noqa: S603 (running the job's command is what this is for)
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=[int(number) for number in arguments[3].split(",")] if inherits else (),
            preexec_fn=_before_exec(umask),
        )
    except (OSError, subprocess.SubprocessError) as error:
        _report(f"failed {error}")
        return 127
    os.close(output)
    guard = Guard(process.pid)
    _report(f"started {process.pid}")
    guard.hold(wake)
    guard.kill_all()
    _end_visitors()
    process.returncode = guard.status  # already reaped here, so the destructor need not wait for it
    if witness != "-":
        with contextlib.suppress(OSError):
            Path(witness).write_text(f"{time.time():.6f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
