"""The fixtures with which the contract of engines tests an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from broker.agent.clock import NodeClock
from broker.agent.formats import Intervals, Lease, PlacedTree, Sources, Spec
from broker.agent.store import ObjectFolder
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.ports import Engine, EngineState, Launch, Observation
from broker.core.values.clock import Clock, ScaledClock
from broker.engines.runfolder.mailbox import ExitRecord
from broker.engines.runfolder.runfolder import RunFolder
from broker.engines.snapshots.collect import collect
from broker.engines.snapshots.upload import store_tree
from tests.waiting import LONGEST, looks

_Answer = TypeVar("_Answer")
NEEDS = {
    "several_nodes", "workdir", "setup", "file_mounts", "secrets", "image", "disk_tier", "network_tier",
    "skypilot_config", "another_machine",
}  # fmt: skip
QUICK = Intervals(scan=0.05, mail=0.05, log=0.05, metrics=5.0, notice=0.05, patience=60.0)
SECONDS = LONGEST  # the time after which an expected event counts as missing


def eventually(look: Callable[[], _Answer | None], what: str) -> _Answer:
    """The first result of ``look`` that is not None (or False)."""
    return next(found for _ in looks(what, SECONDS) if (found := look()) is not None and found is not False)


@dataclass
class Bench:
    """An engine and a place to run jobs.

    ``make`` returns a new instance with the same state, as after a restart. ``another_home`` returns the same engine as
    another user or machine has it, with the same store. ``doomed``: a placement whose machine the provider takes back
    when ``take_away`` is called with the handle.
    """

    make: Callable[[], Engine]
    placement: Placement
    clock: Clock
    folder: Path
    doomed: Placement
    take_away: Callable[[str], None]
    another_home: Callable[[], Engine] | None = None
    numbers: count[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.engine = self.make()
        self.runs_url = (self.folder / "runs").as_uri()

    def launch(
        self,
        command: str,
        placement: Placement | None = None,
        secrets: Mapping[str, str] | None = None,
        envs: Mapping[str, str] | None = None,
        sources: Sources | None = None,
        grace: float = 1.0,
    ) -> Launch:
        """A launch of a new job, with its run folder prepared. ``grace``: seconds that it has to save."""
        number = next(self.numbers)
        job_id, key = f"job{number}", f"job{number}-1"
        scaled = self.clock if isinstance(self.clock, ScaledClock) else None
        clock = NodeClock(scaled.origin, scaled.starts_at, scaled.scale) if scaled else NodeClock()
        runs = RunFolder(self.runs_url, job_id)
        runs.write_lease(1, Lease())
        given: dict[str, Any] = {"envs": envs or {}, "sources": sources}
        names = tuple(secrets or ())
        spec = Spec(job_id, 1, key, command, secrets=names, grace=grace, intervals=QUICK, clock=clock, **given)
        runs.write_spec(spec)
        job = Job(name="contract", run=command, secrets=names)
        return Launch(key, job, placement or self.placement, runs.attempt_url(1), secrets or {})

    def printed(self, launch: Launch) -> list[str]:
        """What the command of the launch printed on its first node."""
        return list(RunFolder(self.runs_url, launch.key.removesuffix("-1")).logs(1))

    def brought(self, folder: Path) -> Sources:
        """A snapshot of the folder, in the run store beside the run folders."""
        pool = ObjectFolder.open(f"{self.runs_url}/snapshots-contract")
        tree, _ = store_tree(lambda: collect(folder), lambda: pool)
        return Sources("snapshots-contract", (PlacedTree(tree),))

    def doomed_one(self) -> str:
        """The handle of an attempt whose command runs, on a machine that can be taken away."""
        launch = self.launch("exec sleep 300", self.doomed)
        handle = self.engine.submit(launch)
        self.until(handle, EngineState.UP)
        runs = RunFolder(self.runs_url, launch.key.removesuffix("-1"))
        eventually(
            lambda: any(entry.body.kind == "command_started" for entry in runs.read_attempt(1).journal),
            "the command runs",
        )
        return handle

    def look(self, handle: str) -> Observation:
        return self.engine.observe([handle])[handle]

    def until(self, handle: str, state: EngineState) -> Observation:
        def reached() -> Observation | None:
            seen = self.look(handle)
            return seen if seen.state is state else None

        return eventually(reached, f"{handle} is {state.value}")

    def ending(self, launch: Launch) -> ExitRecord:
        ending = RunFolder(self.runs_url, launch.key.removesuffix("-1")).read_attempt(1).exit
        assert ending is not None, "gone, and no exit.json"
        return ending

    def mark(self) -> Path:
        """A new file for a command to write to."""
        return self.folder / f"mark-{next(self.numbers)}"


def lines(mark: Path) -> list[str]:
    return mark.read_text().splitlines() if mark.exists() else []
