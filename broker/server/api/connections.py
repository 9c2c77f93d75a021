"""Connections and requests: how many may be open, and how long each may keep the server waiting."""

import asyncio
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from broker.app.service.metrics import PUBLIC_PATHS
from broker.core.actors import network_of
from broker.server.api import problems


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
