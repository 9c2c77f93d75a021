"""Use cases: signing in to the web UI with an API token or a one-time link, making such links, and signing out."""

from dataclasses import dataclass, replace
from datetime import timedelta

from broker.app.access.people import add_person, require_administrator
from broker.app.access.tokens import Entrant, authenticate, issue_token, make_entrant
from broker.app.wiring import Broker
from broker.core.access.api_tokens import ApiToken, AuditRecord, digest_of
from broker.core.access.people import Person, TokenScope
from broker.core.access.sessions import (
    BY_LINK,
    IDLE,
    LINK_LIFETIME,
    LONGEST_LINK,
    LONGEST_SESSION,
    RECENT,
    SESSION_LABELS,
    PageSession,
    SignInLink,
    new_id,
)
from broker.core.actors import Actor, Role
from broker.core.errors import InvalidInput
from broker.core.values.units import print_duration
from broker.store.access.access import AccessReader, AccessWriter

_USE_RECORDED_EVERY = timedelta(minutes=5)  # the least time between two recorded uses, to limit writes


@dataclass(frozen=True, slots=True, repr=False)
class NewLink:
    """A sign-in link and its secret, which cannot be shown again."""

    link: SignInLink
    secret: str


def invite(
    broker: Broker, name: str, *, by: Actor, administrator: bool = False, lifetime: timedelta = LINK_LIFETIME
) -> NewLink:
    """Create a link by which a person signs in once; their earlier unused links end. A person who is not on record is
    added, as an administrator if ``administrator``. Raises as `broker.app.access.people.add`, and `InvalidInput` for a
    lifetime outside 0 to `LONGEST_LINK`, for a service account and for a disabled person."""
    if not timedelta(0) < lifetime <= LONGEST_LINK:
        raise InvalidInput(f"a link is valid for more than 0 and at most {print_duration(LONGEST_LINK)}")
    with broker.store.access.writing() as tx:
        person = tx.person(name)
        if person is None:
            person = add_person(broker, tx, name, by=by, administrator=administrator)
        else:
            require_administrator(tx, by)
        if person.service:
            raise InvalidInput(f"{name} is a service account", hint=f"`gpubroker tokens create {name}`")
        if person.disabled_at is not None:
            raise InvalidInput(f"{name} is disabled", hint=f"`gpubroker people disable {name} --undo`")
        if administrator and Role.ADMINISTRATOR not in person.roles:
            hint = f"`gpubroker people grant {name} administrator`"
            raise InvalidInput(f"{name} exists already and is not an administrator", hint=hint)
        return _new_link(broker, tx, name, by.identity, lifetime, by)


def lacks_administrator(broker: Broker) -> bool:
    """Whether nobody is an administrator yet."""
    with broker.store.access.reading() as reader:
        return not _has_administrator(reader)


def first_link(broker: Broker, *, by: Actor) -> NewLink | None:
    """A link that makes ``by`` the first administrator when it is used; an unused earlier one ends. None if there is
    an administrator."""
    with broker.store.access.writing() as tx:
        if _has_administrator(tx):
            return None
        return _new_link(broker, tx, by.identity, "", LINK_LIFETIME, by)


def _new_link(broker: Broker, tx: AccessWriter, name: str, made_by: str, lifetime: timedelta, by: Actor) -> NewLink:
    secret, now = new_id(), broker.clock.now()
    link = SignInLink(digest_of(secret), name, made_by, now, now + lifetime * broker.clock.scale)
    tx.keep_link(link)
    note = f"a sign-in link until {link.ends_at:%Y-%m-%d %H:%M} UTC"
    tx.log(AuditRecord.by(by, now, "people.invite", name, after=note))
    return NewLink(link, secret)


def sign_in_by_link(broker: Broker, secret: str, *, origin: str) -> str | None:
    """Begin a session of the link's person, and use the link up. Returns the session's id; None if the link is unknown,
    used or has expired. The caller does not learn which. ``origin``: for the audit log."""
    with broker.store.access.writing() as tx:
        link = tx.use_link(digest_of(secret), broker.clock.now())
        if link is None:
            return None
        person = tx.person(link.person) if link.made_by else _first_administrator(broker, tx, link, origin)
        if person is None or person.disabled_at is not None:
            return None
        note = f"by a link of {link.made_by or 'the server'}"
        return begin_own_session(broker, tx, person, BY_LINK, origin, note)


def _first_administrator(broker: Broker, tx: AccessWriter, link: SignInLink, origin: str) -> Person | None:
    """The person of the link, made an administrator; None if there is one by now, and for a service account."""
    now, before = broker.clock.now(), tx.person(link.person)
    if _has_administrator(tx) or (before is not None and before.service):
        return None
    person = before or Person(link.person, now)
    after = replace(person, roles=person.roles | {Role.ADMINISTRATOR})
    tx.keep_person(after)
    before_text = before.in_words if before else ""
    tx.log(AuditRecord(now, link.person, origin, "people.add", link.person, before=before_text, after=after.in_words))
    return after


def _has_administrator(reader: AccessReader) -> bool:
    return any(Role.ADMINISTRATOR in person.roles and person.disabled_at is None for person in reader.people())


def sign_in(broker: Broker, token: str, *, origin: str) -> str | None:
    """Begin a session of the token's owner. Returns its id, a secret for their browser; None if the token is not
    accepted. ``origin``: for the audit log."""
    entrant = authenticate(broker, token)
    if entrant is None:
        return None
    with broker.store.access.writing() as tx:
        return _begin_session(broker, tx, entrant.access.person.name, entrant.token.id, origin, "by a token")


def begin_own_session(
    broker: Broker, tx: AccessWriter, person: Person, label: str, origin: str, after: str = ""
) -> str:
    """The id of a new session that began without a token. It gets one, with one of `SESSION_LABELS` and every scope,
    whose text nobody has."""
    lifetime = LONGEST_SESSION * broker.clock.scale
    by, now = Actor(person.name), broker.clock.now()
    token = issue_token(tx, person, label, frozenset(TokenScope), lifetime, by=by, now=now).token
    return _begin_session(broker, tx, person.name, token.id, origin, after)


def _begin_session(broker: Broker, tx: AccessWriter, person: str, token: str, origin: str, after: str) -> str:
    """The id of a new session, which ends with that token (its id)."""
    id, now = new_id(), broker.clock.now()
    ends = now + LONGEST_SESSION * broker.clock.scale
    tx.begin_session(PageSession(digest_of(id), person, token, now, now, ends))
    tx.log(AuditRecord(now, person, origin, "sessions.begin", person, token=token, after=after))
    return id


def is_recent(broker: Broker, token: ApiToken) -> bool:
    """Whether the token is that of a session that began by a link or at the identity provider within `RECENT`."""
    return token.label in SESSION_LABELS and broker.clock.now() - token.made_at < RECENT * broker.clock.scale


def resume(broker: Broker, id: str, *, used: bool = True) -> Entrant | None:
    """The person of a session with their present permissions; None if the session is unknown or over, its token expired
    or revoked, or the person disabled. ``used``: a person uses it, not only the browser's automatic refresh."""
    now, digest = broker.clock.now(), digest_of(id)
    with broker.store.access.reading() as reader:
        record = reader.session_and_owner(digest)
    if record is None:
        return None
    session, token, person = record
    if not session.good(now, IDLE * broker.clock.scale):
        return None
    entrant = make_entrant(token, person, now)
    if used and entrant is not None and now - session.seen_at >= _USE_RECORDED_EVERY * broker.clock.scale:
        with broker.store.access.writing() as tx:
            tx.record_session_use(digest, now)
    return entrant


def sign_out(broker: Broker, id: str, *, origin: str, everywhere: bool = False) -> None:
    """End a session; with ``everywhere`` all sessions of its person. Idempotent."""
    with broker.store.access.writing() as tx:
        session = tx.session(digest_of(id))
        if session is None:
            return
        tx.end_session(session.digest)
        if everywhere:
            tx.end_sessions(session.person)
        action = "sessions.end_all" if everywhere else "sessions.end"
        tx.log(AuditRecord(broker.clock.now(), session.person, origin, action, session.person, token=session.token))
