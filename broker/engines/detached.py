"""One detached process per key, never two. It outlives the process that started it.

The process inherits a file lock that is taken before its start. So a held lock means that it, or a child of it, is
alive, whichever other process was killed. A key whose process has run is never started again.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.agent.output import last_lines
from broker.agent.processes import end_orphans, kernel_start, orphans
from broker.agent.store import make_private
from broker.core.errors import GiveUp, RetryLater
from broker.core.values.clock import Clock

if TYPE_CHECKING:
    import psutil


# Each of these proves that a process was started: the parent writes the first, the process the others.
_AGENT, _GONE = "agent.json", "gone.json"
_TRACES = ("started.json", _AGENT, "state.json")
KEY = re.compile(r"[A-Za-z0-9-]{1,40}")


@dataclass(frozen=True)
class Slot:
    """The private folder of one key, and its process."""

    folder: Path

    @classmethod
    def of(cls, root: Path, key: str) -> Slot:
        """Raises `GiveUp` for a key that is not one plain file name."""
        if not KEY.fullmatch(key):
            raise GiveUp(f"not a launch key: {key!r}", hint="letters, digits and dashes, at most 40")
        return cls(root / key)

    @property
    def _lock(self) -> Path:
        return self.folder / "alive.lock"

    @property
    def output(self) -> Path:
        """The process's own output, not the job's."""
        return self.folder / "process.log"

    def known(self) -> bool:
        """Whether a process was ever started here."""
        return self.has_run() or self.alive()

    def alive(self) -> bool:
        """Whether the process still runs, or anything that keeps its lock, or what a dead agent's command started."""
        return self._is_locked() or any(map(orphans, self._dead_agents()))

    def _dead_agents(self) -> Iterator[Path]:
        """The folders of agents that were killed, unless the end of their machine is already known."""
        if (self.folder / _GONE).exists() or (self.read("state.json") or {}).get("gone_at"):
            return
        for record in [self.folder / _AGENT, *self.folder.glob(f"node-*/{_AGENT}")]:
            agent = self.read(str(record.relative_to(self.folder)))
            if agent and agent.get("ended") is None and agent.get("born") not in (None, kernel_start(agent["pid"])):
                yield record.parent

    def _is_locked(self) -> bool:
        try:
            descriptor = os.open(self._lock, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            # A shared lock, so that two concurrent readers do not mistake each other for the process.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def start(
        self, arguments: Callable[[int], Sequence[str]], environment: Mapping[str, str], also: Sequence[int] = ()
    ) -> None:
        """Start the process unless one was started before. ``arguments`` gets the descriptor of the lock, which the
        process and its children must keep open; ``also``: further descriptors to inherit. Raises `RetryLater`."""
        try:
            make_private(self.folder)
            with self._locked() as descriptor:
                if descriptor is None or self.has_run():
                    return
                with self.output.open("ab") as output:
                    process = subprocess.Popen(  # noqa: S603 (arguments come from engines, not from users)
                        list(arguments(descriptor)),
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        env=dict(environment),
                        cwd="/",
                        pass_fds=(descriptor, *also),
                        start_new_session=True,
                    )
                self.write("started.json", process_record(process.pid))
        except OSError as error:
            raise RetryLater(f"cannot start a process: {error.strerror or error}", where=str(self.folder)) from error
        # Reap the process if it ends before this one.
        threading.Thread(target=process.wait, name=f"reap-{process.pid}", daemon=True).start()

    def has_run(self) -> bool:
        """Whether a start of the process was recorded here, whether it still runs or not."""
        return any((self.folder / name).exists() for name in _TRACES)

    @contextmanager
    def _locked(self) -> Iterator[int | None]:
        """The lock's descriptor, or None if the process holds it. Waits while readers hold the lock, for at most a
        second.
        """
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            for _ in range(200):
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if self.has_run():
                        break
                    time.sleep(0.005)
                else:
                    yield descriptor
                    return
            yield None
        finally:
            os.close(descriptor)

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON document of the folder; None if it is missing or malformed."""
        try:
            document = json.loads((self.folder / name).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return document if isinstance(document, dict) else None

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a JSON document atomically, readable by the owner only."""
        draft = self.folder / f".{name}.{os.getpid()}.{threading.get_ident()}"
        draft.write_text(json.dumps(dict(document)), "utf-8")
        draft.chmod(0o600)
        draft.replace(self.folder / name)

    def keep_first(self, name: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Write the document unless it exists; return the stored one, which never changes."""
        stored = self.read(name)
        if stored is None:
            draft = f"draft-{os.getpid()}-{threading.get_ident()}.json"
            self.write(draft, document)
            with suppress(FileExistsError):
                (self.folder / name).hardlink_to(self.folder / draft)
            (self.folder / draft).unlink()
            stored = self.read(name)
        return stored or dict(document)

    def last_seen(self, clock: Clock, *names: str) -> datetime:
        """When a process that has ended was last known to run, by ``clock`` (UTC): the newest change of the files
        ``names``, which it touched. Computed once and stored, so that bills do not change later. Deletes what the
        commands of dead agents printed, as `enforce` does.
        """
        for scratch in self._dead_agents():
            (scratch / "output.log").unlink(missing_ok=True)
        now = time.time()
        touched = [path.stat().st_mtime for path in map(self.folder.joinpath, names) if path.exists()]
        at = clock.now() - timedelta(seconds=(now - max(touched, default=now)) * clock.scale)
        return datetime.fromisoformat(self.keep_first(_GONE, {"at": at.isoformat()})["at"])

    def cancel(self) -> None:
        """Request the end of the process; `enforce` carries it out. Idempotent."""
        if self.alive() and self.read("cancelled.json") is None:
            self.write("cancelled.json", {"wall": datetime.now(UTC).isoformat()})

    def enforce(self, patience: timedelta) -> None:
        """Kill what the commands of dead agents left running, and delete what they printed, which may have values of
        secrets. After a cancellation: send SIGTERM once, and SIGKILL if
        the process still runs ``patience`` (wall-clock time) later. Each observation calls this, so no process has to
        wait."""
        cancelled = self.read("cancelled.json")
        started = self.read("started.json") or self.read(_AGENT)
        for scratch in self._dead_agents():
            if end_orphans(scratch):
                (scratch / "output.log").unlink(missing_ok=True)
        if cancelled is None or started is None:  # the pid may not be recorded yet; then the next observation acts
            return
        if datetime.now(UTC) - datetime.fromisoformat(cancelled["wall"]) > patience:
            self._send(signal.SIGKILL, started)
        elif self.read("told.json") is None:
            self.write("told.json", {})
            self._send(signal.SIGTERM, started)

    def _send(self, number: signal.Signals, started: Mapping[str, Any]) -> None:
        """Send the signal if the pid still belongs to the process."""
        import psutil  # imported here: every sandbox machine imports this module, and few send a signal

        with suppress(psutil.Error, OSError):
            process = psutil.Process(int(started["pid"]))
            if self.alive() and is_same_process(process, started):
                process.send_signal(number)

    def last_words(self) -> str:
        """The last line of the process's own output, as evidence."""
        return "".join(last_lines(self.output))


def process_record(pid: int) -> dict[str, Any]:
    """A record that identifies a process even if its pid is used again."""
    return {"pid": pid, "wall": datetime.now(UTC).isoformat(), "born": kernel_start(pid)}


def is_same_process(process: psutil.Process, recorded: Mapping[str, Any]) -> bool:
    """Whether the pid still belongs to the recorded process.

    Without a recorded start in kernel ticks, the wall clock decides: a process that started after the record was made
    is another one.
    """
    born = recorded.get("born")
    if born is not None:
        return kernel_start(int(recorded["pid"])) == str(born)
    recorded_at = datetime.fromisoformat(str(recorded["wall"])).timestamp()
    return float(process.create_time()) <= recorded_at + 1


@contextmanager
def bind_to_cpus(cpus: Sequence[int]) -> Iterator[None]:
    """Binds processes that this thread starts in the block, and their children, to these CPUs; if none are given, to
    the thread's own.
    """
    if not cpus or not hasattr(os, "sched_setaffinity"):
        yield
        return
    previous = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, previous)
