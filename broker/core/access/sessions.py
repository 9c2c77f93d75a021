"""Sessions of the page: whom a browser acts for. Only a hash of a session's id is ever kept."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

IDLE = timedelta(hours=2)
"""Of the wall clock: a session that nobody uses for so long is over."""
LONGEST_SESSION = timedelta(hours=12)
"""Of the wall clock: after so long one signs in again."""


@dataclass(frozen=True, slots=True)
class PageSession:
    """A session on record. Times UTC. ``digest``: the SHA-256 of its id; ``token``: the id of the API token that began
    it, and without which it is good for nothing; ``seen_at``: when it was last used, within some minutes; ``ends_at``:
    when it is over however much it is used."""

    digest: str
    person: str
    token: str
    made_at: datetime
    seen_at: datetime
    ends_at: datetime

    def good(self, now: datetime, idle: timedelta) -> bool:
        """Whether it is still one, if ``idle`` is how long nobody may use it."""
        return now < self.ends_at and now - self.seen_at < idle


def new_id() -> str:
    """The id of a new session: 256 random bits."""
    return secrets.token_urlsafe(32)
