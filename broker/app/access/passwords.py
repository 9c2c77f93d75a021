"""Use cases without an identity provider: inviting people, choosing a password, signing in with it, changing it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from broker.app.access import second_factors
from broker.app.access.people import known_person, only_administrators
from broker.app.access.sessions import begin_session
from broker.app.access.tokens import issued
from broker.app.wiring import Broker
from broker.core.access.api_tokens import digest_of
from broker.core.access.audit import AuditOutcome, AuditRecord
from broker.core.access.passwords import (
    INVITED,
    KNOWN_FOR,
    Invitation,
    KnownOrigin,
    StoredPassword,
    check_password,
    wait_after,
)
from broker.core.access.permissions import TokenScope
from broker.core.access.sessions import LONGEST_SESSION, WITH_PASSWORD
from broker.core.actors import Actor
from broker.core.errors import AskAPerson, InvalidInput, MissingExtra, NotAllowed
from broker.store.access.access import AccessReading, AccessWriting

if TYPE_CHECKING:
    from argon2 import PasswordHasher

T = TypeVar("T")

_SCOPES = frozenset(
    {TokenScope.READ, TokenScope.JOBS, TokenScope.APPROVALS, TokenScope.POLICIES, TokenScope.PURCHASES}
)  # fmt: skip
_AT_ONCE = threading.Semaphore(2)  # each hash takes 64 MiB and a processor


class WrongPassword(AskAPerson):
    """Name or password is wrong. The message does not say which, nor whether the person has to wait."""

    def __init__(self) -> None:
        super().__init__(
            "sign-in failed", hint="check name and password; after several wrong tries, wait before the next"
        )


@dataclass(frozen=True, slots=True, repr=False)
class NewInvitation:
    """An invitation and its secret, which cannot be shown again."""

    invitation: Invitation
    secret: str


def invite(broker: Broker, name: str, *, by: Actor) -> NewInvitation:
    """Invite a person to choose a password, which also replaces a forgotten one. Earlier invitations end. Raises
    `UnknownName`, `InvalidInput` for a service account, for a disabled person and where an identity provider signs
    people in, and `NotAllowed` unless ``by`` is an administrator."""
    if broker.settings.sign_in is not None:
        raise InvalidInput(
            "people sign in at the identity provider here, so a password has no use",
            hint=f"add {name} there; `gpubroker people link` for a name that is taken",
        )
    secret = secrets.token_urlsafe(32)
    with broker.store.access.writing() as tx:
        only_administrators(tx, by)
        person, now = known_person(tx, name), broker.clock.now()
        if person.service or person.disabled_at is not None:
            what = "a service account" if person.service else "disabled"
            raise InvalidInput(f"{name} is {what} and cannot sign in", hint="`gpubroker tokens create`")
        ends = now + INVITED * broker.clock.scale
        found = Invitation(digest_of(secret), person.name, by.identity, now, ends)
        tx.invite(found)
        tx.log(
            AuditRecord(now, by.identity, by.came_from, "people.invite", person.name, after=f"until {ends:%Y-%m-%d}")
        )
    return NewInvitation(found, secret)


def invited(broker: Broker, secret: str) -> Invitation | None:
    """The invitation with that secret; None if it is unknown, was accepted or is over."""
    with broker.store.access.reading() as look:
        return look.invitation(digest_of(secret), broker.clock.now())


def accept(broker: Broker, secret: str, password: str, *, origin: str) -> str:
    """Choose the password of an invitation, once; returns the person's name. Their sessions end. Raises `NotAllowed`
    for an invitation that cannot be accepted, `InvalidInput` for the password."""
    found = invited(broker, secret)
    if found is None:
        raise _gone()
    digest = _hashed(check_password(password, found.person))
    with broker.store.access.writing() as tx:
        now = broker.clock.now()
        person = tx.person(found.person)
        if tx.invitation(found.digest, now) is None or person is None or person.disabled_at is not None:
            raise _gone()
        tx.end_invitations(found.person)
        tx.keep_password(StoredPassword(found.person, digest, now))
        tx.forget_password_origins(found.person)
        tx.end_sessions(found.person)
        tx.log(AuditRecord(now, found.person, origin, "passwords.choose", found.person))
    return found.person


def sign_in(broker: Broker, name: str, password: str, code: str = "", *, origin: str) -> str:
    """The id of a new session. ``code``: of the second factor, where the person has one. Raises `WrongPassword`; wrong
    passwords and codes are counted, and each lengthens the time in which no try is accepted. An unknown name takes as
    long as a wrong password."""
    attempt = SignInAttempt(name, password, origin, "sessions.begin", code)
    return _with_the_right_one(broker, attempt, lambda tx: _begun(broker, tx, name, origin))


def confirm(broker: Broker, name: str, password: str, code: str | None = None, *, origin: str) -> None:
    """Check the password of a signed-in person before a change that a stolen session must not make. ``code``: of the
    second factor, where it is requested too. Raises as `sign_in`."""
    _with_the_right_one(broker, SignInAttempt(name, password, origin, "passwords.confirm", code), lambda tx: None)


@dataclass(frozen=True, slots=True, repr=False)
class SignInAttempt:
    """What a person entered. ``action``: under which a failure is recorded in the audit log; ``code``: of the second
    factor; None: not requested."""

    name: str
    password: str
    origin: str
    action: str
    code: str | None


def _with_the_right_one(broker: Broker, attempt: SignInAttempt, then: Callable[[AccessWriting], T]) -> T:
    """The result of ``then``, if password and code are right. Raises `WrongPassword` otherwise."""
    now, name, origin = broker.clock.now(), attempt.name, attempt.origin
    with broker.store.access.reading() as look:
        stored, person = look.password(name), look.person(name)
        waits = stored is not None and _waits(_tries(broker, look, stored, origin), now)
    right = _verified(_nobodys() if stored is None or waits else stored.digest, attempt.password)
    if stored is None or person is None or person.disabled_at is not None or waits:
        raise WrongPassword
    with broker.store.access.writing() as tx:
        current = tx.password(name)
        tries = None if current is None else _tries(broker, tx, current, origin)
        if tries is None or current is None or current.digest != stored.digest or _waits(tries, now):  # changed since
            raise WrongPassword
        reason = "" if right else "wrong_password"
        if right and attempt.code is not None and not second_factors.passes(broker, tx, name, attempt.code, origin):
            reason = "wrong_code"
        if reason:
            failures = tries.failures + 1
            until = now + wait_after(failures) * broker.clock.scale
            _keep(tx, replace(tries, failures=failures, waits_until=until))
            tx.log(AuditRecord(now, name, origin, attempt.action, name, AuditOutcome.REFUSED, reason=reason))
        else:
            if attempt.code is not None:  # else wrong codes still count
                if tries is current:  # failures from elsewhere still count
                    tx.keep_password(replace(current, failures=0, waits_until=None))
                tx.keep_password_origin(KnownOrigin(name, origin, now))
            return then(tx)
    raise WrongPassword


def _tries(broker: Broker, look: AccessReading, stored: StoredPassword, origin: str) -> StoredPassword | KnownOrigin:
    """The record in which failures from an address are counted: that of the address if the person has signed in from it
    lately, else one for all other addresses, so that guesses from elsewhere do not lock the person out."""
    known = look.password_origin(stored.person, origin)
    lately = known is not None and broker.clock.now() - known.right_at < KNOWN_FOR * broker.clock.scale
    return known if known is not None and lately else stored


def _keep(tx: AccessWriting, tries: StoredPassword | KnownOrigin) -> None:
    if isinstance(tries, KnownOrigin):
        tx.keep_password_origin(tries)
    else:
        tx.keep_password(tries)


def change(broker: Broker, name: str, old: str, new: str, code: str = "", *, origin: str) -> str:
    """Change a person's password; every session of theirs ends, and the id of a new one is returned. ``code``: as in
    `sign_in`, since the session may have begun with a token. Raises as `sign_in`, and `InvalidInput` for the new
    password."""
    check_password(new, name)
    confirm(broker, name, old, code, origin=origin)
    digest = _hashed(new)
    with broker.store.access.writing() as tx:
        now = broker.clock.now()
        tx.keep_password(StoredPassword(name, digest, now))
        tx.forget_password_origins(name)
        tx.keep_password_origin(KnownOrigin(name, origin, now))
        tx.end_invitations(name)
        tx.end_sessions(name)
        tx.log(AuditRecord(now, name, origin, "passwords.change", name))
        return _begun(broker, tx, name, origin)


def has_password(broker: Broker, name: str) -> bool:
    """Whether the person signs in with a password."""
    with broker.store.access.reading() as look:
        return look.password(name) is not None


def _begun(broker: Broker, tx: AccessWriting, name: str, origin: str) -> str:
    """Begin a session; returns its id. The session has a token of its own, whose text is not given to anyone; the token
    ends with the session. A person who lacks a required second factor may only read."""
    person, now = known_person(tx, name), broker.clock.now()
    lifetime = LONGEST_SESSION * broker.clock.scale
    scopes = frozenset({TokenScope.READ}) if second_factors.lacks(broker, tx, person) else _SCOPES
    token = issued(tx, person, WITH_PASSWORD, scopes, lifetime, by=Actor(person.name), now=now).token
    return begin_session(broker, tx, person.name, token.id, origin)


def _waits(tries: StoredPassword | KnownOrigin, now: datetime) -> bool:
    return tries.waits_until is not None and now < tries.waits_until


def _gone() -> NotAllowed:
    return NotAllowed(
        "this invitation was accepted or replaced, or has expired", hint="ask an administrator for another"
    )


@cache
def _hasher() -> PasswordHasher:
    try:
        from argon2 import PasswordHasher
    except ImportError as error:
        raise MissingExtra("server", "signing in with a password") from error
    return PasswordHasher()  # Argon2id, with RFC 9106's parameters for servers with little memory


@cache
def _nobodys() -> str:
    return _hashed(secrets.token_urlsafe(32))


def _hashed(password: str) -> str:
    with _AT_ONCE:
        return str(_hasher().hash(password))


def _verified(digest: str, password: str) -> bool:
    from argon2.exceptions import VerificationError

    with _AT_ONCE:
        try:
            return bool(_hasher().verify(digest, password[:1000]))
        except VerificationError:
            return False
