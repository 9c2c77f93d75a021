"""The examples of reverse proxies, started as they are but for ports and certificates, and attacked."""

import json
import logging
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

import pytest
import trustme

from broker.server.api.team_server import ACCESS, Connection
from broker.server.api.transport import Transport
from broker.server.page.application import api_and_page
from tests.program import eventually
from tests.server.test_listening import answering
from tests.server.world import Company

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]
NAME = "gpus.example.org"
SERVICE = Path(__file__).parents[2] / "examples" / "service"
PROXIED = Transport(public_url=f"https://{NAME}", proxies=(ip_network("127.0.0.1"),))
CLIENT, OTHER = "127.0.0.2", "127.0.0.3"  # addresses of this machine; 127.0.0.1 is the proxy's
PATH = f"{os.environ['PATH']}:/usr/sbin"
PROXIES = [
    pytest.param(
        name, marks=pytest.mark.skipif(shutil.which(name, path=PATH) is None, reason=f"no program {name} here")
    )
    for name in ("nginx", "caddy")
]


@dataclass(frozen=True)
class Proxied:
    """A proxy in front of a server."""

    world: Company
    port: int
    trust: ssl.SSLContext
    caplog: pytest.LogCaptureFixture

    def lines(self) -> list[dict[str, object]]:
        """What the server has logged of requests. It may log one after its answer has arrived, but before the next."""
        assert status(self.ask(request="GET /healthz")) == 200
        eventually(lambda: "/healthz" in self.caplog.text, "the last request is logged")
        logged = [json.loads(record.getMessage()) for record in self.caplog.records if record.name == ACCESS]
        return [line for line in logged if line["route"] != "/healthz"]

    def connect(self, address: str = CLIENT) -> ssl.SSLSocket:
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=60, source_address=(address, 0))
        return self.trust.wrap_socket(raw, server_hostname=NAME)

    def ask(self, *headers: str, request: str = "GET /api/v1/me", body: str = "", host: str = NAME) -> str:
        """The whole answer to a request of its own connection."""
        lines = (f"{request} HTTP/1.1", f"Host: {host}", "Connection: close", *headers)
        with self.connect() as connection:
            connection.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode() + body.encode())
            return whole(connection)

    def bearer(self, person: str = "mia") -> str:
        return f"Authorization: Bearer {self.world.usual(person)}"


def whole(connection: socket.socket) -> str:
    """All that arrives until the other side closes."""
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionResetError:
        pass
    return received.decode()


def status(answer: str) -> int:
    return int(answer.split(" ", 2)[1])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def nginx(folder: Path, certificate: Path, key: Path, port: int, upstream: int) -> list[str]:
    """The command that runs nginx with the example."""
    site = (SERVICE / "nginx.conf").read_text()
    for old, new in {
        "listen 443": f"listen 127.0.0.1:{port}",
        "listen 80": f"listen 127.0.0.1:{free_port()}",
        f"/etc/ssl/{NAME}.pem": str(certificate),
        f"/etc/ssl/private/{NAME}.key": str(key),
        "127.0.0.1:9464": f"127.0.0.1:{upstream}",
    }.items():
        assert old in site
        site = site.replace(old, new)
    (folder / "site.conf").write_text(site)
    places = "".join(f"{name}_temp_path {folder};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    user = "user root;" if os.getuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user} daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}}"
        f" http {{ access_log off; {places} include {folder}/site.conf; }}"
    )
    return ["nginx", "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf"]


def caddy(folder: Path, certificate: Path, key: Path, port: int, upstream: int) -> list[str]:
    """The command that runs Caddy with the example."""
    site = (SERVICE / "Caddyfile").read_text()
    for old, new in {
        "{\n\tservers": "{\n\tadmin off\n\tauto_https disable_redirects\n\tservers",
        f"{NAME} {{": f"https://{NAME}:{port} {{\n\ttls {certificate} {key}",
        "127.0.0.1:9464": f"127.0.0.1:{upstream}",
    }.items():
        assert old in site
        site = site.replace(old, new)
    (folder / "Caddyfile").write_text(site)
    return ["caddy", "run", "--config", f"{folder}/Caddyfile", "--adapter", "caddyfile"]


COMMANDS: dict[str, Callable[[Path, Path, Path, int, int], list[str]]] = {"nginx": nginx, "caddy": caddy}


@pytest.fixture(params=PROXIES)
def proxied(
    request: pytest.FixtureRequest,
    world: Company,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> Iterator[Proxied]:
    monkeypatch.setattr(Connection, "patience", 600.0)
    caplog.set_level(logging.INFO, ACCESS)
    authority = trustme.CA()
    issued = authority.issue_cert(NAME)
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    port, home = free_port(), {"XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "PATH": PATH}
    with answering(world.broker, PROXIED, api_and_page) as server:
        command = COMMANDS[request.param](tmp_path, certificate, key, port, server.port)
        process = subprocess.Popen(command, env=os.environ | home, stderr=(tmp_path / "log").open("w"))
        try:
            eventually(lambda: process.poll() is not None or can_connect(port), "the proxy listens")
            assert process.poll() is None, (tmp_path / "log").read_text()
            yield Proxied(world, port, trust, caplog)
        finally:
            process.terminate()
            process.wait()


def can_connect(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_people_sign_in_and_programs_ask(proxied: Proxied) -> None:
    assert status(proxied.ask(proxied.bearer())) == 200
    token = f"token={proxied.world.usual('mia')}"
    form = ("Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(token)}")
    signed = proxied.ask(f"Origin: https://{NAME}", *form, request="POST /sign-in", body=token).lower()
    assert status(signed) == 303
    assert "set-cookie: __host-gpubroker=" in signed
    assert "secure" in signed
    assert "strict-transport-security" in signed
    assert [line["address"] for line in proxied.lines()] == [CLIENT] * 2


@pytest.mark.parametrize(
    "spoofed",
    [
        ("X-Forwarded-For: 203.0.113.5",),
        ("X-Forwarded-For: 203.0.113.5:4000",),
        ("X-Forwarded-For: 2001:db8::5",),
        ("X-Forwarded-For: [2001:db8::5]:443", "X-Forwarded-For: 127.0.0.1"),
        ("X-Forwarded-For: 203.0.113.5, 127.0.0.1", "X-Real-IP: 203.0.113.5"),
        ("X-Forwarded-For:",),
        ("Forwarded: for=203.0.113.5;proto=http", "X-Forwarded-Proto: http", "X-Forwarded-Host: evil.example"),
    ],
)
def test_nobody_says_who_asks_but_the_proxy(proxied: Proxied, spoofed: tuple[str, ...]) -> None:
    form = "client_id=gpubroker&client_name=laptop"
    kind = ("Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(form)}")
    begun = proxied.ask(*spoofed, *kind, request="POST /api/v1/device_authorization", body=form)
    assert f'"verification_uri":"https://{NAME}/device"' in begun.replace(" ", "")
    assert [line["address"] for line in proxied.lines()] == [CLIENT]


@pytest.mark.parametrize("host", ["evil.example", f"{NAME}.evil.example", f"evil.example:443@{NAME}"])
def test_another_host_does_not_reach_the_server(proxied: Proxied, host: str) -> None:
    assert "x-request-id" not in proxied.ask(proxied.bearer(), host=host).lower()
    assert proxied.lines() == []


def test_no_request_is_smuggled_past_the_proxy(proxied: Proxied) -> None:
    smuggled = f"GET /api/v1/me HTTP/1.1\r\nHost: {NAME}\r\n\r\n"
    for fields in (
        (f"Content-Length: {5 + len(smuggled)}", "Transfer-Encoding: chunked"),
        (f"Content-Length: {5 + len(smuggled)}", "Transfer-Encoding: xchunked"),
        (f"Content-Length: {5 + len(smuggled)}", "Transfer-Encoding : chunked"),
        ("Content-Length: 5", f"Content-Length: {5 + len(smuggled)}"),
    ):
        proxied.caplog.clear()
        answer = proxied.ask(*fields, request="POST /api/v1/token", body=f"0\r\n\r\n{smuggled}")
        assert len(proxied.lines()) <= answer.count("HTTP/1.1 "), "the server answers what the proxy knows of"
        assert status(answer) in (400, 401, 501)


def test_a_header_without_end_does_not_reach_the_server(proxied: Proxied) -> None:
    assert status(proxied.ask(proxied.bearer(), f"X-Large: {'x' * 100_000}")) in (400, 431)
    assert proxied.lines() == []


def test_slow_clients_stop_nobody_else(proxied: Proxied) -> None:
    """Bodies and headers that do not end, more than one address may have."""
    head = f"POST /api/v1/token HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 1000\r\n\r\nx"
    with ExitStack() as stack:
        for number in range(220):
            connection = stack.enter_context(proxied.connect(OTHER))
            connection.sendall(head.encode() if number % 2 else head[:40].encode())
        assert status(proxied.ask(proxied.bearer())) == 200
        assert status(proxied.ask(request="GET /healthz")) == 200
