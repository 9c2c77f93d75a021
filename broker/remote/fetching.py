"""Downloads through a team server: the files that a job has kept there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.agent.names import from_text, shown
from broker.app.jobs.kept_files import RemoteFile, matches
from broker.app.results.kept_files import CheckpointFile, CheckpointFiles, JobOutputs, OutputResult
from broker.core.errors import UnknownName
from broker.remote.team_api import TeamApi


def results(api: TeamApi, id: str, path: str | None, attempt: int | None) -> list[RemoteFile]:
    """The results of a job at or below ``path``, or that match it as a pattern. Raises `UnknownName` if there are
    none."""
    found = api.fetch(JobOutputs, f"/jobs/{id}/files", attempt=attempt).files
    chosen = [one for one in found if matches(from_text(one.path), path)]
    if path is not None and not chosen:
        raise UnknownName("result", path, [shown(one.path) for one in found])
    return [_remote(api, f"/jobs/{id}/files", one, attempt=attempt) for one in chosen]


def of_checkpoint(api: TeamApi, id: str, checkpoint: str) -> list[RemoteFile]:
    """The files of a checkpoint: the newest (``latest``), the newest at a step, or the one with that id or name."""
    found = api.fetch(CheckpointFiles, f"/jobs/{id}/checkpoints/{checkpoint}")
    return [_remote(api, f"/jobs/{id}/checkpoints/{found.checkpoint}", one) for one in found.files]


def _remote(api: TeamApi, folder: str, one: OutputResult | CheckpointFile, **more: Any) -> RemoteFile:
    def content(start: int) -> Iterator[bytes]:
        return api.content(f"{folder}/{one.sha256}", start=start, **more)

    mode, target = int(one.mode, 8), from_text(one.target)
    return RemoteFile(from_text(one.path), one.bytes, one.sha256, content, one.kind, mode, target)
