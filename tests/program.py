"""The real program in separate processes, and the processes that belong to it: for tests from the outside."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import psutil

from broker.core.events.events import body_from_json
from tests.waiting import LONGEST, looks

ROOT = Path(__file__).parents[1]
# Started as users do, except for the script, which is tested with the wheel.
GPUBROKER = (sys.executable, "-P", "-m", "cli")
NOTHING: Mapping[str, str] = MappingProxyType({})
T = TypeVar("T")


def environment(home: Path, **more: str) -> dict[str, str]:
    """A clean environment: the present one without the settings of the person who runs the tests."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GPUBROKER_")}
    own = {
        "GPUBROKER_HOME": str(home),
        "GPUBROKER_ENGINES__LOCAL__REGISTER": str(home / "given"),
        "GPUBROKER_OFFLINE": "true",
    }
    return {**inherited, **own, "NO_COLOR": "1", "COLUMNS": "160", **more}


def start(
    *arguments: str, home: Path, cwd: Path | None = None, env: Mapping[str, str] = NOTHING, **more: str
) -> subprocess.Popen[str]:
    """Start the program in a new session. ``env`` and ``more``: variables of its environment."""
    return subprocess.Popen(
        [*GPUBROKER, *arguments],
        env=environment(home, **env, **more),
        cwd=cwd or home.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(
    *arguments: str,
    home: Path,
    cwd: Path | None = None,
    timeout: float = LONGEST,
    env: Mapping[str, str] = NOTHING,
    **more: str,
) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    with start(*arguments, home=home, cwd=cwd, env=env, **more) as process:
        out, err = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


# By which words in its command line each process of the program is recognised.
MARKS: Mapping[str, tuple[str, ...]] = {
    "reconciler": ("cli", "reconcile"),
    "agent": ("broker.agent",),
    "machine": ("broker.engines.sandbox.machine",),
}


def processes(home: Path, what: str = "") -> list[psutil.Process]:
    """The running processes that belong to a home: all, or only the ``reconciler``, the ``agent``, the (sandbox)
    ``machine``, or the ``command`` of a job itself, including children.
    """
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            variables, words = process.environ(), process.cmdline()
            checkpoints = variables.get("GPUBROKER_CHECKPOINT_DIR", "")
            is_command = checkpoints.startswith(f"{home}/")
            is_agent = MARKS["agent"][0] in words and any(f"{home}/" in word for word in words)  # its run folder
            by_name = variables.get("GPUBROKER_HOME", "").startswith(str(home)) or str(home) in words
            if not (is_command or is_agent or by_name):
                continue
            if not what or (is_command if what == "command" else all(mark in words for mark in MARKS[what])):
                found.append(process)
    return found


def kill(victims: list[psutil.Process]) -> int:
    """Send SIGKILL to all of them; returns their number."""
    for victim in victims:
        with suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.SIGKILL)
    return len(victims)


def eventually(look: Callable[[], T | None], what: str, seconds: float = LONGEST) -> T:
    """The first true result of ``look``."""
    return next(found for _ in looks(what, seconds) if (found := look()))


def counted(home: Path, kind: str, at_least: int = 1) -> Callable[[], bool]:
    """Returns a function that tells whether the first store below ``home`` has ``at_least`` events of that kind."""

    def look() -> bool:
        for store in home.rglob("gpubroker.db"):
            with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
                query = "SELECT count(*) FROM attempt_event WHERE kind = ?"
                return bool(connection.execute(query, (kind,)).fetchone()[0] >= at_least)
        return False

    return look


def body_of(text: str) -> dict[str, Any]:
    """The fields of a stored event, defaults included."""
    return body_from_json(text).model_dump(mode="json")


def rows(store: Path, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        return connection.execute(query, values).fetchall()
