"""The HTTP duty of the service: the API, `/healthz` and `/metrics` at one address; how many connections and requests
may be open, and how long each may keep the server waiting; and the access log, one JSON line for each request.
"""

import asyncio
import json
import logging
import secrets
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from broker.app.service.health import Pulses
from broker.app.service.metrics import PUBLIC_PATHS, SETTING, ServiceResponder, parse_address
from broker.app.wiring import Broker
from broker.core.actors import network_of
from broker.core.errors import BrokerError, InvalidInput
from broker.core.values.clock import Clock
from broker.server.api import problems
from broker.server.api.application import application
from broker.server.api.transport import Transport

ACCESS = "gpubroker.access"
"""The logger of the lines; without a handler there is no log."""


class AccessLog:
    """Logs every request of the application at its end: time (UTC), ``request`` (the id in the answer), person, method,
    ``route`` (the template of the path, so that no secret in a path is logged; null for an unknown path), status (null
    if the client left before), bytes of the body sent, seconds, and the address of the client. ``monotonic``: in
    seconds; ``count``: gets method, route, status and seconds of each answer."""

    def __init__(
        self,
        app: ASGIApp,
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
        count: Callable[[str, str, int, float], None] | None = None,
    ) -> None:
        self._app = app
        self._clock = clock
        self._count = count
        self._monotonic = monotonic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state: dict[str, Any] = scope.setdefault("state", {})
        state["request_id"] = secrets.token_hex(8)
        at, begin, status, size = self._clock.now(), self._monotonic(), None, 0

        async def send_counted(message: Message) -> None:
            nonlocal status, size
            await send(message)
            status = message.get("status", status)
            size += len(message.get("body", b""))

        try:
            await self._app(scope, receive, send_counted)
        finally:
            caller, route = state.get("caller"), scope.get("route")
            line = {
                "at": at.isoformat(),
                "request": state["request_id"],
                "person": caller and caller.actor.identity,
                "method": scope["method"],
                "route": route and route.path,
                "status": status,
                "bytes": size,
                "seconds": round(self._monotonic() - begin, 6),
                "address": scope["client"] and scope["client"][0],
            }
            logging.getLogger(ACCESS).info(json.dumps(line))
            if self._count and status is not None:
                self._count(scope["method"], line["route"] or "unknown", status, line["seconds"])


class Listener(socket.socket):
    """A listening socket that limits open connections, before TLS begins. Not thread-safe: for one event loop.

    ``per_network``: the most of one network (`network_of`) unless ``is_proxy``; ``most``: the most in all. A new
    connection beyond a limit closes one of that network, or of the one that has the most: the oldest without a request
    in ``protocols``, else the oldest. So neither health checks nor people wait behind connections that send nothing.
    """

    def __init__(
        self,
        bound: socket.socket,
        is_proxy: Callable[[str], bool] = lambda address: False,
        protocols: Iterable[Any] = (),
        *,
        per_network: int = 100,
        most: int = 500,
    ) -> None:
        super().__init__(bound.family, bound.type, bound.proto, bound.detach())
        self._is_proxy = is_proxy
        self._protocols = protocols
        self._per_network = per_network
        self._most = most
        self._open: defaultdict[str, dict[socket.socket, None]] = defaultdict(dict)

    def accept(self) -> tuple[socket.socket, Any]:
        raw, address = super().accept()
        network = network_of(address[0])
        if len(self._open[network]) >= self._per_network and not self._is_proxy(address[0]):
            self._close_one_of(network)
        elif sum(map(len, self._open.values())) >= self._most:
            self._close_one_of(max(self._open, key=lambda name: len(self._open[name])))
        connection = _CountedSocket(raw, self, network)
        self._open[network][connection] = None
        return connection, address

    def _close_one_of(self, network: str) -> None:
        busy = {protocol.fileno() for protocol in self._protocols if protocol.is_answering}
        oldest = min(self._open[network], key=lambda connection: connection.fileno() in busy)
        self.forget(oldest, network)
        with suppress(OSError):  # its client may have reset it; the event loop closes it
            oldest.shutdown(socket.SHUT_RDWR)

    def forget(self, connection: socket.socket, network: str) -> None:
        """Count the connection no longer."""
        self._open[network].pop(connection, None)
        if not self._open[network]:
            del self._open[network]


class _CountedSocket(socket.socket):
    def __init__(self, raw: socket.socket, listener: Listener, network: str) -> None:
        super().__init__(raw.family, raw.type, raw.proto, raw.detach())
        self._listener = listener
        self._network = network

    def close(self) -> None:
        self._listener.forget(self, self._network)
        super().close()


class RequestLimit:
    """The application for at most ``most`` requests at once of one network: the connections of a proxy do not tell
    whose they are. Health and metrics are not limited."""

    def __init__(self, app: ASGIApp, *, most: int = 100) -> None:
        self._app = app
        self._most = most
        self._under_way: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        network = network_of(scope["client"][0])
        if scope["path"] in PUBLIC_PATHS:
            await self._app(scope, receive, send)
        elif self._under_way[network] >= self._most:
            text = f"an address may have {self._most} requests under way"
            problem = problems.plain_problem(
                HTTPStatus.TOO_MANY_REQUESTS, "too_many_requests", text, scope["state"]["request_id"]
            )
            answer = problems.response_of(problem, after=1.0)
            answer.headers["Connection"] = "close"  # the body is not read
            await answer(scope, receive, send)
        else:
            self._under_way[network] += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._under_way[network] -= 1
                if not self._under_way[network]:
                    del self._under_way[network]


class Connection(H11Protocol):
    """A connection that is closed if the client does not send a whole header, a part of the body or take a part of the
    answer between two checks. uvicorn limits only the time between two requests."""

    patience = 15.0
    """Seconds between two checks."""
    least_bytes = 4_000
    """Bytes of a body that are progress."""

    @property
    def is_answering(self) -> bool:
        """Whether the header of a request has arrived, and its answer is not complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def fileno(self) -> int:
        number: int = self.transport.get_extra_info("socket").fileno()
        return number

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._received = 0
        self._check(None)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._next_check.cancel()
        super().connection_lost(exc)

    def _check(self, earlier: object) -> None:
        awaited = self._awaited()
        if awaited is not None and awaited == earlier:
            self.transport.abort()
        else:
            self._next_check = self.loop.call_later(self.patience, self._check, awaited)

    def _awaited(self) -> object:
        """What the client has to do next, equal until it makes progress; None while it waits for the server."""
        if self.flow.write_paused:
            return "reads", self.transport.get_write_buffer_size()
        if self.conn.their_state is h11.IDLE:
            return "header", self.cycle
        if self.conn.their_state is h11.SEND_BODY and not self.flow.read_paused:
            return self.cycle, self._received // self.least_bytes
        return None


ApplicationFactory = Callable[[Broker, ServiceResponder, Pulses, Transport], ASGIApp]
"""Creates the ASGI application for requests that arrive over this transport."""
_GRACE = 5  # seconds for requests that are under way at the end
_CHECK_EVERY = 0.5  # seconds between two checks whether the server still runs


class TeamServer:
    """The HTTP server, as one of the duties of the service. ``port``: the port that it listens on; if 0 was set, the
    free port that was chosen."""

    name = "page"

    def __init__(
        self,
        broker: Broker,
        health: Pulses,
        listen: str,
        token: str | None,
        transport: Transport,
        answers: ApplicationFactory = application,
    ) -> None:
        """``token``: the service's own token, for metrics and details of health; ``answers``: creates the application.
        Raises `InvalidInput` for an address that is invalid, in use, or reachable from other machines without TLS, and
        `MissingExtra` without prometheus-client."""
        host, port = parse_address(listen)
        transport.check(host)
        service = ServiceResponder(broker, health, token)
        bound = _bind(host, port, listen)
        self.port: int = bound.getsockname()[1]
        scheme = "https" if transport.certificate else "http"
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"
        self._server = uvicorn.Server(
            uvicorn.Config(
                transport.finds_client(
                    AccessLog(
                        RequestLimit(transport.checks_host(answers(broker, service, health, transport))),
                        broker.clock,
                        count=service.count_request,
                    )
                ),
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # `Transport` reads them
                http=Connection,
                loop="asyncio",  # its sockets are Python's, so that `Listener` counts them
                ws="none",
                timeout_graceful_shutdown=_GRACE,
                ssl_certfile=transport.certificate,
                ssl_keyfile=transport.key,
                ssl_ciphers="ECDHE+AESGCM:ECDHE+CHACHA20",
            )
        )
        self._socket = Listener(bound, transport.is_proxy, self._server.server_state.connections)
        if transport.certificate is not None:
            self._check_tls(transport.certificate)

    def run(self, stop: threading.Event) -> None:
        """Answer requests until ``stop`` is set. Raises `BrokerError` if the server ends before."""
        thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)
        thread.start()
        while not stop.wait(_CHECK_EVERY):
            if not thread.is_alive():
                raise BrokerError("the API has stopped answering", hint="the log of the service says why")
        self._server.should_exit = True
        thread.join()
        self._socket.close()

    def _check_tls(self, certificate: Path) -> None:
        try:
            self._server.config.load()
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            self._socket.close()
            raise InvalidInput(
                f"TLS cannot be set up: {error}",
                where=str(certificate),
                hint="expected a certificate and its key in PEM",
            ) from error


def _bind(host: str, port: int, listen: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise InvalidInput(
            f"cannot listen on {listen}: {error.strerror or error}", where=SETTING, hint="another port, or off"
        ) from error
    return listener
