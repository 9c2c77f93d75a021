"""People changed on the page: by administrators alone, who signed in lately and not with a token, on record. OWASP ASVS
5.0: 7.5.1."""

from typing import Any

import pytest

from broker.app.access import people, tokens
from broker.core.access.people import Person
from broker.core.access.sessions import RECENT
from broker.core.values.clock import ManualClock
from tests.actors import with_clock
from tests.server.page.browsing import Browser, FormFields, Site, answering
from tests.server.world import client_of


@pytest.fixture
def adam(site: Site) -> Browser:
    return site.of("adam")


def changed(browser: Browser, name: str, change: str, **more: str) -> Any:
    path = f"/people/{name}"
    return browser.post(path, FormFields(browser.get(path).text).forms[path] | {"change": change} | more)


def of(site: Site, name: str) -> Person:
    return next(one for one in people.people(site.world.broker) if one.name == name)


def test_roles_are_given_and_taken_and_people_disabled_on_record(site: Site, adam: Browser) -> None:
    assert changed(adam, "vic", "grant", role="approver", team="nlp").status_code == 303
    assert changed(adam, "vic", "grant", role="finops").status_code == 303
    assert of(site, "vic").in_words == "finops, nlp:approver"
    assert changed(adam, "vic", "withdraw", role="finops").status_code == 303
    assert changed(adam, "vic", "withdraw", role="approver", team="nlp").status_code == 303
    assert (of(site, "vic").roles, of(site, "vic").teams) == (frozenset(), {})
    mias = site.of("mia")
    assert changed(adam, "mia", "disable").status_code == 303
    assert mias.get("/").status_code == 303, "every session has ended"
    assert changed(adam, "mia", "enable").status_code == 303
    assert changed(adam, "vic", "withdraw", role="member").status_code == 422
    assert changed(adam, "vic", "grant", role="emperor").status_code == 422
    assert changed(adam, "adam", "disable").status_code == 422, "the last administrator"
    assert changed(adam, "vic", "delete").status_code == 404
    with site.world.broker.store.access.reading() as look:
        lines = [line for _, line in look.audit(limit=50, subject="vic") if line.action == "people.role"]
    assert {(one.person, one.origin) for one in lines} == {("adam", "page testclient"), ("root", "python")}
    assert len(lines) == 5


def test_people_are_added_and_invited(site: Site, adam: Browser) -> None:
    form = FormFields(adam.get("/people").text).forms["/people"]
    del form["service"]  # a box that is not ticked
    assert adam.post("/people", form | {"name": "new"}).headers["location"] == "/people/new"
    answer = changed(adam, "new", "invite")
    link = answer.text.partition("<code>http://testserver")[2].partition("<")[0]
    browser = site.browser()
    assert browser.follow(link).status_code == 303
    assert ">new<" in browser.get("/").text
    assert link not in adam.get("/people/new").text, "shown once"


def test_a_token_is_revoked_at_the_next_request(site: Site, adam: Browser) -> None:
    mias = site.of("mia")
    (token,) = [one.id for one in tokens.tokens(site.world.broker, "mia")]
    assert mias.get("/").status_code == 200
    assert changed(adam, "apple", "revoke", token=token).status_code == 422, "not one of hers"
    assert changed(adam, "mia", "revoke", token=token).status_code == 303
    assert mias.get("/").status_code == 303


def test_neither_a_token_nor_an_old_session_changes_anybody(site: Site) -> None:
    """What is stolen makes nobody an administrator."""
    clock = ManualClock(site.world.broker.clock.now())
    page = answering(with_clock(site.world.broker, clock))
    by_token, by_link = Browser(client_of(page)), Browser(client_of(page))
    by_token.sign_in(site.world.token("adam"))
    by_link.follow(site.world.link("adam"))
    clock.advance(RECENT)
    for browser in (by_token, by_link):
        for path, form in (("/people/vic", {"change": "grant", "role": "administrator"}), ("/people", {"name": "eve"})):
            said = browser.get(path).text
            assert "gpubroker people invite adam" in said
            assert "<button name" not in said
            token = FormFields(said).forms["/sign-out"]
            refused = browser.post(path, token | form)
            assert (refused.status_code, "sign-in of the last 30 minutes" in refused.text) == (403, True)
    assert not of(site, "vic").roles
    by_link.follow(site.world.link("adam"))
    assert changed(by_link, "vic", "grant", role="administrator").status_code == 303
