"""How people sign in: sessions of the page, one-time links, logins of programs, sign-ins at the identity provider."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select, update

from broker.core.access.provider_sign_ins import PendingSignIn
from broker.core.access.sessions import DeviceLogin, PageSession, SignInLink
from broker.store.engine.fields import columns_of, value_of
from broker.store.engine.times import to_micros
from broker.store.schema.access import DeviceLoginRow, IdentityRow, PageSessionRow, ProviderSignInRow, SignInLinkRow


def session(connection: Connection, digest: str) -> PageSession | None:
    """The page session with that hash; None if unknown."""
    row = connection.execute(select(PageSessionRow).where(PageSessionRow.digest == digest)).first()
    return None if row is None else value_of(PageSession, row)


def begin_session(connection: Connection, session: PageSession) -> None:
    """Store a new session and delete expired ones."""
    connection.execute(delete(PageSessionRow).where(PageSessionRow.ends_at <= to_micros(session.made_at)))
    connection.execute(insert(PageSessionRow).values(columns_of(PageSessionRow, session)))


def record_session_use(connection: Connection, digest: str, at: datetime) -> None:
    """Record a use of the session."""
    change = update(PageSessionRow).where(PageSessionRow.digest == digest)
    connection.execute(change.values(seen_at=to_micros(at)))


def end_session(connection: Connection, digest: str) -> None:
    """Delete the session."""
    connection.execute(delete(PageSessionRow).where(PageSessionRow.digest == digest))


def end_sessions(connection: Connection, person: str) -> int:
    """Delete all sessions of a person; returns their number."""
    return connection.execute(delete(PageSessionRow).where(PageSessionRow.person == person)).rowcount


def device_login(connection: Connection, digest: str) -> DeviceLogin | None:
    """The login with that hash of the program's code; None if unknown."""
    row = connection.execute(select(DeviceLoginRow).where(DeviceLoginRow.digest == digest)).first()
    return None if row is None else value_of(DeviceLogin, row)


def device_login_of(connection: Connection, user_code: str) -> DeviceLogin | None:
    """The login with that code, which people enter; None if unknown."""
    row = connection.execute(select(DeviceLoginRow).where(DeviceLoginRow.user_code == user_code)).first()
    return None if row is None else value_of(DeviceLogin, row)


def keep_device_login(connection: Connection, login: DeviceLogin) -> None:
    """Store the login; replaces an earlier record."""
    end_device_login(connection, login.digest)
    connection.execute(insert(DeviceLoginRow).values(columns_of(DeviceLoginRow, login)))


def end_device_login(connection: Connection, digest: str) -> None:
    """Delete the login."""
    connection.execute(delete(DeviceLoginRow).where(DeviceLoginRow.digest == digest))


def end_granted_logins(connection: Connection, person: str) -> None:
    """Delete the logins that the person granted and whose programs have not collected their tokens."""
    connection.execute(delete(DeviceLoginRow).where(DeviceLoginRow.person == person, DeviceLoginRow.granted.is_(True)))


def begin_device_login(connection: Connection, login: DeviceLogin, *, most: int) -> bool:
    """Delete expired logins, and store a new one; False, without storing it, if there are ``most`` already."""
    connection.execute(delete(DeviceLoginRow).where(DeviceLoginRow.ends_at <= to_micros(login.made_at)))
    if (connection.scalar(select(func.count()).select_from(DeviceLoginRow)) or 0) >= most:
        return False
    keep_device_login(connection, login)
    return True


def begin_provider_sign_in(connection: Connection, pending: PendingSignIn, now: datetime) -> None:
    """Store a sign-in at the identity provider, and delete expired ones."""
    connection.execute(delete(ProviderSignInRow).where(ProviderSignInRow.ends_at <= to_micros(now)))
    connection.execute(insert(ProviderSignInRow).values(columns_of(ProviderSignInRow, pending)))


def take_provider_sign_in(connection: Connection, state: str) -> PendingSignIn | None:
    """Delete the sign-in with that hash of its state and return it, so that an answer counts once. None if unknown."""
    row = connection.execute(select(ProviderSignInRow).where(ProviderSignInRow.state == state)).first()
    if row is None:
        return None
    connection.execute(delete(ProviderSignInRow).where(ProviderSignInRow.state == state))
    return value_of(PendingSignIn, row)


def person_of(connection: Connection, issuer: str, subject: str) -> str | None:
    """The name of the person with that identity of the provider; None if unknown."""
    return connection.scalar(
        select(IdentityRow.person).where(IdentityRow.issuer == issuer, IdentityRow.subject == subject)
    )


def link_identity(connection: Connection, issuer: str, subject: str, person: str, at: datetime) -> None:
    """Assign the identity to the person; replaces an earlier assignment."""
    connection.execute(delete(IdentityRow).where(IdentityRow.issuer == issuer, IdentityRow.subject == subject))
    values = {"issuer": issuer, "subject": subject, "person": person, "linked_at": to_micros(at)}
    connection.execute(insert(IdentityRow).values(**values))


def keep_link(connection: Connection, link: SignInLink) -> None:
    """Store a new link. It replaces the person's unused ones; links that have expired are deleted."""
    end_links(connection, link.person)
    connection.execute(delete(SignInLinkRow).where(SignInLinkRow.ends_at <= to_micros(link.made_at)))
    connection.execute(insert(SignInLinkRow).values(columns_of(SignInLinkRow, link)))


def use_link(connection: Connection, digest: str, now: datetime) -> SignInLink | None:
    """Use up the link with that hash of its secret; None if it is unknown, used or has expired."""
    use = update(SignInLinkRow).where(
        SignInLinkRow.digest == digest, SignInLinkRow.used_at.is_(None), SignInLinkRow.ends_at > to_micros(now)
    )
    if connection.execute(use.values(used_at=to_micros(now))).rowcount == 0:
        return None
    return value_of(SignInLink, connection.execute(select(SignInLinkRow).where(SignInLinkRow.digest == digest)).one())


def end_links(connection: Connection, person: str) -> None:
    """Delete the person's unused links."""
    connection.execute(delete(SignInLinkRow).where(SignInLinkRow.person == person, SignInLinkRow.used_at.is_(None)))
