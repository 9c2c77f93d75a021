"""HTTP connections to a team server."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import httpx


def connected(
    url: str,
    timeout: httpx.Timeout,
    transport: httpx.BaseTransport | None = None,
    headers: Mapping[str, str] | None = None,
) -> httpx.Client:
    """An HTTP client for the server at that address. ``transport``: replaces the network in tests. Sends no request."""
    # Plain HTTP needs no certificates, and loading them takes 20 ms.
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.startswith("http:") else True
    return httpx.Client(base_url=url, timeout=timeout, transport=transport, headers=headers, verify=trust)
