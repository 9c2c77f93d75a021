"""A team server on loopback, and the laptop of somebody who has no access to its store."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from broker.app.jobs.sealed_secrets import publish_service_key
from broker.app.service.health import Pulses
from broker.cli.program import run
from broker.core.actors import Actor
from broker.server.api.team_server import TeamServer
from broker.server.api.transport import Transport
from broker.server.page.application import api_and_page
from tests.cli.conftest import Done
from tests.server.world import Company, new_world


@dataclass(frozen=True)
class TeamService:
    """A running server and the company behind it."""

    url: str
    world: Company


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamService]:
    world, stop = new_world(tmp_path_factory.mktemp("service")), threading.Event()
    publish_service_key(world.broker)
    server = TeamServer(world.broker, Pulses(), "127.0.0.1:0", None, Transport(), api_and_page)
    answering = threading.Thread(target=server.run, args=(stop,), daemon=True)
    answering.start()
    yield TeamService(server.url, world)
    stop.set()
    answering.join()
    world.broker.close()


Laptop = Callable[..., Done]


@pytest.fixture
def laptop(
    service: TeamService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Laptop:
    """Runs commands there. ``by``: through the server with that person's token; without it, as the login says."""
    monkeypatch.setenv("GPUBROKER_HOME", str(tmp_path / "laptop"))
    monkeypatch.delenv("GPUBROKER_SERVER", raising=False)

    def store() -> NoReturn:
        raise AssertionError("a command through a server opens no store")

    def command(*arguments: str, by: str | None = None) -> Done:
        if by is not None:
            monkeypatch.setenv("GPUBROKER_SERVER", service.url)
            monkeypatch.setenv("GPUBROKER_TOKEN", service.world.usual(by))
        code = run(arguments, store, Actor("somebody"))
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return command
