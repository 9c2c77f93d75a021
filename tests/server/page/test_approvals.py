"""Approving and refusing on the page: by those who are asked alone, once, on record."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.extension import extend
from broker.app.jobs.jobs import find
from broker.core.actors import Actor
from broker.core.events.outcomes import JobState
from broker.core.values import figures
from broker.core.values.money import Money
from broker.core.values.units import parse_duration
from broker.server.page.visitors import new_key
from tests.actors import mid_month
from tests.server.page.browsing import FormFields, Site, site_of
from tests.server.page.grown import SHOP, buy
from tests.server.world import EVERYBODY, POLICY, new_world, submitted


@pytest.fixture
def steady(tmp_path: Path) -> Iterator[Site]:
    """A company in the middle of a month, so that what is held lies in one period."""
    world = new_world(tmp_path, mid_month())
    yield site_of(world)
    world.broker.close()


def effects(site: Site, who: str, subject: str) -> list[Any]:
    listed: list[Any] = site.world.get("/approvals", who).json()["budgets"][subject]
    return listed


def left_in(site: Site, budget: str) -> Money:
    return Money.usd(site.world.get(f"/budgets/{budget}", "adam").json()["left"])


def test_what_a_request_does_to_budgets_stands_before_the_button(steady: Site) -> None:
    asking = steady.world.asking
    assert [one["budget"] for one in effects(steady, "adam", asking)] == ["nlp", "both", "all"]
    (effect,) = effects(steady, "apple", asking)
    (asked,) = steady.world.get("/approvals", "apple").json()["requests"]
    assert (effect["budget"], effect["requested"]) == ("nlp", asked["held"]["sandbox"]), "not those of other teams"
    granted, refused = Money.usd(effect["left"]), Money.usd(effect["left"]) + Money.usd(effect["requested"])
    assert granted == left_in(steady, "nlp")
    text = steady.of("apple").get("/approvals").text
    shown = text.index(f"if refused: {figures.money(refused)} left")
    assert text.index(f">{figures.money(granted)} left</strong>") < shown < text.index(f"/approvals/{asking}/grant")
    assert '<rect class="asked"' in text
    assert "/budgets/both" not in text
    assert asking not in steady.world.get("/approvals", "otto").json()["budgets"]
    steady.of("apple").send_form("/approvals", f"/approvals/{asking}/grant", reason="")
    assert left_in(steady, "nlp") == granted


def test_of_an_extension_only_what_it_adds_is_its_effect(steady: Site) -> None:
    world = steady.world
    extend(world.broker, find(world.broker, world.mine), JobLimits(None, parse_duration("30h")), by=Actor("mia"))
    (effect,) = effects(steady, "apple", world.mine)
    (held,) = [one for one in world.get("/approvals", "apple").json()["requests"] if one["job"] == world.mine]
    assert held["extension"]
    assert effect["requested"] == held["held"]["sandbox"]
    assert Money.usd(effect["requested"]) < Money.usd(effect["held"])
    form = FormFields(steady.of("apple").get("/approvals").text).forms[f"/approvals/{world.mine}/grant"]
    assert steady.of("apple").post(f"/approvals/{world.mine}/refuse", form).status_code == 303
    assert left_in(steady, "nlp") == Money.usd(effect["left"]) + Money.usd(effect["requested"])


def test_a_purchase_shows_what_it_commits_to_and_its_budgets(steady: Site) -> None:
    """$3,900 of $5,000; a budget of all teams is not shown to one of them."""
    world, id = steady.world, "purchase-000000000001"
    budgets = "".join(
        f"  - {{name: {name}, amount: $5000, period: month, counts: [cash]{scope}}}\n"
        for name, scope in (("cash", ", scope: {team: [nlp]}"), ("company", ""))
    )
    world.broker.store.activate_policy(
        {"test.yaml": POLICY.replace("guardrails:\n", f"{budgets}guardrails:\n") + SHOP}, by="adam"
    )
    buy(world, id)
    browser = steady.of("apple")
    for page in (browser.get("/approvals").text, browser.get(f"/purchases/{id}").text):
        assert ">$1,100.00 left</strong>" in page
        assert "$5,000.00 left" in page
        assert "/budgets/company" not in page
    page = browser.get(f"/purchases/{id}").text
    assert page.index("$1,100.00 left") < page.index(f"/purchases/{id}/approve")
    assert "It commits to $3,900.00 at most, $3,900.00 of it paid at once" in page
    assert "/budgets/company" in steady.of("adam").get(f"/purchases/{id}").text
    assert steady.of("otto").get(f"/purchases/{id}").status_code == 404


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
