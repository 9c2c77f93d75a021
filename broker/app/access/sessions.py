"""Use cases: signing in at the page with an API token, and signing out."""

from __future__ import annotations

from datetime import timedelta

from broker.app.access.tokens import Entrant, enter, entrant_of
from broker.app.wiring import Broker
from broker.core.access.api_tokens import digest_of
from broker.core.access.audit import AuditRecord
from broker.core.access.sessions import IDLE, LONGEST_SESSION, PageSession, new_id
from broker.store.access.access import AccessWriting

_NOTED_EVERY = timedelta(minutes=5)  # how often the use of a session is recorded, so that not every read is a write


def sign_in(broker: Broker, token: str, *, origin: str) -> str | None:
    """Begin a session of the token's owner. Returns its id, a secret for their browser; None if the token is not
    accepted. ``origin``: for the audit log."""
    entrant = enter(broker, token)
    if entrant is None:
        return None
    with broker.store.access.writing() as tx:
        return begin_session(broker, tx, entrant.access.person.name, entrant.token.id, origin)


def begin_session(broker: Broker, tx: AccessWriting, person: str, token: str, origin: str) -> str:
    """The id of a new session, which ends with that token (its id)."""
    id, now = new_id(), broker.clock.now()
    ends = now + LONGEST_SESSION * broker.clock.scale
    tx.begin_session(PageSession(digest_of(id), person, token, now, now, ends))
    tx.log(AuditRecord(now, person, origin, "sessions.begin", person, token=token))
    return id


def resume(broker: Broker, id: str, *, used: bool = True) -> Entrant | None:
    """The person of a session with their present permissions; None if the session is unknown or over, its token expired
    or revoked, or the person disabled. ``used``: a person uses it, not only the browser's automatic refresh."""
    now, digest = broker.clock.now(), digest_of(id)
    with broker.store.access.reading() as look:
        found = look.session_and_owner(digest)
    if found is None:
        return None
    session, token, person = found
    if not session.good(now, IDLE * broker.clock.scale):
        return None
    entrant = entrant_of(token, person, now)
    if used and entrant is not None and now - session.seen_at >= _NOTED_EVERY * broker.clock.scale:
        with broker.store.access.writing() as tx:
            tx.session_seen(digest, now)
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
