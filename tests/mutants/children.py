"""Work done in forked children, each of which may break anything: killed when it shows no progress in time."""

import os
import pickle
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from shutil import rmtree
from time import monotonic
from traceback import format_exc
from typing import Any

Report = Callable[[Any], None]


@dataclass(frozen=True)
class Failure:
    """What a child tells last when its work raised an exception."""

    traceback: str


@dataclass
class ChildTask:
    """``work`` gets a function for what it has to tell, which must be picklable; ``patience``: the seconds until it
    must have told something again. ``told``: what it told. ``ended``: how the child came to its end: ``ended``,
    ``timed out``, or ``failed`` where ``work`` raised an exception, with its traceback in ``error``."""

    subject: Any
    work: Callable[[Report], None]
    patience: Callable[[list[Any]], float]
    told: list[Any] = field(default_factory=list)
    ended: str = ""
    error: str = ""


def in_children(tasks: Iterable[ChildTask], at_once: int) -> Iterator[ChildTask]:
    """The tasks as they end; so many run at once. Each child sees the process as it was when the child was forked."""
    waiting = iter(tasks)
    running: dict[Connection, tuple[ChildTask, Child, float]] = {}
    while True:
        while len(running) < at_once and (task := next(waiting, None)) is not None:
            child = fork(task.work)
            running[child.connection] = task, child, monotonic() + task.patience(task.told)
        if not running:
            return
        soonest = min(deadline for _, _, deadline in running.values())
        ready = wait(running, timeout=max(0.0, soonest - monotonic()))
        for connection in list(running):
            task, child, deadline = running[connection]
            if connection in ready:
                try:
                    told = connection.recv()
                    if isinstance(told, Failure):
                        task.error = told.traceback
                    else:
                        task.told.append(told)
                    running[connection] = task, child, monotonic() + task.patience(task.told)
                    continue
                except (EOFError, OSError, pickle.UnpicklingError):
                    task.ended = "ended"
            elif monotonic() < deadline:
                continue
            else:
                task.ended = "timed out"
            if child.end():
                task.ended = "timed out"
            elif task.error:
                task.ended = "failed"
            del running[connection]
            yield task


def allow(seconds: float) -> None:
    """From now on, this process may use so many seconds of a processor, however busy the machine is."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (ceil(used.ru_utime + used.ru_stime + seconds), most))


@dataclass(frozen=True)
class Child:
    """A forked process. ``folder``: its own folder for temporary files; two that share one remove each other's."""

    connection: Connection
    pid: int
    folder: str

    def end(self) -> bool:
        """End it, if it has not ended, with what it started. Whether it ended for want of `allow`ed time."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # nothing to a child that has ended
        _, status = os.waitpid(self.pid, 0)
        self.connection.close()
        rmtree(self.folder, ignore_errors=True)
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU


def fork(work: Callable[[Report], None]) -> Child:
    """A child that does the work and ends. Its standard streams lead nowhere."""
    ours, theirs = Pipe(duplex=False)
    folder = tempfile.mkdtemp(prefix="gpubroker-mutants-")
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        theirs.close()
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)
        return Child(ours, pid, folder)
    try:
        ours.close()
        with suppress(PermissionError):
            os.setpgid(0, 0)
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        tempfile.tempdir = folder
        work(theirs.send)
    except Exception:  # noqa: BLE001 - whatever it is, the parent must hear of it: nothing came of the work
        with suppress(OSError):
            theirs.send(Failure(format_exc()))
    except BaseException:  # noqa: BLE001 - the child must never run the parent's code to its end
        os._exit(1)
    finally:
        theirs.close()
        os._exit(0)
