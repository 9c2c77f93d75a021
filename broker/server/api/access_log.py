"""The access log: one JSON line for each request."""

import json
import logging
import secrets
import time
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker.core.values.clock import Clock

ACCESS = "gpubroker.access"
"""The logger of the lines; without a handler there is no log."""


class AccessLog:
    """Logs every request of the application at its end: time (UTC), ``request`` (the id in the answer), person, method,
    ``route`` (the template of the path, so that no secret in a path is logged; null for an unknown path), status (null
    if the client left before), bytes of the body sent, seconds, and the address of the client. ``monotonic``: in
    seconds."""

    def __init__(self, app: ASGIApp, clock: Clock, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
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
