"""People, tokens, sessions of the page, logins of programs, repeated requests, and the audit log."""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from broker.store.schema.row import STORE_NUMBERED, BigInt, Column, OptionalBigInt, Row, append_only


class PersonRow(Row, table=True):
    """A person who may sign in. ``roles`` and ``teams`` (team → role) as JSON."""

    name: Column[str] = Field(primary_key=True)
    service: Column[bool]
    roles: Column[str]
    teams: Column[str]
    added_at: BigInt
    disabled_at: OptionalBigInt


class ApiTokenRow(Row, table=True):
    """An API token, without its text. ``scopes`` as JSON."""

    __table_args__ = (Index("api_token_person", "person", "made_at"),)

    id: Column[str] = Field(primary_key=True)
    person: Column[str]
    label: Column[str]
    scopes: Column[str]
    digest: Column[str]
    made_at: BigInt
    made_by: Column[str]
    expires_at: BigInt
    revoked_at: OptionalBigInt
    revoked_by: Column[str]
    used_at: OptionalBigInt


class ApiRequestRow(Row, table=True):
    """A change requested over the network. ``status``: None until it is answered; ``body``: the answer."""

    __table_args__ = (Index("api_request_at", "at"),)

    person: Column[str] = Field(primary_key=True)
    key: Column[str] = Field(primary_key=True)
    digest: Column[str]
    at: BigInt
    status: Column[int | None]
    body: Column[str]


class PageSessionRow(Row, table=True):
    """A session of the page, without its id. ``token``: the API token that started it."""

    __table_args__ = (Index("page_session_person", "person"), Index("page_session_ends", "ends_at"))

    digest: Column[str] = Field(primary_key=True)
    person: Column[str]
    token: Column[str]
    made_at: BigInt
    seen_at: BigInt
    ends_at: BigInt


class DeviceLoginRow(Row, table=True):
    """A login of a program, without its own code. ``granted``: None until a person decides; ``scopes`` as JSON."""

    __table_args__ = (Index("device_login_user_code", "user_code", unique=True),)

    digest: Column[str] = Field(primary_key=True)
    user_code: Column[str]
    client: Column[str]
    address: Column[str]
    scopes: Column[str]
    made_at: BigInt
    ends_at: BigInt
    asked_at: OptionalBigInt
    person: Column[str]
    granted: Column[bool | None]


class SignInLinkRow(Row, table=True):
    """A one-time sign-in link, without its secret. ``made_by``: empty for a link that `serve` made."""

    __table_args__ = (Index("sign_in_link_person", "person"),)

    digest: Column[str] = Field(primary_key=True)
    person: Column[str]
    made_by: Column[str]
    made_at: BigInt
    ends_at: BigInt
    used_at: OptionalBigInt


class ProviderSignInRow(Row, table=True):
    """A sign-in that has begun at the identity provider. ``state`` and ``browser``: hashes."""

    state: Column[str] = Field(primary_key=True)
    browser: Column[str]
    nonce: Column[str]
    verifier: Column[str]
    after: Column[str]
    ends_at: BigInt


class IdentityRow(Row, table=True):
    """The person behind an identity of the provider."""

    issuer: Column[str] = Field(primary_key=True)
    subject: Column[str] = Field(primary_key=True)
    person: Column[str]
    linked_at: BigInt


class AuditLogRow(Row, table=True):
    """One line of the audit log. Append-only. ``digest``: the SHA-256 of the other columns and of the line before."""

    __table_args__ = (Index("audit_log_person", "person", "number"), Index("audit_log_subject", "subject", "number"))

    number: Column[int] = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs=STORE_NUMBERED)
    at: BigInt
    person: Column[str]
    origin: Column[str]
    token: Column[str]
    action: Column[str]
    subject: Column[str]
    outcome: Column[str]
    before: Column[str]
    after: Column[str]
    reason: Column[str]
    digest: Column[str]


append_only(AuditLogRow)
