"""A program logs in with a code that a person enters in the web UI (RFC 8628), and gives its token up (RFC 7009)."""

from typing import Any
from urllib.parse import urlsplit

import pytest

from broker.app.access import people, tokens
from broker.core.access.people import TokenScope
from broker.core.access.sessions import INTERVAL, VALID, new_user_code
from broker.core.values.clock import ManualClock
from broker.server.api.paths import GRANT
from tests.actors import ROOT, with_clock
from tests.server.page.browsing import Browser, FormFields, Site, answering
from tests.server.world import bearer

API = "/api/v1"


class Program:
    """The program of the other machine, as the specification says."""

    def __init__(self, site: Site) -> None:
        self.client = site.browser().client

    def begin(self, scope: str = "read jobs", **form: str) -> Any:
        told = {"client_id": "gpubroker", "client_name": "mias-laptop", "scope": scope} | form
        return self.client.post(f"{API}/device_authorization", data=told)

    def ask(self, code: str, **form: str) -> Any:
        told = {"grant_type": GRANT, "client_id": "gpubroker", "device_code": code} | form
        return self.client.post(f"{API}/token", data=told)


def decide(browser: Browser, codes: dict[str, Any], decision: str) -> Any:
    page = urlsplit(codes["verification_uri_complete"])
    return browser.send_form(f"{page.path}?{page.query}", "/device", decision=decision)


def manual(site: Site) -> ManualClock:
    """The site's clock from now on."""
    clock = ManualClock(site.world.broker.clock.now())
    site.application = answering(with_clock(site.world.broker, clock))
    return clock


def test_a_granted_program_acts_as_the_person_within_its_scopes(site: Site) -> None:
    clock = manual(site)
    program = Program(site)
    codes = program.begin().json()
    assert codes["verification_uri"] == "http://testserver/device"
    assert (codes["expires_in"], codes["interval"]) == (600, 5)
    assert program.ask(codes["device_code"]).json() == {"error": "authorization_pending"}
    asked = site.of("mia").get(f"/device?user_code={codes['user_code'].lower().replace('-', ' ')}").text
    assert "mias-laptop" in asked
    assert "jobs, read" in asked
    assert codes["device_code"] not in asked
    assert decide(site.of("mia"), codes, "grant").status_code == 200
    clock.advance(INTERVAL)
    got = program.ask(codes["device_code"])
    assert got.status_code == 200
    assert got.headers["cache-control"] == "no-store"
    token = got.json()["access_token"]
    assert got.json() | {"access_token": ""} == {
        "access_token": "", "token_type": "Bearer", "expires_in": 30 * 86400, "scope": "jobs read"
    }  # fmt: skip
    me = program.client.get(f"{API}/me", headers=bearer(token)).json()
    assert (me["person"]["name"], me["scopes"]) == ("mia", ["jobs", "read"])
    assert program.ask(codes["device_code"]).json() == {"error": "invalid_grant"}, "once"
    with site.world.broker.store.access.reading() as look:
        lines = [(one.action, one.person, one.after) for _, one in look.audit(limit=2)]
    assert [action for action, *_ in lines] == ["tokens.create", "logins.decide"]
    assert lines[1] == ("logins.decide", "mia", "mias-laptop at testclient: granted")


def test_a_refused_program_gets_nothing(site: Site) -> None:
    clock = manual(site)
    program = Program(site)
    codes = program.begin().json()
    assert "Refused" in decide(site.of("mia"), codes, "refuse").text
    clock.advance(INTERVAL)
    assert program.ask(codes["device_code"]).json() == {"error": "access_denied"}
    assert not tokens_of(site, "mias-laptop")


def test_what_a_session_may_not_do_it_cannot_grant(site: Site) -> None:
    program = Program(site)
    browser = site.browser()
    browser.sign_in(site.world.token("mia", TokenScope.READ))
    codes = program.begin("read jobs approvals").json()
    decide(browser, codes, "grant")
    assert program.ask(codes["device_code"]).json()["scope"] == "read"
    nothing = program.begin("jobs").json()
    page = browser.get(f"/device?user_code={nothing['user_code']}").text
    assert "none of the requested scopes" in page
    assert 'value="grant"' not in page
    forged = FormFields(page).forms["/device"] | {"decision": "grant"}
    assert browser.post("/device", forged).status_code == 409
    assert program.ask(nothing["device_code"]).json() == {"error": "authorization_pending"}


def test_no_login_administers_and_a_members_makes_own_tokens(site: Site) -> None:
    clock = manual(site)
    scopes = {}
    for who in ("adam", "mia"):
        codes = Program(site).begin("read people").json()
        assert decide(site.of(who), codes, "grant").status_code == 200
        clock.advance(INTERVAL)
        scopes[who] = Program(site).ask(codes["device_code"]).json()["scope"]
    assert scopes == {"adam": "read", "mia": "people read"}


def test_a_person_disabled_meanwhile_gets_no_token(site: Site) -> None:
    program = Program(site)
    codes = program.begin().json()
    decide(site.of("mia"), codes, "grant")
    people.disable(site.world.broker, "mia", by=ROOT)
    people.enable(site.world.broker, "mia", by=ROOT)
    assert program.ask(codes["device_code"]).json() == {"error": "invalid_grant"}


def test_no_program_is_called_as_sessions_are(site: Site) -> None:
    """else its token would outlive a change of roles"""
    assert Program(site).begin(client_name="sign-in link").status_code == 400


def test_a_code_ends_after_ten_minutes(site: Site) -> None:
    clock = manual(site)
    program = Program(site)
    codes = program.begin().json()
    early = site.of("mia").get(f"/device?user_code={codes['user_code']}").text
    clock.advance(VALID)
    late = FormFields(early).forms["/device"] | {"decision": "grant"}
    assert site.of("mia").post("/device", late).status_code == 404
    assert program.ask(codes["device_code"]).json() == {"error": "expired_token"}
    assert program.ask(codes["device_code"]).json() == {"error": "invalid_grant"}, "forgotten"


def test_a_hasty_program_is_slowed_down(site: Site) -> None:
    clock = manual(site)
    program = Program(site)
    code = program.begin().json()["device_code"]
    assert program.ask(code).json()["error"] == "authorization_pending"
    assert program.ask(code).json()["error"] == "slow_down"
    clock.advance(INTERVAL)
    assert program.ask(code).json()["error"] == "authorization_pending"


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"client_id": "other"}, "invalid_client"),
        ({"scope": "read root"}, "invalid_scope"),
        ({"client_name": ""}, "invalid_request"),
        ({"client_name": "a\nb"}, "invalid_request"),
        ({"client_name": "x" * 61}, "invalid_request"),
    ],
)
def test_a_wrong_beginning_is_named(seen_site: Site, form: dict[str, str], error: str) -> None:
    answer = Program(seen_site).begin(**form)
    assert (answer.status_code, answer.json()["error"]) == (400, error)


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"device_code": ""}, "invalid_request"),
        ({"device_code": "guessed"}, "invalid_grant"),
    ],
)
def test_a_wrong_question_is_named(seen_site: Site, form: dict[str, str], error: str) -> None:
    answer = Program(seen_site).ask("x", **form)
    assert (answer.status_code, answer.json()["error"]) == (400, error)


def test_nobody_tries_all_codes(site: Site) -> None:
    browser = site.of("mia")
    statuses = [browser.get(f"/device?user_code={new_user_code()}").status_code for _ in range(12)]
    assert statuses == [404] * 10 + [429] * 2
    codes = Program(site).begin().json()
    assert site.of("apple").get(f"/device?user_code={codes['user_code']}").status_code == 200, "others are not kept out"


def test_the_page_asks_who_one_is_first(seen_site: Site) -> None:
    answer = seen_site.browser().get("/device?user_code=BCDF-GHJK")
    assert (answer.status_code, answer.headers["location"]) == (
        303, "/sign-in?next=/device%3Fuser_code%3DBCDF-GHJK"
    )  # fmt: skip


def test_only_hashes_are_stored(site: Site) -> None:
    codes = Program(site).begin().json()
    with site.world.broker.store.access.reading() as look:
        kept = look.device_login_of(codes["user_code"])
    assert kept is not None
    assert codes["device_code"] not in repr(kept)


def test_whoever_has_a_token_may_give_it_up(site: Site) -> None:
    token, other = site.world.token("mia"), site.world.token("mia")
    client = site.browser().client
    for _ in range(2):
        assert client.post(f"{API}/revoke", data={"token": token}).status_code == 200
    assert client.get(f"{API}/me", headers=bearer(token)).status_code == 401
    forged = other[:-1] + ("0" if other[-1] != "0" else "1")
    assert client.post(f"{API}/revoke", data={"token": forged}).status_code == 200
    assert client.get(f"{API}/me", headers=bearer(other)).status_code == 200


def tokens_of(site: Site, label: str) -> list[str]:
    return [one.id for one in tokens.tokens(site.world.broker) if one.label == label]
