"""How requests may reach the server: over TLS, through proxies that add it, or from this machine only."""

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from urllib.parse import urlsplit

from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from broker.app.service.metrics import PUBLIC_PATHS, SETTING, is_loopback
from broker.core.errors import InvalidInput

TLS_HINT = "say --tls-cert and --tls-key; or set GPUBROKER_SERVE__PUBLIC_URL=https://…, if a proxy in front adds TLS"
"""The hint for an address other than loopback without TLS."""
_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]", "::1")


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

    def is_safe(self, host: str) -> bool:
        """Whether tokens sent to the address do not cross a network unencrypted, as far as the server can know."""
        return self.encrypted or is_loopback(host)

    def check(self, host: str) -> None:
        """Raises `InvalidInput` if tokens would cross a network unencrypted, or if certificate or key is missing."""
        if (self.certificate is None) != (self.key is None):
            raise InvalidInput("TLS needs a certificate and its key", hint="say --tls-cert and --tls-key")
        if not self.is_safe(host):
            raise InvalidInput(
                f"others can reach {host}, and API tokens would be sent unencrypted",
                where=SETTING,
                hint=TLS_HINT,
            )
