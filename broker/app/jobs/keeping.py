"""How long the files of a job are kept. Pure; their deletion is in other modules, because it needs run folders."""

from __future__ import annotations

from datetime import datetime

from broker.core.events.views import JobView
from broker.core.ports import PolicyDefaults


def kept_until(view: JobView, said: PolicyDefaults) -> dict[str, datetime | None]:
    """Until when checkpoints, results, logs and snapshots of an ended job are kept (UTC), by the defaults ``said`` of
    the policies; None: until a person deletes them. Empty for a job that has not ended."""
    if view.ended_at is None:
        return {}
    times = {"checkpoints": said.keep_checkpoints, "results": said.keep_results, "logs": said.keep_logs}
    if view.job.snapshot is not None:
        times["snapshots"] = said.keep_snapshots
    return {kind: None if time is None else view.ended_at + time for kind, time in times.items()}
