"""The organization's identity provider (OpenID Connect): its addresses, its keys, and the check of identity tokens."""

import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import httpx

from broker.core.access.sessions import PendingSignIn, ProviderIdentity, challenge_of
from broker.core.errors import AskAPerson, Malformed, Unreachable
from broker.settings import SignInSettings

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
        answer = self._asked("POST", self._address("token_endpoint"), data=form, auth=login)
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
            document: Any = self._asked("GET", self._address("jwks_uri"))
            try:
                self._keys = (now, KeySet.import_key_set(document))
            except (ValueError, KeyError, TypeError) as error:
                raise Malformed("the identity provider has no readable keys", where=self._settings.issuer) from error
        return self._keys[1]

    def _address(self, name: str) -> str:
        now = self._monotonic()
        if self._addresses is None or now - self._addresses[0] > _CACHE_SECONDS:
            configuration = self._asked("GET", f"{self._settings.issuer.rstrip('/')}/.well-known/openid-configuration")
            if configuration.get("issuer") != self._settings.issuer:
                raise Malformed("the identity provider names another issuer", where=self._settings.issuer)
            self._addresses = (now, configuration)
        address = self._addresses[1].get(name)
        if not isinstance(address, str):
            raise Malformed(f"the identity provider has no {name}", where=self._settings.issuer)
        return address

    def _asked(self, method: str, url: str, **options: Any) -> Mapping[str, Any]:
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
