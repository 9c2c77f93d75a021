"""The rows of `broker.store.tables.access`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from broker.store.rows.row import Row


class PersonRow(Row, table=True):
    """A person who may sign in. ``roles`` and ``teams`` (team → role) as JSON."""

    name: str = Field(primary_key=True)
    service: bool
    roles: str
    teams: str
    added_at: int = Field(sa_type=BigInteger)
    disabled_at: int | None = Field(sa_type=BigInteger)


class ApiTokenRow(Row, table=True):
    """An API token, without its text. ``scopes`` as JSON."""

    __table_args__ = (Index("api_token_person", "person", "made_at"),)

    id: str = Field(primary_key=True)
    person: str
    label: str
    scopes: str
    digest: str
    made_at: int = Field(sa_type=BigInteger)
    made_by: str
    expires_at: int = Field(sa_type=BigInteger)
    revoked_at: int | None = Field(sa_type=BigInteger)
    revoked_by: str
    used_at: int | None = Field(sa_type=BigInteger)


class ApiRequestRow(Row, table=True):
    """A change requested over the network. ``status``: None until it is answered; ``body``: the answer."""

    __table_args__ = (Index("api_request_at", "at"),)

    person: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    digest: str
    at: int = Field(sa_type=BigInteger)
    status: int | None
    body: str


class PageSessionRow(Row, table=True):
    """A session of the page, without its id. ``token``: the API token that started it."""

    __table_args__ = (Index("page_session_person", "person"), Index("page_session_ends", "ends_at"))

    digest: str = Field(primary_key=True)
    person: str
    token: str
    made_at: int = Field(sa_type=BigInteger)
    seen_at: int = Field(sa_type=BigInteger)
    ends_at: int = Field(sa_type=BigInteger)


class DeviceLoginRow(Row, table=True):
    """A login of a program, without its own code. ``granted``: None until a person decides; ``scopes`` as JSON."""

    __table_args__ = (Index("device_login_user_code", "user_code", unique=True),)

    digest: str = Field(primary_key=True)
    user_code: str
    client: str
    address: str
    scopes: str
    made_at: int = Field(sa_type=BigInteger)
    ends_at: int = Field(sa_type=BigInteger)
    asked_at: int | None = Field(sa_type=BigInteger)
    person: str
    granted: bool | None


class SignInLinkRow(Row, table=True):
    """A one-time sign-in link, without its secret. ``made_by``: empty for a link that `serve` made."""

    __table_args__ = (Index("sign_in_link_person", "person"),)

    digest: str = Field(primary_key=True)
    person: str
    made_by: str
    made_at: int = Field(sa_type=BigInteger)
    ends_at: int = Field(sa_type=BigInteger)
    used_at: int | None = Field(sa_type=BigInteger)


class ProviderSignInRow(Row, table=True):
    """A sign-in that has begun at the identity provider. ``state`` and ``browser``: hashes."""

    state: str = Field(primary_key=True)
    browser: str
    nonce: str
    verifier: str
    after: str
    ends_at: int = Field(sa_type=BigInteger)


class IdentityRow(Row, table=True):
    """The person behind an identity of the provider."""

    issuer: str = Field(primary_key=True)
    subject: str = Field(primary_key=True)
    person: str
    linked_at: int = Field(sa_type=BigInteger)


class AuditLogRow(Row, table=True):
    """One line of the audit log. Append-only."""

    __table_args__ = (Index("audit_log_person", "person", "number"), Index("audit_log_subject", "subject", "number"))

    number: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    at: int = Field(sa_type=BigInteger)
    person: str
    origin: str
    token: str
    action: str
    subject: str
    outcome: str
    before: str
    after: str
    reason: str
