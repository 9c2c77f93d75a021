"""The organization's identity provider (OpenID Connect): its addresses, its keys, and the check of identity tokens; how
people sign in there, and who is behind its identities."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import httpx

from broker.app.access.people import apply_provider_roles, get_person, require_administrator
from broker.app.access.sessions import begin_own_session
from broker.app.wiring import Broker
from broker.core.access.api_tokens import AuditRecord, digest_of
from broker.core.access.people import Person, TeamRole, check_name
from broker.core.access.sessions import AT_PROVIDER, PENDING, PendingSignIn, ProviderIdentity, challenge_of, new_id
from broker.core.actors import Actor, Role
from broker.core.errors import AskAPerson, InvalidInput, Malformed, Unreachable
from broker.settings import SignInSettings
from broker.store.access.access import AccessWriter

_TIMEOUT = httpx.Timeout(10.0)  # seconds
_CACHE_SECONDS = 3600.0  # seconds for which addresses and keys are cached
_LEEWAY = 60  # seconds by which clocks may differ
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]  # no HMAC
_SCOPES = "openid profile email"


class SignInFailed(AskAPerson):
    """The sign-in failed. The message never contains a token or a code."""


class IdentityProvider:
    """One provider. Thread-safe. Methods may raise `Unreachable`, and `Malformed` for answers that break the
    specification. ``monotonic``: seconds."""

    def __init__(
        self,
        settings: SignInSettings,
        *,
        transport: httpx.BaseTransport | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._monotonic = monotonic
        self._addresses: tuple[float, Mapping[str, Any]] | None = None
        self._keys: tuple[float, Any] | None = None

    def address(self, pending: PendingSignIn, state: str, back: str) -> str:
        """Where the browser signs in. ``state``: its plain value; ``back``: where the answer goes."""
        parameters = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": back,
            "scope": _SCOPES,
            "state": state,
            "nonce": pending.nonce,
            "code_challenge": challenge_of(pending.verifier),
            "code_challenge_method": "S256",
        }
        endpoint = self._address("authorization_endpoint")
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(parameters)}"

    def identity(self, pending: PendingSignIn, code: str, back: str) -> ProviderIdentity:
        """Who signed in. Raises `SignInFailed` for a code that the provider refuses, and for a token of another issuer,
        audience or sign-in, an expired one, or one not signed with the provider's keys."""
        settings = self._settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back,
            "code_verifier": pending.verifier,
        }
        secret = settings.client_secret
        login = (settings.client_id, secret.get_secret_value()) if secret else None
        if login is None:  # a public client names itself in the form
            form["client_id"] = settings.client_id
        answer = self._request("POST", self._address("token_endpoint"), data=form, auth=login)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise SignInFailed(f"the identity provider refused the sign-in: {answer.get('error', 'no identity token')}")
        claims = self._claims(token, pending)
        name = claims.get(settings.name_claim) or claims["sub"]
        groups = claims.get(settings.groups_claim)
        group_names = frozenset(map(str, groups)) if isinstance(groups, list) else None
        return ProviderIdentity(settings.issuer, str(claims["sub"]), str(name).partition("@")[0], group_names)

    def _claims(self, token: str, pending: PendingSignIn) -> Mapping[str, Any]:
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError, JoseError

        client = self._settings.client_id
        checks = jwt.JWTClaimsRegistry(
            leeway=_LEEWAY,
            iss={"essential": True, "value": self._settings.issuer},
            aud={"essential": True, "value": client},
            sub={"essential": True},
            exp={"essential": True},
            nonce={"essential": True, "value": pending.nonce},
        )
        for fresh in (False, True):  # the provider may have changed its keys since they were cached
            try:
                claims = jwt.decode(token, self._key_set(fresh=fresh), algorithms=_ALGORITHMS).claims
                checks.validate(claims)
                break
            except (InvalidKeyIdError, ValueError) as error:
                if fresh:
                    raise SignInFailed("the identity token is not signed by the provider") from error
            except JoseError as error:
                raise SignInFailed(f"the identity token is not valid: {error.error}") from error
        audiences = claims["aud"]
        if isinstance(audiences, list) and len(audiences) > 1 and claims.get("azp") != client:
            raise SignInFailed("the identity token is for another program")
        return claims

    def _key_set(self, *, fresh: bool) -> Any:
        from joserfc.jwk import KeySet

        now = self._monotonic()
        if fresh or self._keys is None or now - self._keys[0] > _CACHE_SECONDS:
            document: Any = self._request("GET", self._address("jwks_uri"))
            try:
                self._keys = (now, KeySet.import_key_set(document))
            except (ValueError, KeyError, TypeError) as error:
                raise Malformed("the identity provider has no readable keys", where=self._settings.issuer) from error
        return self._keys[1]

    def _address(self, name: str) -> str:
        now = self._monotonic()
        if self._addresses is None or now - self._addresses[0] > _CACHE_SECONDS:
            configuration = self._request(
                "GET", f"{self._settings.issuer.rstrip('/')}/.well-known/openid-configuration"
            )
            if configuration.get("issuer") != self._settings.issuer:
                raise Malformed("the identity provider names another issuer", where=self._settings.issuer)
            self._addresses = (now, configuration)
        address = self._addresses[1].get(name)
        if not isinstance(address, str):
            raise Malformed(f"the identity provider has no {name}", where=self._settings.issuer)
        return address

    def _request(self, method: str, url: str, **options: Any) -> Mapping[str, Any]:
        try:
            with httpx.Client(timeout=_TIMEOUT, transport=self._transport) as http:
                answer = http.request(method, url, headers={"Accept": "application/json"}, **options)
        except httpx.TransportError as error:
            message = f"the identity provider cannot be reached: {type(error).__name__}"
            raise Unreachable(message, where=self._settings.issuer) from error
        if answer.status_code >= 500:
            raise Unreachable(f"the identity provider answers {answer.status_code}", where=self._settings.issuer)
        try:
            document = answer.json()
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise Malformed("the answer of the identity provider is not a document", where=self._settings.issuer)
        return document


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
        tx.log(AuditRecord.by(by, now, "people.link", person.name, after=f"{subject} at {issuer}"))
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
