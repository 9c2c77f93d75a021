"""A program started beside the command of a job that runs on this machine: same user, folder, variables and CPUs.

What it starts with is read from the guard of the job's command (`broker.agent.guard`), so values of secrets are neither
stored nor written on a command line.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil

from broker.core.errors import GiveUp, InvalidInput, RetryLater
from broker.engines.cpus import bound_to
from broker.engines.detached import Slot, same_process

_LOOK_EVERY = 0.5  # seconds of the wall clock
_PATIENCE = 5.0  # seconds from SIGTERM to SIGKILL once the job's command is gone


def enter(slot: Slot, arguments: Sequence[str]) -> int:
    """Run the program with this process's standard streams to its end, and return its exit status (128 + n if signal n
    ended it). When the attempt ends, the program and its children are ended. Raises as `LetsPeopleIn.enter`."""
    guard = _guard(slot)
    try:
        variables, folder = guard.environ(), guard.cwd()
        cpus = sorted(os.sched_getaffinity(guard.pid)) if hasattr(os, "sched_getaffinity") else []
    except (psutil.NoSuchProcess, ProcessLookupError) as error:
        raise _not_running() from error
    except (psutil.Error, OSError) as error:
        raise GiveUp(
            f"the processes of the job cannot be read: {error}", hint="run as the user who submitted it"
        ) from error
    if "TERM" in os.environ:
        variables["TERM"] = os.environ["TERM"]
    with _interrupts_left_to_the_program():
        try:
            with bound_to(cpus):
                process = subprocess.Popen(list(arguments), env=variables, cwd=folder)  # noqa: S603 (what it is for)
        except OSError as error:
            raise InvalidInput(
                f"{arguments[0]} cannot be started: {error.strerror or error}",
                where=folder,
                hint="expected a program on the job's PATH, or a path from the job's folder",
            ) from error
        return _to_its_end(process, slot)


def _to_its_end(process: subprocess.Popen[bytes], slot: Slot) -> int:
    while True:
        try:
            status = process.wait(_LOOK_EVERY)
        except subprocess.TimeoutExpired:
            if not slot.alive():
                _end(process)
        else:
            return status if status >= 0 else 128 - status


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and its descendants, first by SIGTERM."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        children = []
    process.terminate()
    for one in children:
        with suppress(psutil.NoSuchProcess):
            one.terminate()
    for one in psutil.wait_procs(children, _PATIENCE)[1]:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    try:
        process.wait(_PATIENCE)  # not psutil's wait, which would keep the exit status from the caller
    except subprocess.TimeoutExpired:
        process.kill()


def _guard(slot: Slot) -> psutil.Process:
    """The guard of the command that runs in the slot."""
    agent = slot.read("agent.json")
    if agent is None or agent["ended"] is not None or not slot.alive():
        raise _not_running()
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(int(agent["pid"]))
        if same_process(process, agent):
            for child in process.children():
                with suppress(psutil.NoSuchProcess):
                    if any(word.endswith("guard.py") for word in child.cmdline()):
                        return child
    raise _not_running()


def _not_running() -> RetryLater:
    return RetryLater(
        "the job's command is not running on this machine at the moment",
        hint="`gpubroker jobs show JOB` shows the state; try again when it runs",
    )


@contextmanager
def _interrupts_left_to_the_program() -> Iterator[None]:
    """Ctrl-C reaches every process of the terminal; the program decides what it means, and this one waits."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: None)  # a handler, not SIG_IGN, which the program would inherit
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
