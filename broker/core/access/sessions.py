"""Sessions of the page: the person for whom a browser acts. Only the hash of a session's id is stored."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

IDLE = timedelta(hours=2)
"""A session ends after this time without use (wall clock)."""
LONGEST_SESSION = timedelta(hours=12)
"""A session ends after this time in any case (wall clock)."""
WITH_PASSWORD, AT_PROVIDER = "password", "sign-in"
"""Labels of the tokens of sessions. Nobody has the texts of these tokens, and no program's login may have such a
name."""


@dataclass(frozen=True, slots=True)
class PageSession:
    """A stored session. Times are UTC. ``digest``: the SHA-256 of its id; ``token``: the id of the API token that
    started it; the session is invalid once that token is. ``seen_at``: its last use, exact to some minutes;
    ``ends_at``: its end, regardless of use."""

    digest: str
    person: str
    token: str
    made_at: datetime
    seen_at: datetime
    ends_at: datetime

    def good(self, now: datetime, idle: timedelta) -> bool:
        """Whether it is valid at ``now`` (UTC). ``idle``: the longest time without use."""
        return now < self.ends_at and now - self.seen_at < idle


def new_id() -> str:
    """The id of a new session: 256 random bits."""
    return secrets.token_urlsafe(32)
