"""Requests to the API of a team server, as one person. Answers are the documents that ``--json`` prints."""

import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from inspect import signature
from types import TracebackType
from typing import Any, Self, TypeVar, get_type_hints
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_exponential

from broker.app.documents import ErrorDetails, kind_of, plain
from broker.app.use_cases.table import IN_QUERY, row_of
from broker.core.errors import BrokerError, InvalidInput, LoginMissing, Malformed, NotAllowed, Throttled, Unreachable
from broker.server.api.paths import CONTENTS, VERSION
from broker.server.client.logins import SERVER, TOKEN, SavedLogin, http_client

_TIMEOUT = httpx.Timeout(60.0, connect=10.0)  # seconds; a submission plans before it answers
_TRIES = 3
FOLLOW_TRIES = 18
"""The tries of a command that follows a job: with the pauses between them a minute, in which a server restarts."""
_MAX_RETRY_SECONDS = 90.0  # seconds for more tries than the usual ones, if each takes long
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
SAME_VERSION = "use the same version here and on the server"
NOT_KNOWN = "whether the change was made is not known"
CHECK_FIRST = "check whether the server has it before you repeat the command"
_UNCOMPRESSED = {"Accept-Encoding": "identity"}
Document = dict[str, Any]
R = TypeVar("R")


class ServerRefusal(BrokerError):
    """The server's refusal in its own words. ``kind``: its code, as in the server's problem detail; ``document``: the
    whole problem detail. The exit code is that of the same refusal without a server."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        message = str(document.get("detail", "refused"))
        super().__init__(message, where=str(document.get("where", "")), hint=str(document.get("hint", "")))
        self.kind = str(document.get("kind", ""))
        self.document = document
        code = document.get("exit_code")
        self.exit_code = code if isinstance(code, int) else 5


class NotAllowedByServer(ServerRefusal, NotAllowed):
    """A refusal by a policy or for lack of a role, as the same refusal without a server."""


def _invalid_input(details: ErrorDetails) -> InvalidInput:
    """The same error as without a server, with its findings."""
    other_errors = [_invalid_input(detail) for detail in details.others or ()]
    return InvalidInput(
        details.message, where=details.where, hint=details.hint, problems=details.problems, others=other_errors
    )


class TeamApi:
    """The API of one server. Close it after use. ``tries``: how often a request is sent to a server that cannot be
    reached. Every method may raise `ServerRefusal`, `InvalidInput`, `LoginMissing` (the token is not accepted),
    `Throttled`, `Unreachable` and `Malformed`."""

    def __init__(self, login: SavedLogin, *, transport: httpx.BaseTransport | None = None) -> None:
        """``transport``: replaces the network in tests. Sends no request."""
        self.url = login.url
        headers = {"Authorization": f"Bearer {login.token}"}
        self._http = http_client(login.url, _TIMEOUT, transport, headers)
        self.changing = False
        self.tries = _TRIES
        self._by_variable = login.by_variable

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._http.close()

    def run(self, use_case: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """The document of a use case of `broker.app.use_cases`, run by the server with these arguments. A change takes
        effect once; other requests are repeated if the server cannot be reached."""
        row = row_of(use_case)
        document: type[R] = row.document
        arguments = signature(use_case).bind(None, *args, **kwargs).arguments
        hints = get_type_hints(use_case, include_extras=True)
        path, query, body = row.path, dict[str, Any](), dict[str, Any]()
        for name, value in list(arguments.items())[1:]:
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
                continue
            marks = getattr(hints[name], "__metadata__", ())
            alias = next((mark.alias for mark in marks if isinstance(mark, FieldInfo) and mark.alias), name)
            target = query if row.method == "GET" or IN_QUERY in marks else body
            target.update(vars(value) if is_dataclass(value) else {alias: value})
        if row.method == "GET":
            return self._read(document, self.get(path, **query))
        sent = {name: plain(value) for name, value in body.items()}
        if not row.action:
            return self._read(document, self.ask(path, sent, **query))
        answer = self.change(path, sent)
        id = answer.get("id")
        return self._read(document, answer, f"the change was made{f' ({id})' if isinstance(id, str) else ''}, but ")

    def whole(self, kind: type[R], path: str, rows: str, limit: int | None, page: int, **parameters: Any) -> R:
        """The result whose list ``rows`` comes in pages, with at most ``limit`` rows (None: all), and its other lists
        with the entries of all pages. ``page``: the most rows that the server puts on one."""
        max_rows = sys.maxsize if limit is None else limit
        document = page_document = self.get(path, limit=min(max_rows, page), **parameters)
        while (missing := max_rows - len(self._rows(document, rows))) > 0 and page_document.get("next_cursor"):
            page_document = self.get(path, limit=min(missing, page), cursor=page_document["next_cursor"], **parameters)
            for name, value in page_document.items():
                document[name] = document.get(name, []) + value if isinstance(value, list) else value
        return self._read(kind, document)

    def _read(self, kind: type[R], document: Document, prefix: str = "") -> R:
        try:
            return TypeAdapter(kind).validate_python(document, extra="ignore")  # of a newer server
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            field = ".".join(map(str, problem["loc"]))
            message = f"{prefix}the answer is not what this version of gpubroker expects: {field}: {problem['msg']}"
            raise Malformed(message, where=self.url, hint=SAME_VERSION) from error

    def get(self, path: str, **parameters: Any) -> Document:
        """The document at a path below ``/api/v1``. Parameters that are None are left out. Repeated if the server
        cannot be reached."""
        query = {name: plain(value) for name, value in parameters.items() if value is not None}
        return self._call("GET", VERSION + path, params=query)

    def rows(self, path: str, name: str, **parameters: Any) -> list[Document]:
        """The rows of the list ``name`` on the first page of a document."""
        return self._rows(self.get(path, **parameters), name)

    def _rows(self, document: Document, name: str) -> list[Any]:
        rows = document.get(name)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            message = f"the answer is not what this version of gpubroker expects: it has no list {name}"
            raise Malformed(message, where=self.url, hint=SAME_VERSION)
        return rows

    def change(self, path: str, body: Mapping[str, Any] | None = None) -> Document:
        """Request a change, which takes effect once: a request repeated after a lost answer has the same idempotency
        key. While it is not known whether the change was made, ``changing`` is true; if the answer stays lost, the
        `Unreachable` that is raised says so."""
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        try:
            document = self._call("POST", VERSION + path, json=dict(body or {}), headers=headers, changes=True)
        except Unreachable as error:
            if not self.changing:
                raise
            self.changing = False
            hint = f"{CHECK_FIRST}; a repeated command may make it a second time"
            raise Unreachable(f"{error.message}; {NOT_KNOWN}", where=error.where, hint=hint) from error
        except BrokerError:
            self.changing = False
            raise
        self.changing = False
        return document

    def ask(self, path: str, body: Mapping[str, Any], **parameters: Any) -> Document:
        """The document that a POST request returns, for queries too long for an address. Changes nothing. Repeated if
        the server cannot be reached."""
        return self._call("POST", VERSION + path, json=dict(body), params=parameters)

    def has_content(self, kind: str, sha256: str) -> bool:
        """Whether the content with this SHA-256 was uploaded before."""
        answer = self._send("HEAD", f"{CONTENTS}/{kind}/{sha256}")
        if answer.status_code not in (200, 404):
            raise self._refusal(answer)
        return answer.status_code == 200

    def put_content(self, kind: str, sha256: str, data: bytes | Iterable[bytes]) -> None:
        """Upload bytes; idempotent, but not repeated here, as ``data`` may be read only once."""
        answer = self._send("PUT", f"{CONTENTS}/{kind}/{sha256}", content=data)
        if answer.is_error:
            raise self._refusal(answer)

    def content(self, path: str, **parameters: Any) -> Iterator[bytes]:
        """The bytes at a path below ``/api/v1``, in pieces. Not repeated: the caller continues where it ended."""
        query = {name: plain(value) for name, value in parameters.items() if value is not None}
        try:
            # Without compression: a position in compressed bytes is not a position in the file.
            with self._http.stream("GET", VERSION + path, params=query, headers=_UNCOMPRESSED) as answer:
                self._check_reached(answer)
                if answer.is_error:
                    answer.read()
                    raise self._refusal(answer)
                yield from answer.iter_raw()
        except httpx.TransportError as error:
            raise self._unreachable(error, path) from error

    def _call(self, method: str, path: str, *, changes: bool = False, **options: Any) -> Document:
        tries = Retrying(
            retry=retry_if_exception_type(Unreachable),
            stop=stop_after_attempt(self.tries) | (stop_after_attempt(_TRIES) & stop_after_delay(_MAX_RETRY_SECONDS)),
            wait=wait_exponential(multiplier=0.5, max=4),
            reraise=True,
        )
        answer: httpx.Response = tries(self._post if changes else self._send, method, path, **options)
        if answer.is_error:
            raise self._refusal(answer)
        try:
            document = answer.json()
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise Malformed("the answer is not a document of gpubroker", where=self.url, hint="check the address")
        return document

    def _post(self, method: str, path: str, **options: Any) -> httpx.Response:
        was_changing, self.changing = self.changing, True
        try:
            return self._send(method, path, **options)
        except Unreachable as error:
            if isinstance(error.__cause__, _UNSENT):
                self.changing = was_changing
            raise

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise self._unreachable(error, path) from error
        self._check_reached(answer)
        return answer

    def _check_reached(self, answer: httpx.Response) -> None:
        if answer.status_code in (502, 503, 504):
            raise Unreachable(f"the server answers {answer.status_code}", where=self.url, hint="try again in a minute")

    def _unreachable(self, error: httpx.TransportError, path: str) -> Unreachable:
        message = f"the server cannot be reached: {error or type(error).__name__}"
        hint = "check the address and the network"
        if not path.startswith(f"{VERSION}/jobs"):  # because this machine's store has no such job
            hint += "; GPUBROKER_SERVER=off uses the store of this machine, which is not the server's"
        return Unreachable(message, where=self.url, hint=hint)

    def _refusal(self, answer: httpx.Response) -> BrokerError:
        try:
            document = answer.json()
        except ValueError:
            document = {}
        if answer.status_code == 401:
            if self._by_variable:
                message = f"the server does not accept the token in {TOKEN}: it is invalid, has expired or was revoked"
                hint = f"{TOKEN} takes precedence over a login: replace it; or unset {SERVER} and {TOKEN}, and log in"
                return LoginMissing(message, where=self.url, hint=hint)
            message = "the server does not accept this login: it has expired or was revoked"
            return LoginMissing(message, where=self.url, hint=f"`gpubroker login {self.url}`")
        if answer.status_code == 429:
            retry_after = answer.headers.get("retry-after", "")
            seconds = float(retry_after) if retry_after.isdigit() else None
            return Throttled("the server asks for fewer requests", after=seconds, where=self.url)
        if not isinstance(document, dict) or "detail" not in document:
            return Malformed(f"the server answers {answer.status_code}", where=self.url, hint="check the address")
        if document.get("kind") == kind_of(InvalidInput("")):
            with suppress(ValidationError):
                details = {**document, "message": document["detail"]}
                return _invalid_input(ErrorDetails.model_validate(details, extra="ignore"))
        return (
            NotAllowedByServer(document)
            if document.get("exit_code") == NotAllowed.exit_code
            else ServerRefusal(document)
        )
