"""Signing in and out; sessions that are stolen, over, or whose token is gone. OWASP ASVS 5.0: 3.3.1, 3.3.2, 3.3.4,
7.2.1 to 7.2.4, 7.3.1, 7.3.2, 7.4.1, 7.4.2."""

import logging
from datetime import timedelta

import pytest

from broker.app.access import people, sessions, tokens
from broker.core.access.api_tokens import digest_of, new_text
from broker.core.access.people import TokenScope
from broker.core.access.sessions import IDLE, LONGEST_SESSION
from broker.core.values.clock import ManualClock
from broker.server.api.transport import Transport
from tests.actors import ROOT, with_clock
from tests.server.page.browsing import FROM_HERE, Browser, FormFields, Site, answering
from tests.server.world import Company, bearer, client_of

COOKIE = "gpubroker_session"


def test_a_token_pasted_once_lets_in_and_never_stands_in_a_page(site: Site) -> None:
    browser, token = site.browser(), site.world.token("mia")
    answer = browser.sign_in(token, "/jobs?state=running")
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs?state=running")
    said = answer.headers["set-cookie"]
    assert all(part in said for part in ("HttpOnly", "SameSite=lax", "Path=/"))
    assert "Max-Age" not in said
    assert "Domain" not in said
    page = browser.get("/").text
    assert token[-64:] not in page
    assert browser.client.cookies[COOKIE] not in page


def test_without_a_session_one_is_asked_to_sign_in_and_comes_back(seen_site: Site) -> None:
    answer = seen_site.browser().get("/jobs?team=nlp")
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in?next=/jobs%3Fteam%3Dnlp")
    form = seen_site.browser().get(answer.headers["location"]).text
    assert 'value="/jobs?team=nlp"' in form


@pytest.mark.parametrize(
    "after", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:x", "/a\nb"]
)
def test_signing_in_leads_nowhere_else(seen_site: Site, after: str) -> None:
    assert seen_site.browser().sign_in(seen_site.world.token("mia"), after).headers["location"] == "/"


@pytest.mark.parametrize("token", ["", "nonsense", f"gpb_{'0' * 12}_{'0' * 64}", "<script>"])
def test_a_wrong_token_lets_nobody_in_and_is_not_repeated(seen_site: Site, token: str) -> None:
    answer = seen_site.browser().sign_in(token)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "is not valid" in answer.text
    assert not token or token not in answer.text


def test_who_guesses_waits(site: Site) -> None:
    statuses = [site.browser().sign_in(new_text()).status_code for _ in range(22)]
    assert statuses == [401] * 20 + [429] * 2
    assert site.browser().get("/api/v1/me", headers=bearer(new_text())).status_code == 429, "counted together"


def test_only_a_hash_of_a_session_is_kept_and_signing_in_anew_changes_it(site: Site) -> None:
    browser = site.browser()
    browser.sign_in(site.world.token("mia"))
    first = browser.client.cookies[COOKIE]
    with site.world.broker.store.access.reading() as look:
        assert look.session(digest_of(first)) is not None
        assert look.session(first) is None
    browser.sign_in(site.world.token("mia"))
    assert browser.client.cookies[COOKIE] != first
    assert site.browser({COOKIE: first}).get("/").status_code == 303, "the earlier one is over"


def test_signing_out_ends_the_session_on_the_server(site: Site) -> None:
    browser = site.browser()
    browser.sign_in(site.world.token("mia"))
    stolen = browser.client.cookies[COOKIE]
    answer = browser.send_form("/", "/sign-out")
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    assert COOKIE not in browser.client.cookies
    assert site.browser({COOKIE: stolen}).get("/").status_code == 303


def test_signing_out_everywhere_ends_every_session_of_the_person_alone(site: Site) -> None:
    one, other, colleague = site.browser(), site.browser(), site.browser()
    for browser, name in ((one, "mia"), (other, "mia"), (colleague, "vic")):
        browser.sign_in(site.world.token(name))
    assert "change own jobs" in one.get("/me").text
    page = FormFields(one.get("/me").text)
    assert [found.get("name") for tag, found in page.elements if tag == "button"] == [None, "everywhere"]
    one.send_form("/", "/sign-out", everywhere="yes")
    assert [browser.get("/").status_code for browser in (other, colleague)] == [303, 200]


def test_a_session_ends_with_its_token_and_with_its_person(site: Site) -> None:
    world, browser, other = site.world, site.browser(), site.browser()
    token = world.token("mia")
    browser.sign_in(token)
    other.sign_in(world.token("mia"))
    tokens.revoke(world.broker, token, by=ROOT)
    assert [browser.get("/").status_code, other.get("/").status_code] == [303, 200]
    people.disable(world.broker, "mia", by=ROOT)
    assert other.get("/").status_code == 303


def at(world: Company, clock: ManualClock) -> Browser:
    """A browser signed in at a page whose time is that clock's."""
    broker = with_clock(world.broker, clock)
    browser = Browser(client_of(answering(broker)))
    browser.sign_in(tokens.create(broker, "mia", "", list(TokenScope), timedelta(days=2), by=ROOT).text)
    return browser


def test_a_session_ends_when_nobody_uses_it(site: Site, clock: ManualClock) -> None:
    browser = at(site.world, clock)
    clock.advance(IDLE - timedelta(seconds=1))
    assert browser.get("/sign-in").status_code == 200
    assert browser.get("/jobs").status_code == 200, "used, so it goes on"
    clock.advance(IDLE - timedelta(seconds=1))
    assert browser.get("/jobs").status_code == 200
    clock.advance(IDLE - timedelta(seconds=1))
    by_itself = "asked by the browser itself, which nobody may look at"
    assert browser.get("/queue?refresh=30").status_code == 200, by_itself
    assert browser.get("/queue", headers={"HX-Request": "true"}).status_code == 200, by_itself
    clock.advance(timedelta(seconds=1))
    assert browser.get("/jobs").status_code == 303


def test_a_session_ends_however_much_it_is_used(site: Site, clock: ManualClock) -> None:
    browser = at(site.world, clock)
    for _ in range(12):
        assert browser.get("/jobs/x").status_code == 404
        clock.advance(LONGEST_SESSION / 12)
    assert browser.get("/jobs").status_code == 303


def test_an_expired_token_ends_its_session(site: Site, clock: ManualClock) -> None:
    broker = with_clock(site.world.broker, clock)
    text = tokens.create(broker, "mia", "", list(TokenScope), timedelta(minutes=5), by=ROOT).text
    id = sessions.sign_in(broker, text, origin="page")
    assert id is not None
    assert sessions.resume(broker, id) is not None
    clock.advance(timedelta(minutes=5))
    assert sessions.resume(broker, id) is None
    assert sessions.sign_in(broker, text, origin="page") is None


def test_the_api_goes_on_refusing_cookies_and_the_page_refuses_tokens(seen_site: Site) -> None:
    browser = seen_site.of("adam")
    assert browser.get("/api/v1/me").status_code == 401
    assert seen_site.browser().get("/", headers=bearer(seen_site.world.usual("adam"))).status_code == 303


def test_over_tls_the_cookie_never_travels_in_the_clear(seen_site: Site) -> None:
    answers = answering(seen_site.world.broker, Transport(public_url="https://broker.example"))
    client = client_of(answers, base_url="https://broker.example")
    sent = {"Origin": "https://broker.example"}
    token = seen_site.world.token("mia")
    answer = client.post("/sign-in", data={"token": token}, headers=sent, follow_redirects=False)
    assert answer.headers["set-cookie"].startswith("__Host-gpubroker=")
    assert "Secure" in answer.headers["set-cookie"]
    assert "max-age" in answer.headers["strict-transport-security"]
    assert client.get("/").status_code == 200


def test_comings_and_goings_are_on_record_without_a_secret(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    browser, token = site.browser(), site.world.token("mia")
    with caplog.at_level(logging.DEBUG, logger="broker"):
        browser.sign_in(token)
        session = browser.client.cookies[COOKIE]
        browser.post("/sign-in", {"token": new_text()}, FROM_HERE)
        browser.send_form("/", "/sign-out")
    with site.world.broker.store.access.reading() as look:
        lines = [line for _, line in look.audit(limit=2)]
    assert [line.action for line in lines] == ["sessions.end", "sessions.begin"]
    assert {line.origin for line in lines} == {"page testclient"}
    assert {line.token for line in lines} == {token.split("_")[1]}
    assert session not in caplog.text + str(lines)
    assert token[-64:] not in caplog.text + str(lines)
