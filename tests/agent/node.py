"""A node for tests: real agents as processes over a run folder, quick intervals, polling with a deadline."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from broker.agent.formats import Intervals, Lease, Spec
from broker.core.events.agent_events import CheckpointSaved
from broker.core.events.events import EventBody
from broker.engines.runfolder.mailbox import ExitRecord
from broker.engines.runfolder.runfolder import RunFolder
from tests.waiting import LONGEST, looks

_Answer = TypeVar("_Answer")
AGENT = (sys.executable, "-P", "-m", "broker.agent")
QUICK = Intervals(scan=0.05, mail=0.05, log=0.05, metrics=60.0, notice=0.05, patience=60.0)

# For job scripts: `save NAME [CONTENT]` writes a checkpoint as one should, with a rename.
SAVE = 'cd "$GPUBROKER_CHECKPOINT_DIR"; save() { echo "${2:-$1}" > ".$1"; mv ".$1" "$1"; }; '

# One that prints when it is up and goes on; one that saves as soon as it is told to stop.
SLEEP = "echo up; exec sleep 300"
SAVES_WHEN_TOLD = SAVE + "trap 'save step_9; exit 0' TERM; echo up; while :; do sleep 0.02; done"


def eventually(look: Callable[[], _Answer | None], what: str, seconds: float = LONGEST) -> _Answer:
    """The first answer that is not None, False or empty."""
    return next(found for _ in looks(what, seconds) if (found := look()))


class Node:
    """Agents of one job ``j``. ``runs_url``: where run folders lie; on this disk unless given (only then there is a
    folder ``job``). ``program``: what starts the agent; ``clean``: with next to no environment."""

    def __init__(
        self, folder: Path, runs_url: str | None = None, program: Sequence[str] = AGENT, *, clean: bool = False
    ) -> None:
        self.folder = folder
        self.program = program
        self.inherited = {"PATH": os.defpath} if clean else dict(os.environ)
        self.runs = RunFolder(runs_url or (folder / "runs").as_uri(), "j")
        self.job = folder / "runs" / "j"
        self.processes: list[subprocess.Popen[bytes]] = []

    def spec(
        self, command: str, attempt: int = 1, lease: Lease | None = None, key: str | None = None, **given: Any
    ) -> None:
        """``key``: what lease and spec are signed with."""
        intervals = replace(QUICK, **given.pop("intervals", {}))
        self.runs.write_lease(attempt, lease or Lease(), key)
        spec = Spec("j", attempt, f"j-{attempt}", command, **{"grace": 2.0, "intervals": intervals, **given})
        self.runs.write_spec(spec, key)

    def start(
        self,
        attempt: int = 1,
        rank: int = 0,
        gang: str = "",
        env: dict[str, str] | None = None,
        scratch: int | None = None,
    ) -> subprocess.Popen[bytes]:
        """``scratch``: the number of the agent whose folder this one gets; its own unless given."""
        number = len(self.processes)
        folder = self.scratch(number if scratch is None else scratch)
        arguments = ["--folder", self.runs.attempt_url(attempt), "--rank", str(rank), "--gang", gang]
        with (self.folder / f"agent-{number}.log").open("wb") as log:
            process = subprocess.Popen(
                [*self.program, *arguments, "--scratch", folder],
                env={**self.inherited, **(env or {})},
                stderr=log,
            )
        self.processes.append(process)
        return process

    def scratch(self, number: int = 0) -> Path:
        return self.folder / f"scratch-{number}"

    def run(self, command: str, attempt: int = 1, **given: Any) -> int:
        """From spec to the agent's exit status."""
        self.spec(command, attempt, **given)
        return self.start(attempt).wait(240)

    def said(self, number: int = 0) -> str:
        return (self.folder / f"agent-{number}.log").read_text()

    def events(self, attempt: int = 1) -> list[EventBody]:
        return [entry.body for entry in self.runs.read_attempt(attempt).journal]

    def saved(self, attempt: int = 1) -> list[int | None]:
        return [body.step for body in self.events(attempt) if isinstance(body, CheckpointSaved)]

    def ending(self, attempt: int = 1) -> ExitRecord:
        ending = self.runs.read_attempt(attempt).exit
        assert ending is not None, self.said()
        return ending

    def output(self, attempt: int = 1, rank: int = 0) -> list[str]:
        return list(self.runs.logs(attempt, rank))

    def until_said(self, line: str, attempt: int = 1, rank: int = 0) -> None:
        eventually(lambda: line in self.output(attempt, rank), f"the command prints {line!r}")

    def until_event(self, kind: str, attempt: int = 1) -> EventBody:
        found: list[EventBody] = eventually(
            lambda: [body for body in self.events(attempt) if body.kind == kind], f"event {kind}"
        )
        return found[0]

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def alive(pid: int) -> bool:
    """Neither gone nor a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
