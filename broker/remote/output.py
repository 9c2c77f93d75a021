"""The output, results and checkpoints of a job at a team server."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from broker.agent.names import from_text, shown
from broker.app.jobs.kept_files import RemoteFile, matches
from broker.app.jobs.logs import LogLine
from broker.app.results.job_history import JobHistory
from broker.app.results.jobs import JobLogs
from broker.app.results.kept_files import CheckpointFile, CheckpointFiles, JobOutputs, OutputResult
from broker.core.errors import UnknownName
from broker.remote.team_api import TeamApi

_MOST = 5_000  # lines in one answer
LOOK_EVERY = 2.0  # seconds


def lines(
    api: TeamApi, job_id: str, *, attempt: int | None = None, node: int | None = None, start: int = 0
) -> Iterator[LogLine]:
    """The lines that the job's command printed, without the first ``start`` ones: of all attempts or of one, of all
    nodes or of one."""
    while found := _some(api, job_id, attempt, node, _MOST, start):
        yield from found
        start += len(found)


def last_lines(
    api: TeamApi, job_id: str, most: int, *, attempt: int | None = None, node: int | None = None
) -> Iterable[LogLine]:
    """The last of these lines, ``most`` at most."""
    if most > _MOST:
        return deque(lines(api, job_id, attempt=attempt, node=node), maxlen=most)
    return _some(api, job_id, attempt, node, most)


def _some(
    api: TeamApi, job_id: str, attempt: int | None, node: int | None, most: int, start: int | None = None
) -> list[LogLine]:
    found = api.fetch(JobLogs, f"/jobs/{job_id}/logs", attempt=attempt, node=node, tail=most, start=start)
    return [LogLine(one.attempt, None, one.line) for one in found.lines]


def follow(api: TeamApi, job_id: str, attempt: int | None = None) -> Iterator[LogLine | None]:
    """As `broker.app.jobs.logs.follow`."""
    start = 0
    while True:
        job = api.fetch(JobHistory, f"/jobs/{job_id}")
        for line in lines(api, job_id, attempt=attempt, start=start):
            start += 1
            yield line
        if job.state.final or job.waits_for_people:
            return
        if any(one.state.final for one in job.attempts if one.number == attempt):
            return
        yield None
        time.sleep(LOOK_EVERY)  # each look is a request, which the server counts


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
