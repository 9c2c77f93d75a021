"""How requests may reach the server: over TLS, through proxies that add it, or from this machine only."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from broker.app.service.metrics import PUBLIC_PATHS, SETTING, is_loopback
from broker.core.errors import InvalidInput

TLS_HINT = "say --tls-cert and --tls-key; or set GPUBROKER_SERVE__PUBLIC_URL=https://…, if a proxy in front adds TLS"
"""The hint for an address other than loopback without TLS."""
_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]", "::1")


_HOP = re.compile(r"\s*(?:\[(?P<v6>[^]]*)\](?::\d+)?|(?P<v4>[\d.]+)(?::\d+)?|(?P<bare>[\da-fA-F:.]+))\s*")


def _address_in(hop: str) -> str | None:
    """The address in a part of ``X-Forwarded-For``, which may have a port; None if it is none."""
    match = _HOP.fullmatch(hop)
    try:
        return str(ip_address(match[match.lastgroup or 0])) if match else None
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Transport:
    """The accepted transport. ``certificate`` and ``key``: PEM files for TLS. ``public_url``: where people reach the
    server, if not where it listens; ``proxies``: whose ``X-Forwarded-For`` counts, in `ServeSettings`."""

    certificate: Path | None = None
    key: Path | None = None
    public_url: str | None = None
    proxies: tuple[IPv4Network | IPv6Network, ...] = ()

    @property
    def encrypted(self) -> bool:
        """Whether clients use TLS, with this process or with a proxy in front of it."""
        return self.public_url.startswith("https:") if self.public_url else self.certificate is not None

    def own_url(self, request: HTTPConnection) -> str:
        """The URL of this server: the public one, or as the client addressed it."""
        return self.public_url or f"{'https' if self.encrypted else 'http'}://{request.headers.get('host', '')}"

    def checks_host(self, app: ASGIApp) -> ASGIApp:
        """The application for requests to the public URL or a loopback address only; health and metrics for all, since
        probes address machines."""
        if self.public_url is None:
            return app
        hosts = (urlsplit(self.public_url).hostname or "", *_LOOPBACK_HOSTS)
        checked = TrustedHostMiddleware(app, hosts, www_redirect=False)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await (app if scope.get("path") in PUBLIC_PATHS else checked)(scope, receive, send)

        return answer

    def is_proxy(self, address: str) -> bool:
        """Whether the address is one of the proxies."""
        return any(ip_address(address) in proxy for proxy in self.proxies)

    def finds_client(self, app: ASGIApp) -> ASGIApp:
        """The application for requests whose client is not the proxy that passed them on, but who asked it."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            values = Headers(scope=scope).getlist("x-forwarded-for")
            hops = [hop for value in values for hop in value.split(",")]
            while hops and self.is_proxy(scope["client"][0]) and (address := _address_in(hops.pop())):
                scope["client"] = (address, 0)
            await app(scope, receive, send)

        return answer

    def is_safe(self, host: str) -> bool:
        """Whether tokens sent to the address do not cross a network unencrypted, as far as the server can know."""
        return self.encrypted or is_loopback(host)

    def check(self, host: str) -> None:
        """Raises `InvalidInput` if tokens would cross a network unencrypted, or if certificate or key is missing."""
        if (self.certificate is None) != (self.key is None):
            raise InvalidInput("TLS needs a certificate and its key", hint="say --tls-cert and --tls-key")
        if not self.is_safe(host):
            raise InvalidInput(
                f"others can reach {host}, and API tokens would be sent unencrypted", where=SETTING, hint=TLS_HINT
            )
