"""Use cases: signing in at the organization's identity provider; the people behind its identities."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from broker.app.access.identity_provider import IdentityProvider, SignInFailed
from broker.app.access.people import apply_provider_roles, get_person, require_administrator
from broker.app.access.sessions import begin_own_session
from broker.app.wiring import Broker
from broker.core.access.api_tokens import AuditRecord, digest_of
from broker.core.access.people import Person, TeamRole, check_name
from broker.core.access.sessions import AT_PROVIDER, PENDING, PendingSignIn, ProviderIdentity, new_id
from broker.core.actors import Actor, Role
from broker.core.errors import InvalidInput
from broker.store.access.access import AccessWriter


@dataclass(frozen=True, slots=True, repr=False)
class StartedSignIn:
    """``address``: where the browser goes; ``browser``: the cookie that it keeps meanwhile, a secret."""

    address: str
    browser: str


def begin(broker: Broker, provider: IdentityProvider, after: str, back: str) -> StartedSignIn:
    """Begin to sign in. ``after``: the page to continue at; ``back``: the address of this server that the provider
    answers to. Raises as `IdentityProvider`."""
    state, browser, now = new_id(), new_id(), broker.clock.now()
    ends = now + PENDING * broker.clock.scale
    pending = PendingSignIn(digest_of(state), digest_of(browser), new_id(), new_id(), after, ends)
    address = provider.address(pending, state, back)
    with broker.store.access.writing() as tx:
        tx.begin_provider_sign_in(pending, now)
    return StartedSignIn(address, browser)


def finish(
    broker: Broker, provider: IdentityProvider, *, state: str, code: str, browser: str, back: str, origin: str
) -> tuple[str, str]:
    """Complete a sign-in. Returns the id of a new session, a secret for the browser, and the page to continue at.

    An answer is accepted once, in the browser that began the sign-in, within ten minutes. Raises `SignInFailed`
    otherwise, and for a disabled person or a name that is somebody else's; and as `IdentityProvider`.
    """
    now = broker.clock.now()
    with broker.store.access.writing() as tx:
        pending = tx.take_provider_sign_in(digest_of(state))
    if pending is None or now >= pending.ends_at or pending.browser != digest_of(browser):
        raise SignInFailed("this sign-in did not begin here, or took too long", hint="sign in again")
    identity = provider.identity(pending, code, back)
    with broker.store.access.writing() as tx:
        person = _resolve_person(broker, tx, identity, origin)
        if person.disabled_at is not None:
            raise SignInFailed(f"{person.name} is disabled", hint="ask an administrator")
        note = f"at {identity.issuer}"
        return begin_own_session(broker, tx, person, AT_PROVIDER, origin, note), pending.after


def link(broker: Broker, name: str, subject: str, *, by: Actor) -> Person:
    """Link an identity of the provider to a person who was added by name. Raises `UnknownName`, `InvalidInput` without
    a provider, and `NotAllowed` unless ``by`` is an administrator."""
    if broker.settings.sign_in is None:
        raise InvalidInput("no identity provider is set", hint="set sign_in.issuer and sign_in.client_id")
    issuer = broker.settings.sign_in.issuer
    with broker.store.access.writing() as tx:
        require_administrator(tx, by)
        person, now = get_person(tx, name), broker.clock.now()
        tx.link_identity(issuer, subject, person.name, now)
        tx.log(
            AuditRecord(now, by.identity, by.audit_origin, "people.link", person.name, after=f"{subject} at {issuer}")
        )
    return person


def _resolve_person(broker: Broker, tx: AccessWriter, identity: ProviderIdentity, origin: str) -> Person:
    """The person behind an identity, with the roles of their groups; a new one if the identity is unknown."""
    now = broker.clock.now()
    name = tx.person_of(identity.issuer, identity.subject)
    before = None if name is None else tx.person(name)
    if before is None:
        try:
            check_name(identity.name)
        except InvalidInput as error:
            raise SignInFailed(f"the identity provider gives a name that cannot be used: {error.message}") from error
        if tx.person(identity.name) is not None:
            raise SignInFailed(
                f"there is another person called {identity.name}",
                hint="if that is you, ask an administrator to run "
                f"`gpubroker people invite {identity.name} --subject {identity.subject}`",
            )
        before = Person(identity.name, now)
        tx.keep_person(before)
        tx.link_identity(identity.issuer, identity.subject, before.name, now)
        note = f"{identity.subject} at {identity.issuer}"
        tx.log(AuditRecord(now, before.name, origin, "people.add", before.name, after=note))
    if identity.groups is None or broker.settings.sign_in is None or not broker.settings.sign_in.groups:
        return before
    after = _apply_group_roles(before, broker.settings.sign_in.groups, identity.groups)
    return before if after == before else apply_provider_roles(broker, tx, before, after, before.name, origin)


def _apply_group_roles(person: Person, mapping: Mapping[str, str], groups: frozenset[str]) -> Person:
    """The person with the roles that the mapping gives to their groups, the highest in each team. Roles that the
    mapping does not name stay unchanged."""
    roles, teams = set(person.roles), dict(person.teams)
    for target in mapping.values():
        team, _, role = target.rpartition(":")
        if team:
            teams.pop(team, None)
        else:
            roles.discard(Role(role))
    order = list(TeamRole)
    for group, target in mapping.items():
        if group not in groups:
            continue
        team, _, role = target.rpartition(":")
        if not team:
            roles.add(Role(role))
        elif team not in teams or order.index(TeamRole(role)) > order.index(teams[team]):
            teams[team] = TeamRole(role)
    return replace(person, roles=frozenset(roles), teams=teams)
