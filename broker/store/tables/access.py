"""The tables of people, tokens, sessions of the page, logins of programs, repeated requests, and the audit log."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, String, Table

from broker.store.tables.rows import METADATA

# A person who may sign in. ``roles`` and ``teams`` (team → role) as JSON.
PERSON = Table(
    "person",
    METADATA,
    Column("name", String, primary_key=True),
    Column("service", Boolean, nullable=False),
    Column("roles", String, nullable=False),
    Column("teams", String, nullable=False),
    Column("added_at", BigInteger, nullable=False),
    Column("disabled_at", BigInteger),
)

# An API token, without its text. ``scopes`` as JSON.
API_TOKEN = Table(
    "api_token",
    METADATA,
    Column("id", String, primary_key=True),
    Column("person", String, nullable=False),
    Column("label", String, nullable=False),
    Column("scopes", String, nullable=False),
    Column("digest", String, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("made_by", String, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    Column("revoked_by", String, nullable=False),
    Column("used_at", BigInteger),
    Index("api_token_person", "person", "made_at"),
)

# A change requested over the network. ``status``: None until it is answered; ``body``: the answer.
API_REQUEST = Table(
    "api_request",
    METADATA,
    Column("person", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("digest", String, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("status", Integer),
    Column("body", String, nullable=False),
    Index("api_request_at", "at"),
)

# A session of the page, without its id. ``token``: the API token that started it.
PAGE_SESSION = Table(
    "page_session",
    METADATA,
    Column("digest", String, primary_key=True),
    Column("person", String, nullable=False),
    Column("token", String, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
    Column("ends_at", BigInteger, nullable=False),
    Index("page_session_person", "person"),
    Index("page_session_ends", "ends_at"),
)

# A login of a program, without its own code. ``granted``: None until somebody decides; ``scopes`` as JSON.
DEVICE_LOGIN = Table(
    "device_login",
    METADATA,
    Column("digest", String, primary_key=True),
    Column("user_code", String, nullable=False),
    Column("client", String, nullable=False),
    Column("address", String, nullable=False),
    Column("scopes", String, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("ends_at", BigInteger, nullable=False),
    Column("asked_at", BigInteger),
    Column("person", String, nullable=False),
    Column("granted", Boolean),
    Index("device_login_user_code", "user_code", unique=True),
)

# A sign-in that has begun at the identity provider. ``state`` and ``browser``: hashes.
PROVIDER_SIGN_IN = Table(
    "provider_sign_in",
    METADATA,
    Column("state", String, primary_key=True),
    Column("browser", String, nullable=False),
    Column("nonce", String, nullable=False),
    Column("verifier", String, nullable=False),
    Column("after", String, nullable=False),
    Column("ends_at", BigInteger, nullable=False),
)

# The person behind an identity of the provider.
IDENTITY = Table(
    "identity",
    METADATA,
    Column("issuer", String, primary_key=True),
    Column("subject", String, primary_key=True),
    Column("person", String, nullable=False),
    Column("linked_at", BigInteger, nullable=False),
)

# One line of the audit log. Append-only.
AUDIT = Table(
    "audit_log",
    METADATA,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("person", String, nullable=False),
    Column("origin", String, nullable=False),
    Column("token", String, nullable=False),
    Column("action", String, nullable=False),
    Column("subject", String, nullable=False),
    Column("outcome", String, nullable=False),
    Column("before", String, nullable=False),
    Column("after", String, nullable=False),
    Column("reason", String, nullable=False),
    Index("audit_log_person", "person", "number"),
    Index("audit_log_subject", "subject", "number"),
)
