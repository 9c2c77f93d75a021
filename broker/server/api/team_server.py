"""The HTTP duty of the service: the API, `/healthz` and `/metrics` at one address."""

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from broker.app.service.health import Pulses
from broker.app.service.metrics import SETTING, ServiceResponder, parse_address
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, InvalidInput
from broker.server.api.access_log import AccessLog
from broker.server.api.application import application
from broker.server.api.connections import Connection, Listener, RequestLimit
from broker.server.api.transport import Transport

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
                        RequestLimit(transport.checks_host(answers(broker, service, health, transport))), broker.clock
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
