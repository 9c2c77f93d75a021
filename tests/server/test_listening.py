"""The server on a real socket: where it listens, TLS, and what it refuses."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import trustme

from broker.app.service.health import Pulses
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.server.api.application import MAX_BODY, application
from broker.server.api.team_server import ApplicationFactory, TeamServer
from broker.server.api.transport import Transport
from tests.server.world import Company, bearer

HTTP = Transport()


@contextmanager
def answering(
    broker: Broker, transport: Transport = HTTP, answers: ApplicationFactory = application
) -> Iterator[TeamServer]:
    server, stop = TeamServer(broker, Pulses(), "127.0.0.1:0", None, transport, answers), threading.Event()
    thread = threading.Thread(target=server.run, args=(stop,))
    thread.start()
    try:
        yield server
    finally:
        stop.set()
        thread.join()


def test_it_answers_until_it_is_stopped(world: Company) -> None:
    with answering(world.broker) as server, httpx.Client(base_url=server.url) as client:
        assert client.get("/healthz").status_code == 200
        answer = client.get("/api/v1/me", headers=bearer(world.token("mia")))
        assert answer.json()["person"]["name"] == "mia"
        assert "server" not in answer.headers
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/healthz")


def test_nobodys_forwarded_address_is_believed(world: Company) -> None:
    token = f"gpb_{'0' * 12}_{'0' * 64}"
    with answering(world.broker) as server, httpx.Client(base_url=server.url) as client:
        statuses = [
            client.get("/api/v1/me", headers=bearer(token) | {"X-Forwarded-For": f"10.0.0.{number}"}).status_code
            for number in range(21)
        ]
    assert statuses == [401] * 20 + [429]


def test_with_tls(world: Company, tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with answering(world.broker, Transport(certificate, key)) as server:
        assert server.url.startswith("https://")
        assert httpx.get(f"{server.url}/healthz", verify=trusting).status_code == 200


@pytest.mark.parametrize(
    ("listen", "transport", "says"),
    [
        ("0.0.0.0:0", lambda folder: HTTP, "unencrypted"),
        ("[::]:0", lambda folder: HTTP, "unencrypted"),
        ("127.0.0.1:0", lambda folder: Transport(certificate=folder / "c.pem"), "certificate and its key"),
        ("127.0.0.1:0", lambda folder: Transport(folder / "c.pem", folder / "k.pem"), "TLS cannot be set up"),
        ("0.0.0.0:0", lambda folder: Transport(public_url="http://gpus.example"), "unencrypted"),
        ("nonsense", lambda folder: HTTP, "is not an address"),
    ],
)
def test_where_tokens_could_be_read_on_the_way_it_does_not_listen(
    world: Company, tmp_path: Path, listen: str, transport: Callable[[Path], Transport], says: str
) -> None:
    with pytest.raises(InvalidInput, match=says):
        TeamServer(world.broker, Pulses(), listen, None, transport(tmp_path))


def test_a_port_in_use_is_told(world: Company) -> None:
    with answering(world.broker) as server, pytest.raises(InvalidInput, match="cannot listen"):
        TeamServer(world.broker, Pulses(), f"127.0.0.1:{server.port}", None, HTTP)


def test_a_public_url_with_tls_allows_a_proxy_in_front() -> None:
    assert Transport(public_url="https://gpus.example").is_safe("0.0.0.0")
    assert not HTTP.is_safe("0.0.0.0")
    assert HTTP.is_safe("::1")
    assert MAX_BODY == 1_000_000
