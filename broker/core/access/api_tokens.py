"""API tokens: ``gpb_<id>_<secret>``. Only a hash of one is ever kept.

The secret has 256 random bits, so a fast hash is enough; slow ones are for passwords that people choose.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from broker.core.access.permissions import TokenScope

LONGEST = timedelta(days=90)
"""A token is good for so long at most."""
PREFIX, ID_LENGTH = "gpb_", 12
_FORM = re.compile(rf"{PREFIX}([0-9a-f]{{{ID_LENGTH}}})_[0-9a-f]{{64}}")


@dataclass(frozen=True, slots=True)
class ApiToken:
    """A token on record. Times UTC. ``label``: what its owner calls it; ``used_at``: when it last came in, within ten
    minutes; ``digest``: the SHA-256 of its text."""

    id: str
    person: str
    label: str
    scopes: frozenset[TokenScope]
    digest: str
    made_at: datetime
    made_by: str
    expires_at: datetime
    revoked_at: datetime | None = None
    revoked_by: str = ""
    used_at: datetime | None = None

    def good(self, now: datetime) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and now < self.expires_at

    def is_of(self, text: str) -> bool:
        """Whether that is its text, compared in constant time."""
        return hmac.compare_digest(self.digest, digest_of(text))


def new_text() -> str:
    """The text of a new token."""
    return f"{PREFIX}{secrets.token_hex(ID_LENGTH // 2)}_{secrets.token_hex(32)}"


def digest_of(text: str) -> str:
    """What is kept of a token."""
    return sha256(text.encode()).hexdigest()


def id_of(text: str) -> str | None:
    """The part by which it is found; None for what cannot be a token."""
    found = _FORM.fullmatch(text)
    return found[1] if found else None
