"""Attacks on the server from a real socket: connections that send nothing, or too slowly; codes for nobody."""

import asyncio
import json
import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from ipaddress import ip_network

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from broker.core.actors import network_of
from broker.core.values.clock import ManualClock
from broker.server.api.paths import GRANT
from broker.server.api.team_server import ACCESS, AccessLog, Connection, Listener, TeamServer
from broker.server.api.transport import Transport
from broker.server.page.application import api_and_page
from tests.server.test_listening import HTTP, answering
from tests.server.world import Company, bearer

PROXIED = Transport(public_url="https://gpus.example", proxies=(ip_network("127.0.0.1"),))
ATTACKER = "127.0.0.2"  # of the loopback network, like the addresses after it


@contextmanager
def silent(server: TeamServer, count: int, addresses: tuple[str, ...] = (ATTACKER,)) -> Iterator[list[socket.socket]]:
    """Connections from each of the addresses that send nothing."""
    with ExitStack() as stack:
        at = ("127.0.0.1", server.port)
        opened = [
            stack.enter_context(socket.create_connection(at, timeout=10, source_address=(address, 0)))
            for address in addresses
            for _ in range(count)
        ]
        yield opened


def is_closed(connection: socket.socket) -> bool:
    """Whether the server closes the connection; waits for it."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.fixture
def endless_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "patience", 600.0)


@pytest.mark.usefixtures("endless_patience")
@pytest.mark.parametrize("address", ["127.0.0.1", ATTACKER])
def test_connections_that_send_nothing_stop_nobody(world: Company, address: str) -> None:
    """Neither others nor the health check from the same address: behind a load balancer, all have one."""
    with answering(world.broker) as server, silent(server, 215, (address,)) as opened:
        assert all(is_closed(connection) for connection in opened[:115])
        for _ in range(3):
            answer = httpx.get(f"{server.url}/healthz", headers={"Connection": "close"})
            assert answer.status_code == 200


@pytest.mark.usefixtures("endless_patience")
def test_a_request_under_way_outlasts_connections_without_one(world: Company) -> None:
    with answering(world.broker) as server, silent(server, 1) as (busy,):
        busy.sendall(b"POST /api/v1/token HTTP/1.1\r\nHost: gpus\r\nContent-Length: 1\r\n\r\n")
        assert httpx.get(f"{server.url}/healthz").status_code == 200  # by now it has the head
        with silent(server, 215) as opened:
            assert is_closed(opened[0])
            busy.sendall(b"x")
            assert busy.recv(12) == b"HTTP/1.1 400"


@pytest.mark.usefixtures("endless_patience")
def test_the_largest_of_many_addresses_makes_room(world: Company) -> None:
    addresses = tuple(f"127.0.0.{number}" for number in range(2, 7))
    with answering(world.broker) as server, silent(server, 100, addresses) as opened:
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        assert is_closed(opened[0])


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: gpus",
        b"POST /api/v1/token HTTP/1.1\r\nHost: gpus\r\nContent-Length: 100\r\n\r\nclient_id=",
    ],
)
def test_half_a_request_is_not_waited_for(world: Company, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(Connection, "patience", 0.01)
    with answering(world.broker) as server, silent(server, 1) as (connection,):
        connection.sendall(sent)
        assert is_closed(connection)


def test_a_client_that_reset_its_connection_makes_room() -> None:
    """Its reset may be known to the kernel before the event loop reads it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        listener = Listener(bound, per_network=2, most=2)
    with listener, ExitStack() as stack:
        listener.listen()

        def connect(address: str) -> socket.socket:
            return socket.create_connection(listener.getsockname(), timeout=10, source_address=(address, 0))

        clients = [connect(ATTACKER) for _ in range(2)]
        oldest, _ = (stack.enter_context(listener.accept()[0]) for _ in clients)
        clients[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for client in clients:
            client.close()
        with pytest.raises(ConnectionResetError):
            oldest.recv(1)
        stack.enter_context(connect("127.0.0.3"))
        connection, address = listener.accept()
        stack.enter_context(connection)
        assert address[0] == "127.0.0.3"


def test_one_network_is_one_address() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:192.0.2.1") == "192.0.2.1"


def test_codes_for_one_address_are_few_and_leave_the_rest_to_others(world: Company) -> None:
    form = {"client_id": "gpubroker", "client_name": "laptop"}
    with answering(world.broker) as server:
        attacker, other = (
            httpx.Client(base_url=f"{server.url}/api/v1", transport=httpx.HTTPTransport(local_address=address))
            for address in (ATTACKER, "127.0.0.1")
        )
        with attacker, other:
            begun = [attacker.post("/device_authorization", data=form) for _ in range(21)]
            assert [answer.status_code for answer in begun] == [200] * 20 + [429]
            assert other.post("/device_authorization", data=form).status_code == 200
            poll = {"client_id": "gpubroker", "grant_type": GRANT, "device_code": begun[0].json()["device_code"]}
            assert attacker.post("/token", data=poll).json() == {"error": "authorization_pending"}


def behind_proxy(client: httpx.Client, number: int) -> int:
    """The status of a wrong token of an invented person at the address 10.0.0.NUMBER, as a proxy passes it on."""
    headers = bearer(f"gpb_{'0' * 12}_{number:064}") | {"X-Forwarded-For": f"192.0.2.1, 10.0.0.{number}"}
    return client.get("/api/v1/me", headers=headers).status_code


def test_who_guesses_behind_a_proxy_stops_nobody_else_and_is_on_record(world: Company) -> None:
    with answering(world.broker, PROXIED) as server, httpx.Client(base_url=server.url) as client:
        assert [behind_proxy(client, 7) for _ in range(21)] == [401] * 20 + [429]
        assert behind_proxy(client, 8) == 401
        headers = bearer(world.token("mia")) | {"X-Forwarded-For": "10.0.0.9", "Idempotency-Key": "a" * 36}
        assert client.post(f"/api/v1/jobs/{world.mine}/cancel", headers=headers).status_code == 200
        with silent(server, 120, ("127.0.0.1",)):
            assert client.get("/healthz").status_code == 200
    with world.broker.store.access.reading() as reader:
        assert next(record.origin for _, record in reader.audit(limit=1)) == "api 10.0.0.9"


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ("203.0.113.9, 192.0.2.1", "192.0.2.1"),  # what the client itself says is before what the proxy adds
        ("192.0.2.1:40312", "192.0.2.1"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("192.0.2.1, 127.0.0.1", "192.0.2.1"),  # two proxies
        ("192.0.2.1, unknown", "127.0.0.1"),
        ("192.0.2.1, <script>", "127.0.0.1"),
        ("127.0.0.1", "198.51.100.1"),
        ("", "127.0.0.1"),
    ],
)
def test_the_last_address_that_is_no_proxy_asks(
    world: Company, caplog: pytest.LogCaptureFixture, forwarded: str, client: str
) -> None:
    with caplog.at_level(logging.INFO, ACCESS), answering(world.broker, PROXIED) as server:
        headers = [("X-Forwarded-For", "198.51.100.1"), ("X-Forwarded-For", forwarded)]
        assert httpx.get(f"{server.url}/healthz", headers=headers).status_code == 200
    assert [line["address"] for line in access_lines(caplog)] == [client]


@pytest.mark.usefixtures("endless_patience")
def test_slow_bodies_through_a_proxy_stop_nobody_else(world: Company) -> None:
    head = (
        "POST /api/v1/token HTTP/1.1\r\nHost: gpus.example\r\nContent-Length: 9\r\n"
        "X-Forwarded-For: 192.0.2.{}:{}\r\n\r\n"
    )
    with answering(world.broker, PROXIED) as server, silent(server, 102, ("127.0.0.1",)) as (*slow, refused, other):
        for port, connection in enumerate(slow):
            connection.sendall(head.format(7, port).encode())
        assert httpx.get(f"{server.url}/healthz").status_code == 200  # by now it has the heads
        refused.sendall(head.format(7, 999).encode())
        assert refused.recv(12) == b"HTTP/1.1 429"
        other.sendall(head.format(8, 1).encode() + b"123456789")
        assert other.recv(12) == b"HTTP/1.1 400"
        slow[0].sendall(b"123456789")
        assert slow[0].recv(12) == b"HTTP/1.1 400"


def access_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [json.loads(record.getMessage()) for record in caplog.records if record.name == ACCESS]


def test_each_request_is_a_line_without_secrets(world: Company, caplog: pytest.LogCaptureFixture) -> None:
    token, link = world.token("mia"), world.link("adam")
    caplog.set_level(logging.INFO, ACCESS)
    with answering(world.broker, PROXIED, api_and_page) as server, httpx.Client(base_url=server.url) as client:
        client.headers["X-Forwarded-For"] = "192.0.2.1"
        answers = [
            client.get(f"/api/v1/jobs/{world.mine}", headers=bearer(token)),
            client.get(f"/sign-in?next=/{token}"),
            client.post("/sign-in", data={"token": token}, headers={"Origin": server.url}),
            client.get(link),
            client.get(f"{link}/x"),
            client.get("/api/v1/me", headers={"Host": "evil.example"}),
        ]
    lines = access_lines(caplog)
    assert [(line["person"], line["method"], line["route"], line["status"]) for line in lines] == [
        ("mia", "GET", "/api/v1/jobs/{id}", 200),
        (None, "GET", "/sign-in", 200),
        (None, "POST", "/sign-in", 403),
        (None, "GET", "/link/{secret}", 200),
        (None, "GET", None, 404),
        (None, "GET", None, 400),
    ]
    assert lines[0]["request"] == answers[0].headers["x-request-id"]
    assert [line["bytes"] for line in lines] == [answer.num_bytes_downloaded for answer in answers]
    assert {line["address"] for line in lines} == {"192.0.2.1"}
    assert all(secret not in caplog.text for secret in (token, link.rpartition("/")[2]))


def test_a_line_has_time_and_seconds_of_a_request_that_broke_off(caplog: pytest.LogCaptureFixture) -> None:
    async def break_off(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ConnectionError

    async def ignore(message: Message) -> None:
        pass

    clock, scope = ManualClock(datetime(2026, 1, 2, tzinfo=UTC)), {"method": "GET", "client": ("192.0.2.1", 1)}
    logged = AccessLog(break_off, clock, iter((1.0, 3.5)).__next__)
    with caplog.at_level(logging.INFO, ACCESS), pytest.raises(ConnectionError):
        asyncio.run(logged(scope, None, ignore))  # type: ignore[arg-type]  # it reads no body
    (line,) = access_lines(caplog)
    assert (line["at"], line["status"], line["bytes"], line["seconds"]) == ("2026-01-02T00:00:00+00:00", 200, 4, 2.5)


def test_the_public_url_is_scheme_host_and_origin(world: Company) -> None:
    public = "https://gpus.example"
    token, page_at = world.token("mia"), {"Host": "gpus.example", "X-Forwarded-Proto": "http"}
    with answering(world.broker, Transport(public_url=public), api_and_page) as server:
        with httpx.Client(base_url=server.url, headers=page_at) as client:
            signed = client.post("/sign-in", data={"token": token}, headers={"Origin": public})
            assert signed.headers["set-cookie"].startswith("__Host-gpubroker=")
            assert "max-age" in signed.headers["strict-transport-security"]
            for origin in ("http://gpus.example", "https://gpus.example:8443", server.url):
                forged = client.post("/sign-in", data={"token": token}, headers={"Origin": origin})
                assert forged.status_code == 403
            form = {"client_id": "gpubroker", "client_name": "laptop"}
            begun = client.post("/api/v1/device_authorization", data=form).json()
            assert begun["verification_uri"] == f"{public}/device"
            assert client.get("/metrics").status_code == 401
        statuses = [httpx.get(f"{server.url}{path}", headers={"Host": "evil.example"}).status_code for path in PATHS]
        assert statuses == [400, 400, 200]


PATHS = ("/sign-in", "/api/v1/me", "/healthz")


@pytest.mark.parametrize("path", ["/sign-in", "/api/v1/token", "/api/v1/contents/files/"])
def test_a_body_that_breaks_off_is_one_line_of_the_log(
    world: Company, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    path = f"{path}{'0' * 64}" if path.endswith("/") else path
    head = f"{'PUT' if path[-1] == '0' else 'POST'} {path} HTTP/1.1\r\nHost: gpus\r\nContent-Length: 100\r\n"
    with answering(world.broker, HTTP, api_and_page) as server, silent(server, 1) as (connection,):
        connection.sendall(f"{head}Authorization: Bearer {world.token('mia')}\r\n\r\ntoken=".encode())
        assert httpx.get(f"{server.url}/healthz").status_code == 200  # by now it has the head
    assert [
        record.getMessage().partition(": ")[2] for record in caplog.records if record.levelno >= logging.WARNING
    ] == ["the client closed the connection before the end of the body"]


def test_a_request_with_two_lengths_is_answered_once(world: Company) -> None:
    with answering(world.broker) as server, silent(server, 1) as (connection,):
        smuggled = b"GET /healthz HTTP/1.1\r\nHost: gpus\r\n\r\n"
        head = b"POST /api/v1/token HTTP/1.1\r\nHost: gpus\r\nTransfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n"
        connection.sendall(head % (5 + len(smuggled)) + b"0\r\n\r\n" + smuggled)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1
