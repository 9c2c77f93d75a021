"""Server-sent events of a job: its events and its output, as they happen."""

import asyncio
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from broker.app.access.callers import Caller
from broker.app.access.tokens import authenticate
from broker.app.jobs import jobs
from broker.app.jobs.history_documents import event_document
from broker.app.jobs.logs import LogLine, OutputFollower
from broker.app.wiring import Broker
from broker.core.access.permissions import Permission
from broker.core.errors import BrokerError, RetryLater
from broker.core.events.views import JobView
from broker.server.api.callers import By, bearer_of
from broker.server.api.limits import TooManyRequests

log = logging.getLogger(__name__)

_POLL_SECONDS, _COMMENT_SECONDS = 1.0, 15.0  # seconds of the wall clock
_MAX_SECONDS = 600  # seconds; then the client connects again
_MAX_LINES = 1_000  # of output between two reads of the job
_MAX_PER_TOKEN, _MAX_TOTAL = 5, 60  # streams at once, of this process


@dataclass
class OpenStreams:
    """The number of open streams by token. Thread-safe."""

    _open: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def one(self, token: str) -> Iterator[None]:
        """Count one stream while it is open. Raises `TooManyRequests`."""
        with self._lock:
            if self._open[token] >= _MAX_PER_TOKEN or self._open.total() >= _MAX_TOTAL:
                raise TooManyRequests(_COMMENT_SECONDS, _MAX_PER_TOKEN)
            self._open[token] += 1
        try:
            yield
        finally:
            with self._lock:
                self._open[token] -= 1


_STREAMS = OpenStreams()


@dataclass
class JobStream:
    """The position of a client: events up to ``seq``, and ``lines`` of output. ``output``: whether the client wants
    output. ``more``: further lines are waiting to be sent; ``away``: the run store could not be read."""

    broker: Broker
    id: str
    seq: int
    lines: int
    output: bool
    skipped: int = 0
    more: bool = False
    away: bool = False
    followed: OutputFollower = field(init=False)
    unread: Iterator[LogLine] = field(init=False)

    def __post_init__(self) -> None:
        self.followed, self.unread = OutputFollower(self.broker), iter(())

    def news(self, view: JobView) -> Iterator[str]:
        """The messages about new events and output since the last call."""
        if view.seq > self.seq:
            for event in jobs.events(self.broker, view):
                if event.seq > self.seq:
                    self.seq = event.seq
                    yield self._message("event", event_document(event))
        if self.output:
            for line in self._lines(view):
                if self.skipped < self.lines:
                    self.skipped += 1
                    continue
                self.lines = self.skipped = self.lines + 1
                yield self._message("output", {"attempt": line.attempt, "rank": line.rank, "line": line.text})

    def _lines(self, view: JobView) -> Iterator[LogLine]:
        """The next lines, at most `_MAX_LINES`. Further lines that were read stay in ``unread`` and are not read
        again."""
        self.more = self.away = has_read = False
        for _ in range(_MAX_LINES):
            try:
                line = next(self.unread, None)
                if line is None and not has_read:
                    self.unread, has_read = self.followed.new(view, None), True
                    line = next(self.unread, None)
            except RetryLater:  # the next call continues
                self.away = True
                return
            if line is None:
                return
            yield line
        self.more = True

    def _message(self, kind: str, data: object) -> str:
        return f"event: {kind}\nid: {self.seq}.{self.lines}\ndata: {json.dumps(data)}\n\n"


async def stream_job(
    request: Request,
    by: By,
    id: str,
    output: Annotated[bool, Query(description="Also the output of the job's command.")] = False,
    seconds: Annotated[
        int, Query(ge=0, le=_MAX_SECONDS, description="Then the stream ends; 0: what is there now.")
    ] = 300,
    last: Annotated[str | None, Header(alias="Last-Event-ID", max_length=40)] = None,
) -> Response:
    """Events of a job as they happen (`text/event-stream`): `event` has an event as in the job's document, `output` a
    line, `end` is the last message: the job is closed, the time is up, the token is no longer
    accepted, or the server has trouble reading.
    `Last-Event-ID` continues a stream that was cut off."""
    permission = Permission.SEE_OUTPUT if output else Permission.SEE_JOBS
    await run_in_threadpool(by.job, id, permission)
    seq, lines = _place(last)
    stream = JobStream(by.broker, id, seq, lines, output)
    headers = {"X-Accel-Buffering": "no"}
    messages = _messages(request, by, stream, permission, time.monotonic() + seconds)
    return StreamingResponse(messages, headers=headers, media_type="text/event-stream")


async def _messages(
    request: Request, by: Caller, stream: JobStream, permission: Permission, until: float
) -> AsyncIterator[str]:
    try:
        with _STREAMS.one(by.token):
            quiet_since = time.monotonic()
            while True:
                messages, end_reason = await run_in_threadpool(
                    _read_news, by.broker, stream, permission, bearer_of(request)
                )
                for message in messages:
                    yield message
                now = time.monotonic()
                if end_reason or (now >= until and not stream.more):
                    yield f'event: end\ndata: {{"because": "{end_reason or "time"}"}}\n\n'
                    return
                if messages:
                    quiet_since = now
                elif now - quiet_since >= _COMMENT_SECONDS:
                    quiet_since = now
                    yield ": still here\n\n"
                await asyncio.sleep(0 if stream.more else min(_POLL_SECONDS, until - now))
    except TooManyRequests as error:
        yield f'event: end\nretry: {int((error.after or 0) * 1000)}\ndata: {{"because": "too many streams"}}\n\n'
    except BrokerError as error:  # the answer has begun: the client learns of the error only by an `end`
        log.warning("request %s: the stream of %s ended: %s", by.request_id, stream.id, error)
        yield 'event: end\ndata: {"because": "trouble"}\n\n'


def _read_news(broker: Broker, stream: JobStream, permission: Permission, token: str) -> tuple[list[str], str]:
    """The new messages, and why the stream ends; empty if it continues. The token is checked each time, so that the
    stream ends when the token is revoked or its owner loses the role."""
    entrant = authenticate(broker, token)
    with broker.store.reading() as snapshot:
        try:
            view = snapshot.job(stream.id)
        except BrokerError:
            view = None
    if entrant is None or view is None or not entrant.access.may(permission, view.job.team):
        return [], "access"
    messages = list(stream.news(view))
    return messages, "closed" if view.closed and not (stream.more or stream.away) else ""


def _place(last: str | None) -> tuple[int, int]:
    """The numbers of events and lines that the client has received; zeros for an id in another format."""
    seq, _, lines = (last or "").partition(".")
    return (int(seq), int(lines)) if seq.isdecimal() and lines.isdecimal() else (0, 0)
