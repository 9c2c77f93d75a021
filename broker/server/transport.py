"""How requests may reach the server: by TLS, or from this machine alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from broker.app.service.metrics import SETTING, is_loopback
from broker.core.errors import InvalidInput

SAFE = "say --tls-cert and --tls-key; or --plain-http, if a proxy in front of it speaks TLS"
"""What makes another address than loopback acceptable."""


@dataclass(frozen=True, slots=True)
class Transport:
    """How requests may come in. ``certificate`` and ``key``: PEM files of TLS; ``plain``: without TLS from elsewhere,
    too, because a proxy in front of it speaks TLS."""

    certificate: Path | None = None
    key: Path | None = None
    plain: bool = False

    @property
    def encrypted(self) -> bool:
        """Whether whoever comes in speaks TLS, with this process or with a proxy in front of it."""
        return self.certificate is not None or self.plain

    def is_safe(self, host: str) -> bool:
        """Whether tokens sent to that address cross no network in the clear, as far as can be known here."""
        return self.encrypted or is_loopback(host)

    def check(self, host: str) -> None:
        """Raises `InvalidInput` where tokens would cross a network in the clear, or only half of TLS is there."""
        if (self.certificate is None) != (self.key is None):
            raise InvalidInput("TLS needs a certificate and its key", hint="say --tls-cert and --tls-key")
        if not self.is_safe(host):
            raise InvalidInput(
                f"others can reach {host}, and API tokens would cross the network in the clear",
                where=SETTING,
                hint=SAFE,
            )
