"""Approving and refusing on the page: by those who are asked alone, once, on record."""

import pytest

from broker.core.events.outcomes import JobState
from broker.server.page.visitors import new_key
from tests.server.page.browsing import FormFields, Site
from tests.server.world import EVERYBODY, submitted


def state(site: Site) -> JobState:
    with site.world.broker.store.reading() as look:
        view = look.job(site.world.asking)
    assert view is not None
    return view.state


def test_the_arithmetic_is_shown(seen_site: Site) -> None:
    text = seen_site.of("apple").get("/approvals").text
    (asked,) = seen_site.world.get("/approvals", "apple").json()["requests"]
    (question,) = asked["questions"]
    for said in (
        question["because"],
        question["rule"],
        question["source"],
        asked["covers"],
        "given back if it is refused",
    ):
        assert said in text


def test_one_who_is_asked_grants_once_with_a_reason(site: Site) -> None:
    action, browser = f"/approvals/{site.world.asking}/grant", site.of("apple")
    form = FormFields(browser.get("/approvals").text).forms[action] | {"reason": "a paper's deadline <b>"}
    for _ in range(2):
        answer = browser.post(action, form)
        assert (answer.status_code, answer.headers["location"]) == (303, "/approvals")
    assert state(site) is not JobState.AWAITING_APPROVAL
    assert "Nothing waits" in browser.get("/approvals").text
    assert "a paper&#39;s deadline &lt;b&gt;" in browser.get("/approvals?decided=true").text
    with site.world.broker.store.access.reading() as look:
        lines = [(line.person, line.origin, line.action) for _, line in look.audit(limit=9, subject=site.world.asking)]
    assert lines == [("apple", "page testclient", "approvals.grant")] * 2  # begun and done


def test_refusing_gives_the_money_back(site: Site) -> None:
    browser, grant = site.of("adam"), f"/approvals/{site.world.asking}/grant"
    form = FormFields(browser.get("/approvals").text).forms[grant]
    assert browser.post(f"/approvals/{site.world.asking}/refuse", form).status_code == 303
    assert state(site) is JobState.CANCELLED
    held = site.world.get(f"/jobs/{site.world.asking}", "adam").json()["held"]
    assert set(held.values()) == {"0.00"}


@pytest.mark.parametrize("who", EVERYBODY)
def test_buttons_are_for_those_who_are_asked_and_may(seen_site: Site, who: str) -> None:
    page = seen_site.of(who).get("/approvals")
    action = f"/approvals/{seen_site.world.asking}/grant"
    assert (page.status_code == 200 and action in FormFields(page.text).forms) == (who in ("apple", "adam"))


# mia asks and is named by the rule, vic only looks, tara is not asked, otto and finn are of another team.
OTHERS = {"mia": 403, "vic": 403, "tara": 403, "fay": 403, "otto": 404, "finn": 403, "nora": 403}


@pytest.mark.parametrize(("who", "status"), OTHERS.items())
def test_nobody_else_answers_and_nobody_their_own(seen_site: Site, who: str, status: int) -> None:
    browser = seen_site.of(who)
    form_token = FormFields(browser.get("/").text).forms["/sign-out"]["form_token"]
    for answer in ("grant", "refuse"):
        form = {"form_token": form_token, "key": new_key(), "reason": ""}
        assert browser.post(f"/approvals/{seen_site.world.asking}/{answer}", form).status_code == status
    assert state(seen_site) is JobState.AWAITING_APPROVAL


def test_a_reason_is_one_line_of_some_length(seen_site: Site) -> None:
    action, browser = f"/approvals/{seen_site.world.asking}/grant", seen_site.of("apple")
    form = FormFields(browser.get("/approvals").text).forms[action]
    for reason in ("two\nlines", "x" * 501):
        assert browser.post(action, form | {"reason": reason}).status_code == 422
    assert state(seen_site) is JobState.AWAITING_APPROVAL


def test_the_rest_of_what_was_decided_is_a_page_further(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.server.page.jobs._ROWS", 1)
    submitted(site.world.broker, "later", "mia", "nlp", most="6h")
    links = [
        found.get("href") for _, found in FormFields(site.of("apple").get("/approvals?decided=true").text).elements
    ]
    assert "/approvals?skip=1&decided=true" in links
    assert "later" in site.of("apple").get("/approvals?skip=1&decided=true").text
