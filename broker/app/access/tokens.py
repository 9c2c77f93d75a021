"""Use cases: create, list, revoke and check API tokens."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.agent.names import is_one_line
from broker.app.access.people import add_person, get_person, require_administrator
from broker.app.wiring import Broker
from broker.core.access.api_tokens import (
    ID_LENGTH,
    MAX_VALIDITY,
    PREFIX,
    ApiToken,
    AuditRecord,
    digest_of,
    id_of,
    new_text,
)
from broker.core.access.people import NOT_FOR_SERVICES, Access, Person, TokenScope
from broker.core.access.sessions import SESSION_LABELS
from broker.core.actors import Actor
from broker.core.errors import Conflict, InvalidInput, UnknownName
from broker.core.values.units import print_duration
from broker.store.access.access import AccessWriter

_USE_RECORDED_EVERY = timedelta(
    minutes=10
)  # how often the use of a token is recorded, so that not every read is a write
_MAX_LABEL_LENGTH = 80
_MAX_OWN = 50  # valid tokens of a person who makes one of their own


@dataclass(frozen=True, slots=True, repr=False)
class NewToken:
    """A token and its text, which cannot be shown again."""

    token: ApiToken
    text: str


@dataclass(frozen=True, slots=True)
class Entrant:
    """An authenticated person with their permissions, and the token that was used."""

    access: Access
    token: ApiToken


def create(
    broker: Broker, person: str, label: str, scopes: Collection[TokenScope], expires: timedelta, *, by: Actor,
    service: bool = False,
) -> NewToken:  # fmt: skip
    """Create a token for a person. ``expires``: its lifetime,
    at most `MAX_VALIDITY`. ``service``: for a service account,
    which is added if it is unknown.

    Raises `UnknownName`, `InvalidInput` (no scope, invalid lifetime or label, a disabled person) and `NotAllowed`
    unless ``by`` is an administrator.
    """
    _check_terms(label, scopes, expires)
    with broker.store.access.writing() as tx:
        require_administrator(tx, by)
        is_new = service and tx.person(person) is None
        owner = add_person(broker, tx, person, by=by, service=True) if is_new else get_person(tx, person)
        if service and not owner.service:
            raise InvalidInput(f"{person} is a person, not a service account", hint="leave out --service")
        if owner.disabled_at is not None:
            raise InvalidInput(f"{person} is disabled", hint=f"`gpubroker people disable {person} --undo`")
        if owner.service and (forbidden_scopes := sorted(NOT_FOR_SERVICES & set(scopes))):
            raise InvalidInput(
                f"{person} is a service account: it never approves, changes policies or freezes statements",
                hint=f"leave out --scope {forbidden_scopes[0]}",
            )
        return issue_token(tx, owner, label, scopes, expires, by=by, now=broker.clock.now())


def create_own(
    broker: Broker, token: str, label: str, scopes: Collection[TokenScope], expires: timedelta, *, by: Actor
) -> NewToken:
    """Create a token of one's own by another one, whose id is ``token``: it has no more scopes, never `PEOPLE`, so that
    it makes no others, and ends no later. Raises `InvalidInput`, and `Conflict` for too many."""
    _check_terms(label, scopes, expires)
    now = broker.clock.now()
    with broker.store.access.writing() as tx:
        maker = tx.token(token)
        if maker is None or maker.person != by.identity or not maker.good(now):
            raise InvalidInput("only a valid token makes another one", where="token", hint="log in again")
        if wider_scopes := sorted(set(scopes) - (maker.scopes - {TokenScope.PEOPLE})):
            text = f"a token that another one makes has none but its scopes, and never people; not {wider_scopes[0]}"
            raise InvalidInput(text, where="scopes", hint="an administrator makes others")
        if now + expires > maker.expires_at:
            text = f"a token that another one makes ends no later than that, on {maker.expires_at:%Y-%m-%d %H:%M} UTC"
            raise InvalidInput(text, where="expires_days", hint="say fewer days")
        if sum(known_token.good(now) for known_token in tx.tokens(by.identity)) >= _MAX_OWN:
            raise Conflict(f"{by.identity} has {_MAX_OWN} valid tokens", hint="revoke those that are not used")
        return issue_token(tx, get_person(tx, by.identity), label, scopes, expires, by=by, now=now)


def _check_terms(label: str, scopes: Collection[TokenScope], expires: timedelta) -> None:
    if not scopes:
        raise InvalidInput("a token needs a scope", hint=f"say --scope: {', '.join(TokenScope)}")
    if not timedelta(0) < expires <= MAX_VALIDITY:
        message = f"expected more than 0 and at most {print_duration(MAX_VALIDITY)}; got {print_duration(expires)}"
        raise InvalidInput(message, where="--expires")
    if label in SESSION_LABELS:
        raise InvalidInput(
            f"{label!r} means a session of the web UI", where="--label", hint="state what the token is for"
        )
    if not is_one_line(label) or len(label) > _MAX_LABEL_LENGTH:
        raise InvalidInput(f"expected one line of at most {_MAX_LABEL_LENGTH} characters", where="--label")


def issue_token(
    tx: AccessWriter, owner: Person, label: str, scopes: Collection[TokenScope], expires: timedelta, *, by: Actor,
    now: datetime,
) -> NewToken:  # fmt: skip
    """Store a new token of a person and its line in the audit log. The caller has checked that ``by`` may do it."""
    text = new_text()
    id = id_of(text)
    assert id is not None
    token = ApiToken(id, owner.name, label, frozenset(scopes), digest_of(text), now, by.identity, now + expires)
    tx.add_token(token)
    tx.log(AuditRecord.by(by, now, "tokens.create", token.id, after=token.in_words))
    return NewToken(token, text)


def tokens(broker: Broker, person: str | None = None) -> Sequence[ApiToken]:
    """All tokens, or those of a person, oldest first. Raises `UnknownName`."""
    with broker.store.access.reading() as reader:
        return reader.tokens(None if person is None else get_person(reader, person).name)


def revoke(broker: Broker, id: str, *, by: Actor, own: bool = False) -> ApiToken:
    """Revoke a token at once and permanently. Idempotent. ``id``: its id, or its whole text, as of a leaked token that
    somebody found; the text is never printed. ``own``: only one of ``by``. Raises `UnknownName` and `NotAllowed`."""
    id = id_of(id) or id.removeprefix(PREFIX)
    with broker.store.access.writing() as tx:
        if not own:
            require_administrator(tx, by)
        token = tx.token(id)
        if token is None or (own and token.person != by.identity):
            known_tokens = tx.tokens(by.identity if own else None)
            raise UnknownName("token", id[:ID_LENGTH], [known_token.id for known_token in known_tokens])
        if token.revoked_at is not None:
            return token
        now = broker.clock.now()
        tx.log(AuditRecord.by(by, now, "tokens.revoke", id, before=token.in_words, after="revoked"))
        return tx.revoke_token(token, by=by.identity, at=now)


def revoke_by_text(broker: Broker, text: str, *, origin: str) -> None:
    """Revoke a token by its text; no other permission is needed. Idempotent; a wrong text changes nothing, and the
    caller does not learn it (RFC 7009)."""
    id = id_of(text)
    with broker.store.access.writing() as tx:
        token = None if id is None else tx.token(id)
        if token is None or not token.has_text(text) or token.revoked_at is not None:
            return
        now = broker.clock.now()
        record = AuditRecord(
            now, token.person, origin, "tokens.revoke", token.id, before=token.in_words, after="revoked"
        )
        tx.log(record)
        tx.revoke_token(token, by=token.person, at=now)


def authenticate(broker: Broker, text: str) -> Entrant | None:
    """The owner of a token with their present permissions; None if the token is unknown, wrong, expired or revoked, or
    its owner disabled. The caller does not learn which."""
    id = id_of(text)
    if id is None:
        return None
    now = broker.clock.now()
    with broker.store.access.reading() as reader:
        record = reader.token_and_owner(id)
    if record is None or not record[0].has_text(text):
        return None
    token = record[0]
    entrant = make_entrant(token, record[1], now)
    if entrant is None:
        return None
    if token.used_at is None or now - token.used_at >= _USE_RECORDED_EVERY:
        with broker.store.access.writing() as tx:
            tx.record_token_use(id, now)
    return entrant


def make_entrant(token: ApiToken, person: Person, now: datetime) -> Entrant | None:
    """The owner of a token whose text was verified; None if it is expired or revoked, or its owner disabled."""
    good = token.good(now) and person.disabled_at is None
    return Entrant(Access(person, token.scopes), token) if good else None
