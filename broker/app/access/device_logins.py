"""Use cases: a program logs in with a code that a signed-in person enters in the web UI (RFC 8628)."""

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

from broker.agent.names import is_one_line
from broker.app.access.tokens import NewToken, issue_token
from broker.app.wiring import Broker
from broker.core.access.api_tokens import AuditRecord, digest_of
from broker.core.access.people import NOT_FOR_SERVICES, Access, Permission, TokenScope, has_everywhere
from broker.core.access.sessions import (
    INTERVAL,
    SESSION_LABELS,
    VALID,
    DeviceLogin,
    new_id,
    new_user_code,
    normalize_user_code,
)
from broker.core.actors import Actor
from broker.core.errors import InvalidInput, Throttled

TOKEN_LIFETIME = timedelta(days=30)
"""The lifetime of a token that a login creates (wall clock)."""
_MAX_OPEN_LOGINS, _MAX_OF_NETWORK = 1_000, 20  # logins that are open at once; each ends after ten minutes
_MAX_CLIENT_LENGTH = 60
_SLACK = timedelta(seconds=1)  # for a program whose clock or network is not exact


class DeviceAnswer(StrEnum):
    """Why a program gets no token: the codes of RFC 8628, section 3.5, and of RFC 6749."""

    PENDING = "authorization_pending"
    SLOW_DOWN = "slow_down"
    DENIED = "access_denied"
    EXPIRED = "expired_token"
    UNKNOWN = "invalid_grant"


@dataclass(frozen=True, slots=True, repr=False)
class DeviceCodes:
    """The codes of a new login: ``device_code`` is the program's secret, ``user_code`` is shown to the person."""

    device_code: str
    user_code: str


def begin_login(broker: Broker, client: str, scopes: frozenset[TokenScope], *, address: str) -> DeviceCodes:
    """Begin a login, which grants nothing yet. ``client``: the name of the program's machine, shown to the person who
    decides; ``address``: where the request comes from. The codes expire after ten minutes.

    Raises `InvalidInput` for a name that is not one short line or without scopes, and `Throttled` while too many logins
    are open, in all or from the address.
    """
    if not is_one_line(client) or not 0 < len(client) <= _MAX_CLIENT_LENGTH:
        raise InvalidInput(f"expected one line of 1 to {_MAX_CLIENT_LENGTH} characters", where="client_name")
    if client in SESSION_LABELS:
        raise InvalidInput(f"expected the name of a machine; {client!r} means a session", where="client_name")
    if not scopes:
        raise InvalidInput("a login needs a scope", hint=f"known: {', '.join(TokenScope)}", where="scope")
    codes, now = DeviceCodes(new_id(), new_user_code()), broker.clock.now()
    ends = now + VALID * broker.clock.scale
    login = DeviceLogin(digest_of(codes.device_code), codes.user_code, client, address, scopes, now, ends)
    with broker.store.access.writing() as tx:
        if tx.device_login_of(codes.user_code) is not None or not tx.begin_device_login(
            login, most=_MAX_OPEN_LOGINS, per_network=_MAX_OF_NETWORK
        ):
            raise Throttled("too many logins are open", after=60.0, hint="wait a minute, and begin again")
    return codes


def pending_login(broker: Broker, user_code: str) -> DeviceLogin | None:
    """The login whose code a person typed, if it waits for a decision; else None."""
    with broker.store.access.reading() as reader:
        login = reader.device_login_of(normalize_user_code(user_code))
    return login if login is not None and _is_undecided(login, broker) else None


def grantable_scopes(login: DeviceLogin, access: Access) -> frozenset[TokenScope]:
    """The scopes that the login would get from this person: never more than the person's own session has, and of an
    administrator never `PEOPLE`: who tricks one into a grant would administer."""
    scopes = login.scopes & access.scopes
    if has_everywhere(access.person, Permission.ADMINISTER):
        scopes -= {TokenScope.PEOPLE}
    return scopes - NOT_FOR_SERVICES if access.person.service else scopes


def decide_login(broker: Broker, user_code: str, access: Access, *, grant: bool, by: Actor) -> DeviceLogin:
    """Grant or refuse a login as the signed-in person ``by``, with the scopes of `grantable_scopes`. Raises
    `InvalidInput` if no login with that code waits, or if no scope would be granted."""
    with broker.store.access.writing() as tx:
        login = tx.device_login_of(normalize_user_code(user_code))
        if login is None or not _is_undecided(login, broker):
            raise InvalidInput("no login with this code waits", hint="begin again: `gpubroker login`")
        scopes = grantable_scopes(login, access)
        if grant and not scopes:
            raise InvalidInput("this session has none of the requested scopes", hint="sign in with more scopes")
        decided_login = replace(login, person=by.identity, granted=grant, scopes=scopes if grant else login.scopes)
        tx.keep_device_login(decided_login)
        note = f"{login.client} at {login.address}: {'granted' if grant else 'refused'}"
        tx.log(AuditRecord.by(by, broker.clock.now(), "logins.decide", by.identity, after=note))
    return decided_login


def collect_token(broker: Broker, device_code: str) -> NewToken | DeviceAnswer:
    """The token of a granted login, once; otherwise the reason. The program asks again while the answer is `PENDING`,
    and less often after `SLOW_DOWN`."""
    digest, now = digest_of(device_code), broker.clock.now()
    with broker.store.access.writing() as tx:
        login = tx.device_login(digest)
        if login is None:
            return DeviceAnswer.UNKNOWN
        if login.over(now):
            tx.end_device_login(digest)
            return DeviceAnswer.EXPIRED
        if login.granted is None:
            early = login.asked_at is not None and now - login.asked_at < (INTERVAL - _SLACK) * broker.clock.scale
            tx.keep_device_login(replace(login, asked_at=now))
            return DeviceAnswer.SLOW_DOWN if early else DeviceAnswer.PENDING
        tx.end_device_login(digest)
        owner = tx.person(login.person) if login.granted else None
        if owner is None:
            return DeviceAnswer.DENIED
        lifetime = TOKEN_LIFETIME * broker.clock.scale
        by = Actor(owner.name)
        return issue_token(tx, owner, login.client, login.scopes, lifetime, by=by, now=now)


def _is_undecided(login: DeviceLogin, broker: Broker) -> bool:
    return login.granted is None and not login.over(broker.clock.now())
