"""Passwords of people who sign in without an identity provider, and the invitations by which they choose one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.core.errors import InvalidInput

SHORTEST, LONGEST = 15, 128
"""The minimum and maximum length of a password in characters. Any characters are allowed; no rules of composition."""
INVITED = timedelta(days=3)
"""How long an invitation can be accepted (wall clock)."""
KNOWN_FOR, MOST_KNOWN = timedelta(days=30), 10
"""How long an address stays known after a person signed in from it (wall clock), and how many known addresses a person
has at most: the newest. A guesser with many addresses therefore gets at most that many times the tries of one
address."""
FREE_TRIES = 5
"""The number of wrong passwords in a row after which a person must wait before the next try."""
_FIRST_WAIT, _LONGEST_WAIT = timedelta(seconds=30), timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class StoredPassword:
    """A person's password as its Argon2id hash. ``failures``: wrong passwords in a row; ``waits_until``: no password is
    checked before then (UTC)."""

    person: str
    digest: str
    set_at: datetime
    failures: int = 0
    waits_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class KnownOrigin:
    """An address from which a person has signed in with the right password, last at ``right_at`` (UTC). Wrong passwords
    from this address delay only tries from this address; wrong passwords from elsewhere do not delay them."""

    person: str
    origin: str
    right_at: datetime
    failures: int = 0
    waits_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Invitation:
    """A link by which a person chooses a password, once. ``digest``: the SHA-256 of its secret."""

    digest: str
    person: str
    made_by: str
    made_at: datetime
    ends_at: datetime


def wait_after(failures: int) -> timedelta:
    """The waiting time after that many wrong passwords in a row: none below `FREE_TRIES`, then 30 s, doubled with each
    further one, at most an hour."""
    if failures < FREE_TRIES:
        return timedelta(0)
    doublings: int = 2 ** min(failures - FREE_TRIES, 10)
    return min(_FIRST_WAIT * doublings, _LONGEST_WAIT)


def check_password(text: str, person: str) -> str:
    """The password, unchanged. Raises `InvalidInput` if it is too short, too long or easy to guess; the message never
    contains it."""
    if not SHORTEST <= len(text) <= LONGEST:
        raise InvalidInput(f"a password has {SHORTEST} to {LONGEST} characters", hint="a sentence is easy to remember")
    if person.lower() in text.lower() or len(set(text)) < 6:
        raise InvalidInput("this password is too easy to guess", hint="several words that have nothing to do with you")
    return text
