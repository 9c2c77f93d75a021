"""A real HTTP server on loopback, with a simulated market and requested faults.

It answers over sockets, so that time-outs, refused connections and truncated bodies are real. Each fault applies to one
request, in the order in which they were requested; then the market answers again. Faults may be limited to requests
whose path contains some text. With ``tls`` it uses HTTPS.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit


class Fault(Enum):
    THROTTLED = auto()  # 429, with a wait of 7 s
    THROTTLED_FOR_LONG = auto()  # 429, with a wait of an hour
    BUSY = auto()  # 503, with a wait of 7 s
    SERVER_ERROR = auto()  # 500
    HANG = auto()  # no answer until the client gives up
    TRUNCATED = auto()  # fewer bytes than announced
    DISCONNECTED = auto()  # the connection is closed before an answer
    NOT_JSON = auto()  # a maintenance page in HTML
    WRONG_TYPE = auto()  # JSON of another structure
    EMPTY_BODY = auto()
    EXPIRED_LOGIN = auto()  # 401
    FORBIDDEN = auto()  # 403
    REDIRECT = auto()  # to another address


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A client's request. ``body``: its JSON, the text if it is not JSON, None without one."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any = None


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The market's answer: a status, and JSON or bytes."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)

    def payload(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else encode(self.body)


Market = Callable[[HttpRequest], HttpAnswer]


class Bare(float):
    """A number that JSON writes with its original digits."""

    def __init__(self, digits: Decimal) -> None:
        self.digits = digits

    def __new__(cls, digits: Decimal) -> Bare:
        return super().__new__(cls, float(digits))

    def __repr__(self) -> str:
        return str(self.digits)


def encode(body: Any) -> bytes:
    """JSON with all digits of each Decimal."""
    return json.dumps(_bare(body)).encode()


def _bare(value: Any) -> Any:
    if isinstance(value, Decimal):
        return Bare(value)
    if isinstance(value, dict):
        return {key: _bare(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_bare(inner) for inner in value]
    return value


class FakeServer:
    """``with FakeServer(market) as server``: ``server.url`` is its URL, ``server.requests`` the requests."""

    def __init__(self, market: Market, *, tls: ssl.SSLContext | None = None) -> None:
        self.market = market
        self.requests: list[HttpRequest] = []
        self._faults: list[tuple[Fault, str]] = []
        self._ordering = threading.Lock()
        self._closing = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._scheme = "https" if tls else "http"
        if tls:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._http.server_port}"

    def order(self, *faults: Fault, at: str = "") -> None:
        """Request these faults, one for each of the next requests whose path contains ``at``."""
        self._faults.extend((fault, at) for fault in faults)

    def reset(self) -> None:
        self._faults.clear()
        self.requests.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class FakeHandler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 2**16  # sends head and body in one packet: two would be delayed by 40 ms (Nagle)

            def do_GET(self) -> None:
                fake._serve(self)

            do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing: tests inspect ``requests``."""

        return FakeHandler

    def _serve(self, http: BaseHTTPRequestHandler) -> None:
        length = int(http.headers.get("Content-Length") or 0)
        raw = http.rfile.read(length)
        parts = urlsplit(http.path)
        request = HttpRequest(
            http.command,
            parts.path,
            dict(parse_qsl(parts.query)),
            {key.lower(): value for key, value in http.headers.items()},
            _body(raw),
        )
        self.requests.append(request)
        fault = self._fault_for(parts.path)
        if fault is Fault.HANG:
            self._closing.wait(240)
            http.close_connection = True
        elif fault is Fault.DISCONNECTED:
            http.close_connection = True
            http.connection.close()
        elif fault is Fault.TRUNCATED:
            payload = self.market(request).payload()
            http.close_connection = True
            _send(http, HttpAnswer(200, payload[: len(payload) // 2]), announced=len(payload))
        else:
            _send(http, _FAULTY[fault] if fault else self.market(request))

    def _fault_for(self, path: str) -> Fault | None:
        with self._ordering:
            for index, (fault, at) in enumerate(self._faults):
                if at in path:
                    del self._faults[index]
                    return fault
        return None


_FAULTY = {
    Fault.THROTTLED: HttpAnswer(429, {"error": "slow down"}, {"Retry-After": "7"}),
    Fault.THROTTLED_FOR_LONG: HttpAnswer(429, {"error": "slow down"}, {"Retry-After": "3600"}),
    Fault.BUSY: HttpAnswer(503, b"busy", {"Retry-After": "7"}),
    Fault.SERVER_ERROR: HttpAnswer(500, b"<html>Internal Server Error</html>"),
    Fault.NOT_JSON: HttpAnswer(200, b"<html>Down for maintenance</html>"),
    Fault.WRONG_TYPE: HttpAnswer(200, ["what", "is", "this"]),
    Fault.EMPTY_BODY: HttpAnswer(200, b""),
    Fault.EXPIRED_LOGIN: HttpAnswer(401, {"error": "token expired"}),
    Fault.FORBIDDEN: HttpAnswer(403, {"error": "forbidden"}),
    Fault.REDIRECT: HttpAnswer(302, b"", {"Location": "http://127.0.0.1:9/elsewhere"}),
}


def _body(raw: bytes) -> Any:
    try:
        return json.loads(raw, parse_float=Decimal) if raw else None
    except ValueError:  # form data
        return raw.decode()


def _send(http: BaseHTTPRequestHandler, answer: HttpAnswer, *, announced: int | None = None) -> None:
    payload = answer.payload()
    try:
        http.send_response(answer.status)
        for key, value in answer.headers.items():
            http.send_header(key, value)
        http.send_header("Content-Length", str(len(payload) if announced is None else announced))
        http.end_headers()
        http.wfile.write(payload)
        http.wfile.flush()
    except OSError:
        http.close_connection = True  # the client has closed the connection
