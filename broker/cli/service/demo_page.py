"""The demo's page: a server on loopback during the demo, and after it until Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from broker.core.errors import MissingExtra

if TYPE_CHECKING:
    from broker.app.wiring import Broker
    from broker.core.actors import Actor

PARTS = ("fastapi", "jinja2", "uvicorn")


@dataclass(frozen=True, slots=True)
class DemoPage:
    """Its address, and the link by which one signs in, once."""

    url: str
    link: str


def available() -> bool:
    """Whether the extra of the page is installed."""
    return all(find_spec(name) for name in PARTS)


@contextmanager
def demo_page(broker: Broker, actor: Actor) -> Iterator[DemoPage]:
    """Serve the page of the demo's store on a free port of loopback. ``actor`` becomes its administrator. Raises
    `MissingExtra`."""
    if not available():
        raise MissingExtra("server", "the page")
    from broker.app.access.sessions import invite
    from broker.app.results.access import CreatedLink
    from broker.app.service.health import Pulses
    from broker.page.application import with_page
    from broker.server.listening import TeamServer
    from broker.server.transport import Transport

    new = invite(broker, actor.identity, by=actor, administrator=True)
    server, stop = TeamServer(broker, Pulses(), "127.0.0.1:0", None, Transport(), with_page), threading.Event()
    answering = threading.Thread(target=server.run, args=(stop,), name="page", daemon=True)
    answering.start()
    try:
        yield DemoPage(server.url, CreatedLink.of(new, server.url).link)
    finally:
        stop.set()
        answering.join()


def wait_for_the_end() -> None:
    """Wait until Ctrl-C."""
    threading.Event().wait()
