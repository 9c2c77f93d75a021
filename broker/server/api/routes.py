"""The table of all routes, each with the permission that it needs: those of use cases, those of whole responses, and
the server-sent events of a job."""

import asyncio
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from hashlib import sha256
from http import HTTPStatus
from inspect import Parameter, Signature, signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, get_args, get_type_hints

from fastapi import Depends, Header, Query, Request
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, create_model
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.staticfiles import NotModifiedResponse
from starlette.types import Receive, Scope, Send

from broker.app.access.callers import Caller
from broker.app.access.tokens import Entrant, authenticate
from broker.app.billing.focus import export
from broker.app.documents import json_text
from broker.app.jobs import jobs
from broker.app.jobs.history_documents import event_document
from broker.app.jobs.logs import LogLine, OutputFollower
from broker.app.jobs.preview import NoFeasibleCapacity
from broker.app.outside.documents import SlurmAdmission
from broker.app.outside.skypilot_requests import answer_request
from broker.app.outside.slurm_requests import SlurmRequest, admit_submission
from broker.app.use_cases.changes import change
from broker.app.use_cases.money import FocusForm, FocusVersion
from broker.app.use_cases.pages import Cursor, Names, PageLimit, page_class, page_of
from broker.app.use_cases.table import IN_QUERY, USE_CASES, UseCase
from broker.app.wiring import Broker
from broker.core.access.people import Permission
from broker.core.errors import ApprovalNeeded, BrokerError, InvalidInput, NotAllowed, RetryLater, UnknownName
from broker.core.events.views import JobView
from broker.server.api import contents
from broker.server.api.callers import By, bearer_of
from broker.server.api.limits import TooManyRequests
from broker.server.api.paths import DEVICE_AUTHORIZATION, REVOCATION, TOKEN, VERSION

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
    await run_in_threadpool(by.job, id, Permission.SEE_OUTPUT if output else Permission.SEE_JOBS)
    seq, lines = _place(last)
    stream = JobStream(by.broker, id, seq, lines, output)
    return stream_response(by, stream, seconds, lambda: authenticate(by.broker, bearer_of(request)))


def stream_response(
    by: Caller, stream: JobStream, seconds: float, authenticate: Callable[[], Entrant | None]
) -> Response:
    """The messages of that many seconds. ``authenticate``: asked before each look, so that the stream ends when a token
    or a session is revoked, or its owner loses the role."""
    messages = _messages(by, stream, time.monotonic() + seconds, authenticate)
    return StreamingResponse(messages, headers={"X-Accel-Buffering": "no"}, media_type="text/event-stream")


async def _messages(
    by: Caller, stream: JobStream, until: float, authenticate: Callable[[], Entrant | None]
) -> AsyncIterator[str]:
    try:
        with _STREAMS.one(by.token):
            quiet_since = time.monotonic()
            while True:
                messages, end_reason = await run_in_threadpool(_read_news, stream, authenticate)
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


def _read_news(stream: JobStream, authenticate: Callable[[], Entrant | None]) -> tuple[list[str], str]:
    """The new messages, and why the stream ends; empty if it continues."""
    entrant, needed = authenticate(), Permission.SEE_OUTPUT if stream.output else Permission.SEE_JOBS
    with stream.broker.store.reading() as snapshot:
        try:
            view = snapshot.job(stream.id)
        except BrokerError:
            view = None
    if entrant is None or view is None or not entrant.access.may(needed, view.job.team):
        return [], "access"
    messages = list(stream.news(view))
    return messages, "closed" if view.closed and not (stream.more or stream.away) else ""


def _place(last: str | None) -> tuple[int, int]:
    """The numbers of events and lines that the client has received; zeros for an id in another format."""
    seq, _, lines = (last or "").partition(".")
    return (int(seq), int(lines)) if seq.isdecimal() and lines.isdecimal() else (0, 0)


Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]{8,128}$",
        description="A unique key of the request, such as a UUID. A repetition with the same key has no effect.",
    ),
]


def endpoint_of(row: UseCase) -> Callable[..., Any]:
    """The endpoint of a use case, with its name, its description and the document that it returns."""
    hints = get_type_hints(row.run, include_extras=True)
    declared = [parameter for name, parameter in signature(row.run).parameters.items() if name != "by"]
    groups = {parameter.name: hints[parameter.name] for parameter in declared if is_dataclass(hints[parameter.name])}
    parameters = [_parameter("by", By)]
    if row.action:
        parameters.append(_parameter("key", Key))
    body: list[Parameter] = []
    for parameter in declared:
        kind = hints[parameter.name]
        if f"{{{parameter.name}}}" in row.path:
            parameters.append(_parameter(parameter.name, kind))
        elif parameter.name in groups and row.method == "GET":
            parameters.append(_parameter(parameter.name, Annotated[kind, Depends(_from_query(kind))]))
        elif row.method == "GET" or IN_QUERY in get_args(kind)[1:]:
            parameters.append(_in_query(parameter.name, kind, parameter.default))
        else:
            body += _flat(kind) if parameter.name in groups else [parameter.replace(annotation=kind)]
    listing = row.listing
    filters = ("limit", "cursor", *listing.filters) if listing else ()
    for name in filters:
        kind = {"limit": PageLimit, "cursor": Cursor}.get(name, Names)
        parameters.append(_in_query(name, kind, None))
    document = page_class(row.document) if listing else row.document
    if body:
        parameters.append(_parameter("body", _body_model(row.name, body)))

    def respond(**arguments: Any) -> Response:
        by, key, model = arguments.pop("by"), arguments.pop("key", ""), arguments.pop("body", None)
        wanted = {name: arguments.pop(name) for name in filters}
        if model is not None:
            arguments |= {name: getattr(model, name) for name in type(model).model_fields}
            for name, kind in groups.items():
                arguments[name] = kind(**{field.name: arguments.pop(field.name) for field in fields(kind)})
        if not row.action:
            status = HTTPStatus.CREATED if row.method == "PUT" and _is_new(row, by, arguments) else row.status
            result = row.run(by, **arguments)
            return DocumentResponse(page_of(document, result, listing, **wanted) if listing else result, status)
        answer = change(by, key, row.run, **arguments)
        headers = {"Idempotency-Replayed": "true"} if answer.replayed else {}
        return Response(answer.body, answer.status, headers, "application/json")

    respond.__name__, respond.__doc__ = row.name, row.run.__doc__
    respond.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # `inspect.signature` reads it
    respond.__annotations__ = {"return": document}
    return respond


def _is_new(row: UseCase, by: Caller, arguments: Mapping[str, Any]) -> bool:
    """Whether what a PUT sets is not there: what a GET of its path does not find."""
    shown = next(other for other in USE_CASES if (other.method, other.path) == ("GET", row.path))
    try:
        shown.run(by, **{name: value for name, value in arguments.items() if f"{{{name}}}" in row.path})
    except UnknownName:
        return True
    return False


class DocumentResponse(Response):
    """A document. To a GET whose ``If-None-Match`` has its ``ETag`` the answer is 304, without it."""

    def __init__(self, document: object, status: int = 200) -> None:
        super().__init__(json_text(document), status, media_type="application/json")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = Headers(scope=scope).get("if-none-match", "")
        if scope["method"] == "GET":
            self.headers["ETag"] = f'W/"{sha256(self.body).hexdigest()[:32]}"'  # weak: it may be sent compressed
        if self.headers.get("ETag") in [tag.strip() for tag in known.split(",")]:
            await NotModifiedResponse(self.headers)(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def _parameter(name: str, kind: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind)


def _in_query(name: str, kind: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=Annotated[kind, Query()], default=default)


def _flat(kind: Any) -> Iterator[Parameter]:
    """The fields of a dataclass as parameters."""
    hints = get_type_hints(kind, include_extras=True)
    for row in fields(kind):
        default = Parameter.empty if row.default is MISSING else row.default
        yield Parameter(row.name, Parameter.KEYWORD_ONLY, annotation=hints[row.name], default=default)


def _from_query(kind: Any) -> Callable[..., Any]:
    def make(**values: Any) -> Any:
        return kind(**values)

    make.__signature__ = Signature(  # type: ignore[attr-defined]  # `inspect.signature` reads it
        [_in_query(parameter.name, parameter.annotation, parameter.default) for parameter in _flat(kind)]
    )
    return make


def _body_model(name: str, parameters: list[Parameter]) -> type[BaseModel]:
    """The model of the body: no other fields than these."""
    model_fields: dict[str, Any] = {
        parameter.name: (parameter.annotation, ... if parameter.default is Parameter.empty else parameter.default)
        for parameter in parameters
    }
    title = "".join(part.capitalize() for part in name.split("_"))
    return create_model(f"{title}Body", __config__=ConfigDict(extra="forbid"), **model_fields)


MEDIA = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}
_PIECE = 1 << 16  # bytes
_VETOES = (NotAllowed, ApprovalNeeded, InvalidInput, NoFeasibleCapacity)


def focus_file(by: By, month: str, version: FocusVersion = "1.2", form: FocusForm = "csv") -> Response:
    """The charges of a month as FOCUS (the FinOps Open Cost and Usage Specification)."""
    folder = TemporaryDirectory(prefix="gpubroker-focus-")
    try:
        file = Path(export(by.broker, version, month, Path(folder.name) / f"focus.{form}").file)
    except BaseException:
        folder.cleanup()
        raise
    headers = {"Content-Length": str(file.stat().st_size), "Content-Disposition": f"attachment; filename={file.name}"}
    return StreamingResponse(_pieces(file, folder), 200, headers, MEDIA[form])


def _pieces(file: Path, folder: TemporaryDirectory[str]) -> Iterator[bytes]:
    with folder, file.open("rb") as content:
        while piece := content.read(_PIECE):
            yield piece


async def judge_skypilot(by: By, request: Request) -> Response:
    """SkyPilot's `admin_policy`: the task pinned to the offer that was judged, its money held. Status 400: a veto, in
    plain text, which SkyPilot shows to its user. Asked again about the same launch, nothing is held twice."""
    body = (await request.body()).decode("utf-8", "replace")
    try:
        text = await run_in_threadpool(answer_request, by.broker, body, by=by.actor)
    except _VETOES as error:
        return PlainTextResponse(f"{error}" + (f"\n{error.hint}" if error.hint else ""), 400)
    return Response(text, 200, media_type="application/json")


def judge_slurm(by: By, body: SlurmRequest) -> SlurmAdmission:
    """A submission to Slurm: its money is held; by the id that is returned its end is reported. Status 403: a veto."""
    return SlurmAdmission(id=admit_submission(by.broker, body, by=by.actor))


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One route. ``permission``: required in some team before the endpoint checks the team concerned; None: any valid
    token. ``media``: the media types of a response without a document; ``status``: that of success; ``waits``: or 202,
    until an approval."""

    method: str
    path: str
    permission: Permission | None
    endpoint: Callable[..., Any]
    media: tuple[str, ...] = ()
    status: int = 200
    waits: bool = False

    @property
    def full_path(self) -> str:
        return VERSION + self.path

    @property
    def document(self) -> type[Any] | None:
        """The document of a successful response: what the endpoint returns, unless that is a whole response."""
        return_type: type[Any] = get_type_hints(self.endpoint)["return"]
        return None if issubclass(return_type, Response) else return_type


_BYTES, _FILE_MEDIA = ("application/octet-stream",), tuple(MEDIA.values())
ROUTES = (
    *(
        ApiRoute(row.method, row.path, row.permission, endpoint_of(row), status=row.status, waits=row.waits)
        for row in USE_CASES
    ),
    ApiRoute("GET", "/jobs/{id}/stream", Permission.SEE_JOBS, stream_job, ("text/event-stream",)),
    ApiRoute("GET", "/jobs/{id}/files/{sha256}", Permission.SEE_OUTPUT, contents.file_content, _BYTES),
    ApiRoute(
        "GET",
        "/jobs/{id}/checkpoints/{checkpoint}/{sha256}",
        Permission.SEE_OUTPUT,
        contents.checkpoint_content,
        _BYTES,
    ),
    ApiRoute("GET", "/reports/focus/{month}/file", Permission.SEE_ALL_TEAMS, focus_file, _FILE_MEDIA),
    ApiRoute("HEAD", "/contents/{kind}/{sha256}", Permission.SUBMIT, contents.has_content),
    ApiRoute("PUT", "/contents/{kind}/{sha256}", Permission.SUBMIT, contents.keep_content, status=204),
    ApiRoute("POST", "/admission/skypilot", Permission.JUDGE_LAUNCHES, judge_skypilot, ("application/json",)),
    ApiRoute("POST", "/admission/slurm", Permission.JUDGE_LAUNCHES, judge_slurm),
)
UPLOADS = "/contents/"
"""Routes below this path read bodies of any size piece by piece, and limit their size themselves."""
OPENAPI = f"{VERSION}/openapi.json"
PUBLIC = frozenset(
    {
        ("GET", OPENAPI),
        ("GET", "/healthz"),
        ("GET", "/metrics"),
        ("POST", DEVICE_AUTHORIZATION),
        ("POST", TOKEN),
        ("POST", REVOCATION),
    }
)
"""Routes that need no person's token: the description of the API, those with the service's own token, and those by
which a program gets or revokes a token."""
