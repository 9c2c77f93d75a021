"""A cluster that is gone: its agents' files, the reason for its end, and the record of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from broker.agent.store import split_folder
from broker.core.events.outcomes import Cause
from broker.core.ports import EngineState, Observation
from broker.engines.detached import Slot
from broker.runfolder.runfolder import AttemptFolder, RunFolder

UNKNOWN = Observation(EngineState.LOST, evidence="SkyPilot has no record of it")


def run_folder(launch: Mapping[str, Any]) -> tuple[RunFolder, int]:
    job, attempt = split_folder(str(launch["run_folder"]))
    runs_url, _, job_id = job.rpartition("/")
    return RunFolder(runs_url, job_id), attempt


def folder_of(slot: Slot) -> AttemptFolder | None:
    """The attempt's folder, written by its agents; None if this machine does not know it. Raises `BrokerError`."""
    launch = slot.read("launch.json")
    if launch is None:
        return None
    runs, attempt = run_folder(launch)
    return runs.read_state(attempt)


def why_gone(folder: AttemptFolder | None) -> tuple[bool, str]:
    """Whether the machines were preempted, and the evidence. After an agent ends by itself, SkyPilot takes its cluster
    down; an agent that never started was not interrupted.
    """
    if folder is None:
        return True, "the cluster is gone"
    if folder.exit is not None:
        taken = folder.exit.cause is Cause.PREEMPTED
        return taken, f"the cluster is gone; the agent ended: {folder.exit.cause.value}"
    if not folder.claims:
        return False, "the cluster went away before the agent started: setup failed, or the machine was taken"
    return True, "the cluster is gone, and its agent had not ended: its machines were taken away"


def from_record(record: Mapping[str, Any]) -> Observation:
    since = record.get("since")
    return Observation(
        EngineState.GONE,
        datetime.fromisoformat(since) if since else None,
        datetime.fromisoformat(record["at"]),
        bool(record["interrupted"]),
        str(record["evidence"]),
        bool(record.get("no_capacity")),
    )
