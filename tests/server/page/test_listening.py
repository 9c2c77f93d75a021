"""The page on a real socket, as `gpubroker serve` puts it there; and `serve` without what the page needs."""

import json
import logging
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

import httpx
import pytest

from broker.app.service.health import Pulses
from broker.cli.service import serve
from broker.core.extras import install_command
from broker.server.api.team_server import ACCESS
from broker.server.api.transport import Transport
from tests.actors import ROOT
from tests.server.world import Company, bearer


def served(world: Company, ask: Callable[[httpx.Client], None]) -> list[str]:
    """Ask what `serve` would listen with; what it says of it."""
    said: list[str] = []
    stop, at = threading.Event(), "127.0.0.1:0"
    server = serve._build_http_server(world.broker, ROOT, Pulses(), at, Transport(), said.append)
    thread = threading.Thread(target=server.run, args=(stop,))
    thread.start()
    try:
        with httpx.Client(base_url=server.url) as client:
            ask(client)
    finally:
        stop.set()
        thread.join()
        for handler in logging.getLogger(ACCESS).handlers:
            handler.close()
        logging.getLogger(ACCESS).handlers.clear()
    return said


@pytest.mark.parametrize("is_on", [True, False])
def test_requests_are_logged_unless_a_setting_says_no(world: Company, is_on: bool) -> None:
    settings = world.broker.settings
    serve_settings = settings.serve if is_on else settings.serve.model_copy(update={"access_log": False})
    world.broker.settings = settings.model_copy(update={"serve": serve_settings})

    def ask(client: httpx.Client) -> None:
        assert client.get("/healthz").status_code == 200

    served(world, ask)
    file = settings.home / "access.log"
    assert file.exists() == is_on
    if is_on:
        assert json.loads(file.read_text())["route"] == "/healthz"
        assert file.stat().st_mode & 0o777 == 0o600


def test_page_api_and_health_answer_at_one_address(seen_world: Company) -> None:
    def ask(client: httpx.Client) -> None:
        form, from_here = {"token": seen_world.usual("mia")}, {"Origin": str(client.base_url).rstrip("/")}
        assert client.post("/sign-in", data=form, headers=from_here).status_code == 303
        assert "Overview" in client.get("/").text
        assert client.get("/api/v1/me").status_code == 401
        assert client.get("/api/v1/me", headers=bearer(seen_world.usual("mia"))).status_code == 200
        assert client.get("/healthz").status_code == 200

    said = served(seen_world, ask)
    assert said[0].startswith("the web UI is at http://127.0.0.1:")


def test_without_the_extra_the_api_goes_on_and_says_why(seen_world: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_jinja(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "jinja2" else find_spec(name, package)

    def ask(client: httpx.Client) -> None:
        assert client.get("/").status_code == 404
        assert client.get("/api/v1/me", headers=bearer(seen_world.usual("mia"))).status_code == 200

    monkeypatch.setattr(serve, "find_spec", without_jinja)
    (off, *_) = served(seen_world, ask)
    assert off.startswith("the web UI is off")
    assert off.endswith(install_command("server"))
