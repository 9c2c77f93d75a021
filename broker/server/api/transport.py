"""How requests may reach the server: over TLS, or from this machine only."""

from dataclasses import dataclass
from pathlib import Path

from broker.app.service.metrics import SETTING, is_loopback
from broker.core.errors import InvalidInput

TLS_HINT = "say --tls-cert and --tls-key; or --plain-http, if a proxy in front of it speaks TLS"
"""The hint for an address other than loopback without TLS."""


@dataclass(frozen=True, slots=True)
class Transport:
    """The accepted transport. ``certificate`` and ``key``: PEM files for TLS; ``plain``: requests of other machines
    come without TLS, because a proxy in front of the server terminates TLS."""

    certificate: Path | None = None
    key: Path | None = None
    plain: bool = False

    @property
    def encrypted(self) -> bool:
        """Whether clients use TLS, with this process or with a proxy in front of it."""
        return self.certificate is not None or self.plain

    def own_url(self, host: str) -> str:
        """The URL of this server as the client addressed it. ``host``: the request's ``Host``, also behind a proxy."""
        return f"{'https' if self.encrypted else 'http'}://{host}"

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
