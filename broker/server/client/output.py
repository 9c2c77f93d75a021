"""The output, results and checkpoints of a job at a team server."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from broker.agent.names import escape_unprintable, from_text
from broker.app.jobs.file_documents import CheckpointFile, OutputResult
from broker.app.jobs.job_files import RemoteFile, path_matches
from broker.app.jobs.logs import LogLine
from broker.app.use_cases import jobs as use_cases
from broker.app.use_cases.jobs import job_logs, list_files, show_job
from broker.core.errors import UnknownName
from broker.server.client.team_api import TeamApi

_MAX_LINES = 5_000  # lines in one answer
POLL_SECONDS = 2.0  # seconds


def lines(
    api: TeamApi, job_id: str, *, attempt: int | None = None, node: int | None = None, start: int = 0
) -> Iterator[LogLine]:
    """The lines that the job's command printed, without the first ``start`` ones: of all attempts or of one, of all
    nodes or of one."""
    while batch := _fetch_lines(api, job_id, attempt, node, _MAX_LINES, start):
        yield from batch
        start += len(batch)


def last_lines(
    api: TeamApi, job_id: str, limit: int, *, attempt: int | None = None, node: int | None = None
) -> Iterable[LogLine]:
    """The last of these lines, ``limit`` at most."""
    if limit > _MAX_LINES:
        return deque(lines(api, job_id, attempt=attempt, node=node), maxlen=limit)
    return _fetch_lines(api, job_id, attempt, node, limit)


def _fetch_lines(
    api: TeamApi, job_id: str, attempt: int | None, node: int | None, limit: int, start: int | None = None
) -> list[LogLine]:
    logs = api.run(job_logs, job_id, attempt, node, limit, start)
    return [LogLine(row.attempt, None, row.line) for row in logs.lines]


def follow(api: TeamApi, job_id: str, attempt: int | None = None) -> Iterator[LogLine | None]:
    """As `broker.app.jobs.logs.follow`."""
    start = 0
    while True:
        job = api.run(show_job, job_id)
        for line in lines(api, job_id, attempt=attempt, start=start):
            start += 1
            yield line
        if job.state.final or job.waits_for_people:
            return
        if any(attempt_result.state.final for attempt_result in job.attempts if attempt_result.number == attempt):
            return
        yield None
        time.sleep(POLL_SECONDS)  # each look is a request, which the server counts


def results(api: TeamApi, id: str, path: str | None, attempt: int | None) -> list[RemoteFile]:
    """The results of a job at or below ``path``, or that match it as a pattern; of an array, those of all tasks,
    matched within each task. Raises `UnknownName` if there are none."""
    listed = api.run(list_files, id, attempt).files
    paths = [file.path if file.job == id else file.path.partition("/")[2] for file in listed]
    matching = [file for file, own_path in zip(listed, paths, strict=True) if path_matches(from_text(own_path), path)]
    if path is not None and not matching:
        raise UnknownName("result", path, list(map(escape_unprintable, dict.fromkeys(paths))))
    return [_remote_file(api, f"/jobs/{file.job}/files", file, attempt=attempt) for file in matching]


def checkpoint_files(api: TeamApi, id: str, checkpoint: str) -> list[RemoteFile]:
    """The files of a checkpoint: the newest (``latest``), the newest at a step, or the one with that id or name."""
    listing = api.run(use_cases.checkpoint_files, id, checkpoint)
    return [_remote_file(api, f"/jobs/{id}/checkpoints/{listing.checkpoint}", file) for file in listing.files]


def _remote_file(api: TeamApi, folder: str, file: OutputResult | CheckpointFile, **parameters: Any) -> RemoteFile:
    def content(start: int) -> Iterator[bytes]:
        return api.content(f"{folder}/{file.sha256}", start=start, **parameters)

    mode, target = int(file.mode, 8), from_text(file.target)
    return RemoteFile(from_text(file.path), file.bytes, file.sha256, content, file.kind, mode, target)
