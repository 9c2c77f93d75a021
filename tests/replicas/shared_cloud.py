"""A cloud in a folder that several processes use at once: an engine, and the run folders of its machines.

Unlike a real engine it does not recognise a key that it was given before: each call of ``submit`` starts a machine and
leaves a file, so that a launch made twice shows. A machine runs for its job's time and ends; some machines of first
attempts are taken back by the provider. What happens follows from the key and the clock, so no process has to play it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zlib import crc32

from broker.core.events.agent_events import Claimed, CommandStarted, Restored
from broker.core.events.outcomes import Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.policy.policy import Usage
from broker.core.ports import EngineState, Launch, Observation
from broker.core.values.clock import Clock
from broker.runfolder.mailbox import LeaseGrant
from broker.runfolder.node_state import Dated, ExitRecord, NodeState

ENGINE = "shared-cloud"
LAUNCH_TAKES = "launch-takes"
RUNS = timedelta(seconds=2)
TAKEN_BACK_AFTER = timedelta(seconds=1)
TAKEN_BACK = 4  # of so many first attempts, one


@dataclass(frozen=True, slots=True)
class CloudVisit:
    """One machine: from when until when, and whether the provider took it back. Times in UTC."""

    key: str
    since: datetime
    until: datetime
    interrupted: bool


class SharedCloud:
    """``folder``: of all processes alike. A launch takes as many seconds of waiting as its file `LAUNCH_TAKES` says."""

    name = ENGINE
    honours: frozenset[str] = frozenset()
    remote = False  # else no job would start there without an object store

    def __init__(self, folder: Path, clock: Clock) -> None:
        takes = folder / LAUNCH_TAKES
        self._clock, self._launch_takes = clock, float(takes.read_text()) if takes.exists() else 0.0
        self._machines, self._ended = folder / "machines", folder / "ended"
        for one in (self._machines, self._ended):
            one.mkdir(parents=True, exist_ok=True)

    # --- the engine -------------------------------------------------------------------------------------------------

    def submit(self, launch: Launch) -> str:
        if self._launch_takes:  # a real launch mostly waits; this is what two replicas can overlap
            self._clock.sleep(self._launch_takes)
        folder = self._machines / launch.key
        folder.mkdir(exist_ok=True)
        os.close(os.open(folder / os.urandom(6).hex(), os.O_CREAT | os.O_EXCL))
        return launch.key

    def find(self, key: str) -> str | None:
        return key if self._of(key) else None

    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        return {handle: self._look(handle) for handle in handles}

    def _look(self, handle: str) -> Observation:
        visit = self.visit(handle)
        if visit is None:
            return Observation(EngineState.LOST)
        if datetime.now(UTC) < visit.until:
            return Observation(EngineState.UP, visit.since)
        return Observation(EngineState.GONE, visit.since, visit.until, visit.interrupted, "the machine is gone")

    def cancel(self, handle: str) -> None:
        (self._ended / handle).touch(exist_ok=True)

    # --- what happened ----------------------------------------------------------------------------------------------

    def visit(self, key: str) -> CloudVisit | None:
        """The first machine of an attempt."""
        machines = self._of(key)
        if not machines:
            return None
        since = min(datetime.fromtimestamp(one.stat().st_mtime, UTC) for one in machines)
        lost = key.endswith("-1") and crc32(key.encode()) % TAKEN_BACK == 0
        until = since + (TAKEN_BACK_AFTER if lost else RUNS)
        ended = self._ended / key
        if ended.exists():
            until = min(until, datetime.fromtimestamp(ended.stat().st_mtime, UTC))
        return CloudVisit(key, since, until, lost)

    def launches(self) -> dict[str, int]:
        """How many machines each attempt got."""
        return {one.name: len(list(one.iterdir())) for one in self._machines.iterdir()}

    def _of(self, key: str) -> list[Path]:
        folder = self._machines / key
        return list(folder.iterdir()) if folder.is_dir() else []

    # --- the run folders --------------------------------------------------------------------------------------------

    def url(self, view: JobView, attempt: AttemptView) -> str:
        return f"memory:///{view.id}/attempts/{attempt.number}"

    def prepare(self, view: JobView, attempt: AttemptView, lease: LeaseGrant) -> None:
        """These nodes know what they have to do."""

    def write_lease(self, view: JobView, attempt: AttemptView, lease: LeaseGrant) -> None:
        """These nodes do not last long enough to need one."""

    def lease(self, view: JobView, attempt: AttemptView) -> LeaseGrant | None:
        return None

    def renew_access(self, view: JobView, attempt: AttemptView) -> None:
        """These nodes need none."""

    def variables(self, view: JobView, attempt: AttemptView) -> Mapping[str, str]:
        return {}

    def usage(self, view: JobView, attempt: AttemptView) -> Sequence[Usage]:
        return ()

    def read(self, view: JobView, attempt: AttemptView) -> NodeState:
        visit, now = self.visit(attempt.key), datetime.now(UTC)
        if visit is None:
            return NodeState()
        said = [
            Dated(visit.since, body) for body in (Claimed(host="node"), Restored(checkpoint=None), CommandStarted())
        ]
        ended = None
        if now >= visit.until and not visit.interrupted:
            ended = ExitRecord(visit.until, Cause.COMPLETED, 0)
        return NodeState(journal=tuple(said[attempt.agent_events :]), heartbeat_at=min(now, visit.until), exit=ended)


def make(home: Path, clock: Clock) -> SharedCloud:
    """The engine as the registry makes it. ``home``: its folder below the home folder, which all processes share."""
    return SharedCloud(home, clock)
