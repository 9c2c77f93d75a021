"""Signing in at the organization's identity provider (OpenID Connect, authorization code with PKCE)."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

PENDING = timedelta(minutes=10)
"""The time for signing in at the provider (wall clock)."""


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """A sign-in that has begun. Times are UTC.

    ``state``: SHA-256 of the value that the provider returns with its answer. ``browser``: SHA-256 of a cookie, so that
    only the browser that began the sign-in can complete it. ``nonce``: returned inside the identity token.
    ``verifier``: the PKCE code verifier (RFC 7636). ``after``: the page to continue at.
    """

    state: str
    browser: str
    nonce: str
    verifier: str
    after: str
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class ProviderIdentity:
    """The content of an identity token. A person is ``issuer`` and ``subject``, never a name or an address, which may
    be given to another person later. ``name``: the preferred one; ``groups``: None if the token has no such claim."""

    issuer: str
    subject: str
    name: str
    groups: frozenset[str] | None


def challenge_of(verifier: str) -> str:
    """The S256 challenge of a verifier (RFC 7636, section 4.2)."""
    return base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
