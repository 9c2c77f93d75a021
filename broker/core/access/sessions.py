"""Sessions of the page: the person for whom a browser acts; links by which a person begins one, once; and logins of
programs that cannot show a page (RFC 8628): the program shows a short code, and a person who is signed in at the page
enters it there; and signing in at the organization's identity provider. Of a session's id and a link's secret only the
hash is stored.
"""

import base64
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from broker.core.access.people import TokenScope

IDLE = timedelta(hours=2)
"""A session ends after this time without use (wall clock)."""
LONGEST_SESSION = timedelta(hours=12)
"""A session ends after this time in any case (wall clock)."""
RECENT = timedelta(minutes=30)
"""How long after a sign-in by link or at the identity provider a session may change people (wall clock)."""
BY_LINK, AT_PROVIDER = SESSION_LABELS = "sign-in link", "sign-in"
"""Labels of the tokens of sessions. Nobody has the texts of these tokens, and no other token may have such a label."""
LINK_LIFETIME, LONGEST_LINK = timedelta(hours=24), timedelta(days=7)
"""How long a sign-in link is valid unless its maker decides otherwise, and at most (wall clock)."""
LINK_PATH = "/link"
"""The path of sign-in links, before their secrets."""


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


@dataclass(frozen=True, slots=True)
class SignInLink:
    """A stored link, by which a person signs in once. Times are UTC. ``digest``: the SHA-256 of its secret;
    ``made_by``: empty for the link of the first administrator, which the server made."""

    digest: str
    person: str
    made_by: str
    made_at: datetime
    ends_at: datetime
    used_at: datetime | None = None


def new_id() -> str:
    """The id of a new session, the secret of a new link or the code of a program: 256 random bits."""
    return secrets.token_urlsafe(32)


VALID = timedelta(minutes=10)
"""A login ends after this time, granted or not (wall clock)."""
INTERVAL = timedelta(seconds=5)
"""The minimum time between two requests of the program (wall clock)."""
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"  # no vowels, so no words (RFC 8628, section 6.1)
_LENGTH = 8


@dataclass(frozen=True, slots=True)
class DeviceLogin:
    """A stored login. Times are UTC.

    ``digest``: the SHA-256 of the program's own code; ``user_code``: the code that the person enters; ``client``: the
    name that the program gave its machine, which anybody can choose; ``address``: of the request; ``asked_at``: the
    program's last request. ``person``: who granted or refused the login; ``granted``: None until then. ``scopes``:
    those requested; after the grant, those granted.
    """

    digest: str
    user_code: str
    client: str
    address: str
    scopes: frozenset[TokenScope]
    made_at: datetime
    ends_at: datetime
    asked_at: datetime | None = None
    person: str = ""
    granted: bool | None = None

    def over(self, now: datetime) -> bool:
        """Whether the code has expired."""
        return now >= self.ends_at


def new_user_code() -> str:
    """A code for a person to type: eight consonants, 34 bits."""
    text = "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))
    return f"{text[:4]}-{text[4:]}"


def normalize_user_code(text: str) -> str:
    """The stored form of a code that a person typed: case, spaces and dashes do not matter."""
    letters = "".join(letter for letter in text.upper() if letter.isalnum())
    return f"{letters[:4]}-{letters[4:]}"


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
