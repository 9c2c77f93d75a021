"""Second factors of people who sign in with a password: time-based codes (TOTP, RFC 6238), and recovery codes. Pure."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256

from broker.core.access.people import Person, TeamRole
from broker.core.actors import Role

STEP = timedelta(seconds=30)
"""The time step of codes (wall clock)."""
UNCONFIRMED = timedelta(hours=1)
"""How long a new second factor waits for its first code (wall clock)."""
KEY_BYTES, RECOVERY_CODES, _RECOVERY_BYTES = 20, 10, 15
_AROUND = (0, -1, 1)  # tolerated clock difference, in steps


class SecondFactorFor(StrEnum):
    """Which people who sign in with a password may change nothing until they have set up a second factor."""

    NOBODY = "nobody"
    APPROVERS = "approvers"  # administrators, approvers and administrators of teams
    EVERYBODY = "everybody"

    def asks(self, person: Person) -> bool:
        """Whether the person must set up a second factor."""
        if self is not SecondFactorFor.APPROVERS:
            return self is SecondFactorFor.EVERYBODY
        decides = {TeamRole.APPROVER, TeamRole.TEAM_ADMINISTRATOR} & set(person.teams.values())
        return bool(decides) or Role.ADMINISTRATOR in person.roles


@dataclass(frozen=True, slots=True, repr=False)
class SecondFactor:
    """A person's second factor. ``sealed``: its key, encrypted. ``confirmed_at``: the time of its first valid code
    (UTC), from which on it is required; None until then. ``step``: the time step of the last accepted code, so that
    each code is accepted once. ``recovery``: SHA-256 of each unused recovery code."""

    person: str
    sealed: str
    made_at: datetime
    confirmed_at: datetime | None = None
    step: int = 0
    recovery: tuple[str, ...] = ()

    def waits(self, now: datetime, longest: timedelta) -> bool:
        """Whether it may still be confirmed. ``longest``: `UNCONFIRMED` at the speed of the clock."""
        return self.confirmed_at is None and now < self.made_at + longest


def step_of(code: str, key: bytes, now: datetime, after: int) -> int | None:
    """The time step that the code belongs to; None unless that is the current or an adjacent step, and later than the
    step ``after``."""
    from cryptography.hazmat.primitives.hashes import SHA1
    from cryptography.hazmat.primitives.twofactor import InvalidToken
    from cryptography.hazmat.primitives.twofactor.totp import TOTP

    seconds = int(STEP.total_seconds())
    totp, present = TOTP(key, 6, SHA1(), seconds), int(now.timestamp()) // seconds  # noqa: S303 (RFC 6238, as apps do)
    typed = "".join(code.split()).encode(errors="replace")
    for step in (present + around for around in _AROUND):
        try:
            totp.verify(typed, step * seconds)
        except InvalidToken:
            continue
        return step if step > after else None
    return None


def new_key() -> bytes:
    """A new random key of 160 bits."""
    return secrets.token_bytes(KEY_BYTES)


def in_letters(key: bytes) -> str:
    """The key as text, for a person to type into an authenticator app."""
    return base64.b32encode(key).decode()


def new_recovery_codes() -> Sequence[str]:
    """New random codes of 120 bits, long enough that a fast hash protects them. Each replaces one time-based code."""
    texts = (base64.b32encode(secrets.token_bytes(_RECOVERY_BYTES)).decode() for _ in range(RECOVERY_CODES))
    return ["-".join(text[at : at + 4] for at in range(0, len(text), 4)) for text in texts]


def recovery_digest(code: str) -> str:
    """The hash of a recovery code, however it was typed."""
    return sha256("".join(code.upper().replace("-", " ").split()).encode()).hexdigest()
