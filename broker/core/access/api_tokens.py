"""API tokens: ``gpb_<id>_<secret>``. Only the hash of a token is stored.

The secret has 256 random bits, so a fast hash is enough.
"""

import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Self

from broker.core.access.people import TokenScope
from broker.core.actors import Actor

MAX_VALIDITY = timedelta(days=90)
"""The longest time for which a token may be valid."""
PREFIX, ID_LENGTH = "gpb_", 12
_FORM = re.compile(rf"{PREFIX}([0-9a-f]{{{ID_LENGTH}}})_[0-9a-f]{{64}}")


@dataclass(frozen=True, slots=True)
class ApiToken:
    """A stored token. Times are UTC. ``label``: the owner's name for it; ``used_at``: its last use, exact to ten
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

    @property
    def in_words(self) -> str:
        """Owner, scopes and end (UTC), as the audit log prints them."""
        return f"{self.person}: {', '.join(sorted(self.scopes))}, until {self.expires_at:%Y-%m-%d %H:%M} UTC"

    def has_text(self, text: str) -> bool:
        """Whether ``text`` is this token's text. Compares in constant time."""
        return hmac.compare_digest(self.digest, digest_of(text))


def new_text() -> str:
    return f"{PREFIX}{secrets.token_hex(ID_LENGTH // 2)}_{secrets.token_hex(32)}"


def digest_of(text: str) -> str:
    """The SHA-256 of a token's text, which the store keeps instead of it."""
    return sha256(text.encode()).hexdigest()


def id_of(text: str) -> str | None:
    """The id within a token's text; None if the text is not a token."""
    match = _FORM.fullmatch(text)
    return match[1] if match else None


class AuditOutcome(StrEnum):
    """The outcome of an action. A change of jobs or money is recorded as ``begun`` before it is made and as ``done`` or
    ``refused`` afterwards, so a change during which the server died is on record."""

    BEGUN = "begun"
    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One line of the log. ``at``: UTC. ``origin``: the entry point, with the network address if there is one;
    ``token``: the id of the token used; ``action`` on ``subject``; ``reason``: the code of a refusal. Never contains a
    secret."""

    at: datetime
    person: str
    origin: str
    action: str
    subject: str
    outcome: AuditOutcome = AuditOutcome.DONE
    token: str = ""
    before: str = ""
    after: str = ""
    reason: str = ""

    @classmethod
    def by(
        cls, actor: Actor, at: datetime, action: str, subject: str, *, before: str = "", after: str = "",
        outcome: AuditOutcome = AuditOutcome.DONE,
    ) -> Self:  # fmt: skip
        """What an actor did, and by which entry point and token."""
        origin, token = actor.audit_origin, actor.token
        return cls(at, actor.identity, origin, action, subject, outcome, token, before, after)
