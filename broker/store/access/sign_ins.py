"""How people sign in: sessions of the page, one-time links, logins of programs, sign-ins at the identity provider."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, func, select

from broker.core.access.provider_sign_ins import PendingSignIn
from broker.core.access.sessions import DeviceLogin, PageSession, SignInLink
from broker.store.engine.fields import columns_of, value_of
from broker.store.engine.times import to_micros
from broker.store.tables.access import (
    DEVICE_LOGIN,
    IDENTITY,
    PAGE_SESSION,
    PROVIDER_SIGN_IN,
    SIGN_IN_LINK,
)


def session(connection: Connection, digest: str) -> PageSession | None:
    """The page session with that hash; None if unknown."""
    row = connection.execute(select(PAGE_SESSION).where(PAGE_SESSION.c.digest == digest)).first()
    return None if row is None else value_of(PageSession, row)


def begin_session(connection: Connection, session: PageSession) -> None:
    """Store a new session and delete expired ones."""
    connection.execute(PAGE_SESSION.delete().where(PAGE_SESSION.c.ends_at <= to_micros(session.made_at)))
    connection.execute(PAGE_SESSION.insert().values(columns_of(PAGE_SESSION, session)))


def session_seen(connection: Connection, digest: str, at: datetime) -> None:
    """Record a use of the session."""
    change = PAGE_SESSION.update().where(PAGE_SESSION.c.digest == digest)
    connection.execute(change.values(seen_at=to_micros(at)))


def end_session(connection: Connection, digest: str) -> None:
    """Delete the session."""
    connection.execute(PAGE_SESSION.delete().where(PAGE_SESSION.c.digest == digest))


def end_sessions(connection: Connection, person: str) -> int:
    """Delete all sessions of a person; returns their number."""
    return connection.execute(PAGE_SESSION.delete().where(PAGE_SESSION.c.person == person)).rowcount


def device_login(connection: Connection, digest: str) -> DeviceLogin | None:
    """The login with that hash of the program's code; None if unknown."""
    row = connection.execute(select(DEVICE_LOGIN).where(DEVICE_LOGIN.c.digest == digest)).first()
    return None if row is None else value_of(DeviceLogin, row)


def device_login_of(connection: Connection, user_code: str) -> DeviceLogin | None:
    """The login with that code, which people enter; None if unknown."""
    row = connection.execute(select(DEVICE_LOGIN).where(DEVICE_LOGIN.c.user_code == user_code)).first()
    return None if row is None else value_of(DeviceLogin, row)


def keep_device_login(connection: Connection, login: DeviceLogin) -> None:
    """Store the login; replaces an earlier record."""
    end_device_login(connection, login.digest)
    connection.execute(DEVICE_LOGIN.insert().values(columns_of(DEVICE_LOGIN, login)))


def end_device_login(connection: Connection, digest: str) -> None:
    """Delete the login."""
    connection.execute(DEVICE_LOGIN.delete().where(DEVICE_LOGIN.c.digest == digest))


def end_granted_logins(connection: Connection, person: str) -> None:
    """Delete the logins that the person granted and whose programs have not collected their tokens."""
    c = DEVICE_LOGIN.c
    connection.execute(DEVICE_LOGIN.delete().where(c.person == person, c.granted))


def begin_device_login(connection: Connection, login: DeviceLogin, *, most: int) -> bool:
    """Delete expired logins, and store a new one; False, without storing it, if there are ``most`` already."""
    connection.execute(DEVICE_LOGIN.delete().where(DEVICE_LOGIN.c.ends_at <= to_micros(login.made_at)))
    if (connection.scalar(select(func.count()).select_from(DEVICE_LOGIN)) or 0) >= most:
        return False
    keep_device_login(connection, login)
    return True


def begin_provider_sign_in(connection: Connection, pending: PendingSignIn, now: datetime) -> None:
    """Store a sign-in at the identity provider, and delete expired ones."""
    connection.execute(PROVIDER_SIGN_IN.delete().where(PROVIDER_SIGN_IN.c.ends_at <= to_micros(now)))
    connection.execute(PROVIDER_SIGN_IN.insert().values(columns_of(PROVIDER_SIGN_IN, pending)))


def take_provider_sign_in(connection: Connection, state: str) -> PendingSignIn | None:
    """Delete the sign-in with that hash of its state and return it, so that an answer counts once. None if unknown."""
    row = connection.execute(select(PROVIDER_SIGN_IN).where(PROVIDER_SIGN_IN.c.state == state)).first()
    if row is None:
        return None
    connection.execute(PROVIDER_SIGN_IN.delete().where(PROVIDER_SIGN_IN.c.state == state))
    return value_of(PendingSignIn, row)


def person_of(connection: Connection, issuer: str, subject: str) -> str | None:
    """The name of the person with that identity of the provider; None if unknown."""
    c = IDENTITY.c
    return connection.scalar(select(c.person).where(c.issuer == issuer, c.subject == subject))


def link_identity(connection: Connection, issuer: str, subject: str, person: str, at: datetime) -> None:
    """Assign the identity to the person; replaces an earlier assignment."""
    c = IDENTITY.c
    connection.execute(IDENTITY.delete().where(c.issuer == issuer, c.subject == subject))
    values = {"issuer": issuer, "subject": subject, "person": person, "linked_at": to_micros(at)}
    connection.execute(IDENTITY.insert().values(**values))


def keep_link(connection: Connection, link: SignInLink) -> None:
    """Store a new link. It replaces the person's unused ones; links that have expired are deleted."""
    end_links(connection, link.person)
    connection.execute(SIGN_IN_LINK.delete().where(SIGN_IN_LINK.c.ends_at <= to_micros(link.made_at)))
    connection.execute(SIGN_IN_LINK.insert().values(columns_of(SIGN_IN_LINK, link)))


def use_link(connection: Connection, digest: str, now: datetime) -> SignInLink | None:
    """Use up the link with that hash of its secret; None if it is unknown, used or has expired."""
    c = SIGN_IN_LINK.c
    use = SIGN_IN_LINK.update().where(c.digest == digest, c.used_at.is_(None), c.ends_at > to_micros(now))
    if connection.execute(use.values(used_at=to_micros(now))).rowcount == 0:
        return None
    return value_of(SignInLink, connection.execute(select(SIGN_IN_LINK).where(c.digest == digest)).one())


def end_links(connection: Connection, person: str) -> None:
    """Delete the person's unused links."""
    c = SIGN_IN_LINK.c
    connection.execute(SIGN_IN_LINK.delete().where(c.person == person, c.used_at.is_(None)))
