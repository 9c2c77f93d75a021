"""People changed on the page: by administrators alone, with their password again, on record. OWASP ASVS 5.0: 7.5.1."""

from __future__ import annotations

from typing import Any

import pytest

from broker.app.access import passwords, people, tokens
from broker.app.access.passwords import accept, invite, sign_in
from broker.core.access.people import Person
from broker.core.access.permissions import TokenScope
from tests.actors import ROOT
from tests.page.browsing import Browser, FormFields, Site
from tests.server.world import DAY

GOOD, WRONG = "a long sentence of words", "another sentence of words"


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Argon2 with little to do: what it costs is not the matter here."""
    from argon2 import PasswordHasher

    cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "_hasher", lambda: cheap)


@pytest.fixture
def adam(site: Site) -> Browser:
    """The administrator's browser; adam has a password."""
    accept(site.world.broker, invite(site.world.broker, "adam", by=ROOT).secret, GOOD, origin="page here")
    browser = site.browser()
    assert browser.post("/sign-in/password", {"name": "adam", "password": GOOD}).status_code == 303
    return browser


def changed(browser: Browser, name: str, change: str, again: str = GOOD, **more: str) -> Any:
    path = f"/people/{name}"
    return browser.post(
        path, FormFields(browser.get(path).text).forms[path] | {"again": again, "change": change} | more
    )


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
    assert adam.post("/people", form | {"name": "new", "again": WRONG}).status_code == 403
    assert adam.post("/people", form | {"name": "new", "again": GOOD}).headers["location"] == "/people/new"
    answer = changed(adam, "new", "invite")
    assert answer.status_code == 200, answer.text
    secret = answer.text.partition("http://testserver/invitation/")[2].partition("<")[0]
    assert accept(site.world.broker, secret, WRONG, origin="page here") == "new"
    assert sign_in(site.world.broker, "new", WRONG, origin="page here")


def test_a_token_is_revoked_at_the_next_request(site: Site, adam: Browser) -> None:
    mias = site.of("mia")
    (token,) = [one.id for one in tokens.tokens(site.world.broker, "mia")]
    assert mias.get("/").status_code == 200
    assert changed(adam, "apple", "revoke", token=token).status_code == 422, "not one of hers"
    assert changed(adam, "mia", "revoke", token=token).status_code == 303
    assert mias.get("/").status_code == 303


def test_nothing_is_changed_without_the_password(site: Site, adam: Browser) -> None:
    """Neither by a session alone nor by a token: what is stolen makes nobody an administrator."""
    token = tokens.create(site.world.broker, "adam", "", list(TokenScope), DAY, by=ROOT).text
    for again in ("", WRONG, token):
        answer = changed(adam, "vic", "grant", again, role="administrator")
        assert (answer.status_code, "nothing was changed" in answer.text) == (403, True)
    assert not of(site, "vic").roles
    with site.world.broker.store.access.reading() as look:
        refused = [line.action for _, line in look.audit(limit=9, subject="adam") if line.reason == "wrong_password"]
    assert refused == ["passwords.confirm"] * 3, "nobody was signing in"
    by_token = site.of("adam")
    assert "/people/vic" in FormFields(by_token.get("/people/vic").text).forms, "adam has a password"
    assert [changed(by_token, "vic", "grant", WRONG, role="administrator").status_code for _ in range(9)][-1] == 429


def test_whoever_has_no_password_is_told_where_to_change_people(site: Site) -> None:
    text = site.of("adam").get("/people/vic").text
    assert "gpubroker people" in text
    assert 'name="change"' not in text
    assert 'name="again"' not in site.of("adam").get("/people").text
