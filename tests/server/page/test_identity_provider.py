"""Signing in at an identity provider (OpenID Connect). OWASP ASVS 5.0: 10.2.1, 10.2.2, 10.5.1 to 10.5.4.

A real provider answers, in which anybody is whoever they say; what it would never send comes from one made here.
"""

import base64
import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import oidc_provider_mock
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from oidc_provider_mock import User
from pydantic import SecretStr

from broker.app.access import identity_provider, people
from broker.app.access.identity_provider import IdentityProvider, SignInFailed
from broker.core.access.people import TeamRole
from broker.core.access.sessions import PENDING, PendingSignIn, challenge_of
from broker.core.actors import Role
from broker.core.errors import Malformed, Unreachable
from broker.core.values.clock import ManualClock
from broker.settings import SignInSettings
from tests.actors import ROOT, with_clock
from tests.server.page.browsing import Browser, Site, answering
from tests.server.world import Company, client_of, new_world

GROUPS = {"ml": "nlp:member", "leads": "nlp:team_administrator", "money": "finops"}
BACK = "/sign-in/callback"


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """The address of a provider that knows ann, of two groups, and a namesake of mia."""
    known = [
        User(sub="u-ann", claims={"preferred_username": "ann", "groups": ["ml", "money", "choir"]}),
        User(sub="u-other-mia", claims={"preferred_username": "mia", "groups": []}),
        User(sub="u-odd", claims={"preferred_username": "x" * 80}),
    ]
    with oidc_provider_mock.run_server_in_thread(user_claims=known) as server:
        yield f"http://localhost:{server.server_port}"


def with_provider(world: Company, issuer: str, groups: dict[str, str] | None = None) -> Site:
    given = GROUPS if groups is None else groups
    settings = SignInSettings(issuer=issuer, client_id="gpubroker", client_secret=SecretStr("s3cret"), groups=given)
    world.broker.settings.sign_in = settings
    return Site(world, answering(world.broker))


@pytest.fixture
def site(tmp_path: Path, provider: str) -> Iterator[Site]:
    world = new_world(tmp_path)
    yield with_provider(world, provider)
    world.broker.close()


def begin(browser: Browser, after: str = "/jobs") -> dict[str, str]:
    """What the browser is sent to the provider with."""
    answer = browser.get(f"/sign-in/provider?next={after}")
    assert answer.status_code == 303, answer.text
    asked = urlsplit(answer.headers["location"])
    return {name: values[0] for name, values in parse_qs(asked.query).items()} | {"": answer.headers["location"]}


def at_provider(asked: dict[str, str], subject: str) -> str:
    """Somebody signs in there; the path that they are sent back to."""
    answer = httpx.post(asked[""], data={"sub": subject})
    assert answer.status_code == 302, answer.text
    there = urlsplit(answer.headers["location"])
    return f"{there.path}?{there.query}"


def sign_in(browser: Browser, subject: str, after: str = "/jobs") -> Any:
    return browser.get(at_provider(begin(browser, after), subject))


def person(site: Site, name: str) -> Any:
    with site.world.broker.store.access.reading() as look:
        return look.person(name)


def test_somebody_new_comes_in_with_the_roles_of_their_groups(site: Site) -> None:
    browser = site.browser()
    assert "/sign-in/provider?next=/jobs" in browser.get("/sign-in?next=/jobs").text
    asked = begin(browser)
    assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
    assert {"state", "nonce", "code_challenge"} <= asked.keys()
    done = browser.get(at_provider(asked, "u-ann"))
    assert (done.status_code, done.headers["location"]) == (303, "/jobs")
    assert browser.get("/jobs").status_code == 200
    ann = person(site, "ann")
    assert (ann.teams, ann.roles) == ({"nlp": TeamRole.MEMBER}, frozenset({Role.FINOPS}))
    with site.world.broker.store.access.reading() as look:
        done_here = [line.action for _, line in look.audit(limit=10, person="ann")]
    assert done_here == ["sessions.begin", "tokens.create", "people.role", "people.add"]


def test_groups_change_roles_and_leave_those_of_an_administrator(site: Site, provider: str) -> None:
    sign_in(site.browser(), "u-ann")
    people.give_role(site.world.broker, "ann", TeamRole.VIEWER, "vision", by=ROOT)
    changed = with_provider(site.world, provider, {"choir": "nlp:viewer", "ml": "nlp:member", "gone": "finops"})
    sign_in(changed.browser(), "u-ann")
    ann = person(site, "ann")
    assert ann.teams == {"nlp": TeamRole.MEMBER, "vision": TeamRole.VIEWER}, "the highest of several"
    assert ann.roles == frozenset(), "no group gives it any more"


def test_a_person_is_a_subject_and_never_a_name(site: Site) -> None:
    refused = sign_in(site.browser(), "u-other-mia")
    assert refused.status_code == 401
    assert "another person called mia" in refused.text
    assert "people invite mia --subject u-other-mia" in refused.text
    identity_provider.link(site.world.broker, "mia", "u-other-mia", by=ROOT)
    browser = site.browser()
    assert sign_in(browser, "u-other-mia").status_code == 303
    assert ">mia<" in browser.get("/").text


def test_a_disabled_person_and_an_odd_name_stay_outside(site: Site) -> None:
    sign_in(site.browser(), "u-ann")
    people.disable(site.world.broker, "ann", by=ROOT)
    assert "ann is disabled" in sign_in(site.browser(), "u-ann").text
    assert "cannot be used" in sign_in(site.browser(), "u-odd").text


def test_an_answer_counts_once_and_in_the_browser_that_began(site: Site) -> None:
    browser, other = site.browser(), site.browser()
    back = at_provider(begin(browser), "u-ann")
    stolen = other.get(back)
    assert (stolen.status_code, "did not begin here" in stolen.text) == (401, True)
    assert browser.get(back).status_code == 401, "and it is used up"
    back = at_provider(begin(browser), "u-ann")
    assert browser.get(back).status_code == 303
    assert browser.get(back).status_code == 401, "a replayed answer"


@pytest.mark.parametrize("query", ["", "?code=x", "?state=y", "?code=x&state=forged", "?error=access_denied&state=z"])
def test_a_forged_answer_is_refused_without_a_fault(site: Site, query: str) -> None:
    browser = site.browser()
    begin(browser)
    answer = browser.get(BACK + query)
    assert answer.status_code == 401
    assert "gpubroker_session" not in answer.headers.get("set-cookie", "")


def test_an_answer_comes_within_ten_minutes(site: Site) -> None:
    clock = ManualClock(site.world.broker.clock.now())
    browser = Browser(client_of(answering(with_clock(site.world.broker, clock))))
    back = at_provider(begin(browser), "u-ann")
    clock.advance(PENDING)
    assert browser.get(back).status_code == 401


def test_a_sign_in_leads_nowhere_else(site: Site) -> None:
    done = sign_in(site.browser(), "u-ann", "https://evil.example")
    assert done.headers["location"] == "/"


def test_without_a_provider_nothing_of_it_is_there(seen_site: Site) -> None:
    assert seen_site.browser().get("/sign-in/provider").status_code == 404
    assert "organisation" not in seen_site.browser().get("/sign-in").text


def test_a_provider_that_is_not_there_is_told(site: Site) -> None:
    away = with_provider(site.world, "http://localhost:9")
    answer = away.browser().get("/sign-in/provider")
    assert (answer.status_code, "cannot be reached" in answer.text) == (503, True)


# What a provider would never send.

KEY, STRANGE = RSAKey.generate_key(2048), RSAKey.generate_key(2048)
ISSUER = "https://login.example.org"
PENDING_SIGN_IN = PendingSignIn("s", "b", "the-nonce", "the-verifier", "/", datetime(2026, 11, 1, tzinfo=UTC))


@dataclass
class Forger:
    """A provider that answers with ``token``."""

    token: str
    issuer: str = ISSUER

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("openid-configuration"):
            paths = {"token_endpoint": "/token", "jwks_uri": "/keys", "authorization_endpoint": "/authorize"}
            return httpx.Response(
                200, json={name: ISSUER + path for name, path in paths.items()} | {"issuer": self.issuer}
            )
        if request.url.path == "/keys":
            return httpx.Response(200, json={"keys": [KEY.as_dict(private=False, kid="1", use="sig")]})
        form = parse_qs(request.content.decode())
        assert form["code_verifier"] == ["the-verifier"]
        return httpx.Response(200, json={"id_token": self.token} if self.token else {"error": "invalid_grant"})

    def ask(self) -> Any:
        settings = SignInSettings(issuer=ISSUER, client_id="gpubroker")
        made = IdentityProvider(settings, transport=httpx.MockTransport(self))
        return made.identity(PENDING_SIGN_IN, "code", "https://here/sign-in/callback")


def token(key: Any = KEY, alg: str = "RS256", now: int = 4_000_000_000, **changes: Any) -> str:
    claims = {"iss": ISSUER, "aud": "gpubroker", "sub": "u-1", "exp": now, "iat": 0, "nonce": "the-nonce"} | changes
    kept = {name: value for name, value in claims.items() if value is not None}
    return str(jwt.encode({"alg": alg, "kid": "1"}, kept, key, algorithms=[alg]))


def test_a_right_token_says_who_it_is() -> None:
    found = Forger(token(preferred_username="ann@example.org", groups=["a"])).ask()
    assert (found.subject, found.name, found.groups) == ("u-1", "ann", frozenset({"a"}))
    assert Forger(token()).ask().groups is None


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://evil.example"},
        {"aud": "another-program"},
        {"aud": ["gpubroker", "another-program"]},
        {"nonce": "of another sign-in"},
        {"nonce": None},
        {"exp": 1_000_000_000},
        {"exp": None},
        {"sub": None},
        {"key": STRANGE},
    ],
    ids="-".join,
)
def test_a_wrong_token_lets_nobody_in(changes: dict[str, Any]) -> None:
    text = token(**changes)
    with pytest.raises(SignInFailed) as caught:
        Forger(text).ask()
    assert text not in str(caught.value)


def test_a_token_signed_with_the_public_key_as_a_password_lets_nobody_in() -> None:
    head, body, _ = token().split(".")
    forged = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"1"}').rstrip(b"=").decode()
    signature = hmac.new(KEY.as_pem(private=False), f"{forged}.{body}".encode(), "sha256").digest()
    signed = base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
    for text in (f"{forged}.{body}.{signed}", f"{head}.{body}.", "nonsense"):
        with pytest.raises(SignInFailed):
            Forger(text).ask()


def test_a_refused_code_and_another_issuer_are_told() -> None:
    with pytest.raises(SignInFailed, match="invalid_grant"):
        Forger("").ask()
    with pytest.raises(Malformed, match="names another issuer"):
        Forger(token(), issuer="https://evil.example").ask()


def test_a_provider_without_documents_is_told() -> None:
    settings = SignInSettings(issuer=ISSUER, client_id="gpubroker")
    for status, kind in ((500, Unreachable), (200, Malformed)):
        made = IdentityProvider(
            settings, transport=httpx.MockTransport(lambda _, s=status: httpx.Response(s, text="<html>"))
        )
        with pytest.raises(kind):
            made.address(PENDING_SIGN_IN, "s", "https://here")


def test_the_challenge_is_that_of_the_specification() -> None:
    """RFC 7636, appendix B."""
    assert challenge_of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


@pytest.mark.parametrize(
    "wrong", [{"issuer": "http://login.example.org"}, {"groups": {"g": "nlp:emperor"}}, {"groups": {"g": "member"}}]
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        SignInSettings.model_validate({"issuer": ISSUER, "client_id": "x"} | wrong)
