"""A job is submitted on the page: a job file, its mistakes at line and column, the plan with its price, then once."""

import re
from html import unescape

import pytest

from broker.app.access import people
from broker.core.access.people import Permission, TeamRole
from broker.core.values import figures
from broker.core.values.money import Money
from tests.actors import ROOT
from tests.server.page.browsing import Browser, FormFields, Site
from tests.server.test_matrix import access_of
from tests.server.world import EVERYBODY, JOB, NOBODY, POLICY, STRANGER, Company

TEXT = JOB.format(name="by-hand", team="team: nlp", most="2h")
PLAN = "/submit/plan"


def text_of(page: str) -> str:
    found = re.search(r"<textarea name=\"job_file\"[^>]*>\n(.*?)</textarea>", page, re.DOTALL)
    assert found
    return unescape(found[1])


def planned(browser: Browser, text: str) -> str:
    answer = browser.send_form("/submit", PLAN, job_file=text)
    assert answer.status_code == 200, answer.text
    page: str = answer.text
    return page


def names(world: Company) -> list[str]:
    return [job["name"] for job in world.get("/jobs", "mia").json()["jobs"]]


def test_a_job_is_planned_with_its_price_and_submitted_once(site: Site) -> None:
    browser, world = site.of("mia"), site.world
    page = planned(browser, TEXT.replace("\n", "\r\n"))
    plan = world.client.post(
        "/api/v1/plans", json={"job_file": TEXT}, headers={"Authorization": f"Bearer {world.usual('mia')}"}
    ).json()
    assert figures.money(Money.usd(plan["placements"][0]["expected_cost"])) in page
    assert f"hold {figures.money(Money.usd(plan['hold']['sandbox']))}" in page
    assert "by-hand" not in names(world), "a plan changes nothing"
    form = FormFields(page).forms["/submit"]
    assert form["job_file"] == text_of(page) == TEXT
    for _ in range(2):  # sent twice, as by an impatient hand
        answer = browser.post("/submit", form)
        assert answer.status_code == 303
    assert names(world).count("by-hand") == 1
    (id,) = (job["id"] for job in world.get("/jobs", "mia").json()["jobs"] if job["name"] == "by-hand")
    assert answer.headers["location"] == f"/jobs/{id}"
    assert world.get(f"/jobs/{id}", "mia").json()["user"] == "mia"


def test_mistakes_are_shown_at_line_and_column_and_the_text_stays(seen_site: Site) -> None:
    wrong = TEXT.replace("work: 30m", "work: 30q") + "colour: red\n"
    answer = seen_site.of("mia").send_form("/submit", PLAN, job_file=wrong)
    assert answer.status_code == 422
    refused = seen_site.world.client.post(
        "/api/v1/plans", json={"job_file": wrong}, headers={"Authorization": f"Bearer {seen_site.world.usual('mia')}"}
    ).json()
    assert len(refused["problems"]) == 2
    for problem in refused["problems"]:
        assert f"line {problem['line']}, column {problem['column']}: {problem['key']}" in answer.text
        assert f"{wrong.splitlines()[problem['line'] - 1]}\n{' ' * (problem['column'] - 1)}^" in unescape(answer.text)
    assert text_of(answer.text) == wrong
    assert "/submit" not in FormFields(answer.text).forms, "nothing to confirm"


def test_a_request_that_needs_an_approval_says_so_before(site: Site) -> None:
    browser = site.of("mia")
    page = planned(browser, TEXT.replace("max_duration: 2h", "max_duration: 6h"))
    assert "it needs an approval first" in page
    assert "more than $4.00 per job requires approval" in page
    answer = browser.post("/submit", FormFields(page).forms["/submit"])
    assert "Waits for approval" in browser.get(answer.headers["location"]).text


def test_what_would_be_refused_has_no_button(site: Site) -> None:
    stricter = POLICY + "  - {name: never, max_price_per_gpu_hour: $0.01}\n"
    site.world.broker.store.activate_policy({"test.yaml": stricter}, by="adam")
    page = planned(site.of("mia"), TEXT)
    assert "it would be refused" in page
    assert "Held when it is submitted" not in page, "nothing is held"
    assert "/submit" not in FormFields(page).forms


def test_a_refusal_names_no_request_of_another_team(site: Site) -> None:
    world = site.world
    world.broker.store.activate_policy(
        {"test.yaml": POLICY.replace("name: all, amount: $100", "name: all, amount: $1")}, by="adam"
    )
    for who, team, is_own in (("mia", "nlp", True), (STRANGER, "vision", False)):
        page = planned(site.of(who), TEXT.replace("team: nlp", f"team: {team}"))
        assert "for requests that await approval" in page
        assert (world.asking in page, "1 of other teams" in page) == (is_own, not is_own)


@pytest.mark.parametrize("more", ["workdir: .\n", "secrets: [TOKEN]\n", "file_mounts: {/data: ./data}\n"])
def test_files_and_secrets_of_another_machine_are_asked_for_before(seen_site: Site, more: str) -> None:
    answer = seen_site.of("mia").send_form("/submit", PLAN, job_file=TEXT + more)
    assert answer.status_code == 422
    assert "/submit" not in FormFields(answer.text).forms
    assert 'class="card trouble"' in answer.text


def test_a_clone_begins_with_the_file_of_the_job(seen_site: Site) -> None:
    browser, mine = seen_site.of("mia"), seen_site.world.mine
    assert f'href="/submit?like={mine}"' in browser.get(f"/jobs/{mine}").text
    file = seen_site.world.get(f"/jobs/{mine}/job-file", "mia").json()["job_file"]
    assert text_of(browser.get(f"/submit?like={mine}").text).strip() == file.strip()
    assert FormFields(planned(browser, file)).forms["/submit"]
    assert browser.get(f"/submit?like={seen_site.world.foreign}").status_code == 404
    assert 'href="/submit?like' not in seen_site.of("vic").get(f"/jobs/{mine}").text


@pytest.mark.parametrize("who", EVERYBODY)
def test_the_form_of_a_new_job_is_a_job_of_ones_own_team(seen_site: Site, who: str) -> None:
    access, browser = access_of(who), seen_site.of(who)
    answer = browser.get("/submit")
    assert answer.status_code == (200 if access.anywhere(Permission.SUBMIT) else 403)
    if answer.status_code == 200:
        sent = browser.send_form("/submit", PLAN, job_file=text_of(answer.text))
        assert (sent.status_code, "my-job: " in sent.text) == (200, True)


@pytest.mark.parametrize("team", ["123", "true", "null"])
def test_a_team_of_any_name_is_that_of_the_form(site: Site, team: str) -> None:
    people.give_role(site.world.broker, NOBODY, TeamRole.MEMBER, team, by=ROOT)
    browser = site.of(NOBODY)
    assert "my-job: " in planned(browser, text_of(browser.get("/submit").text))


def test_another_teams_job_is_not_submitted(site: Site) -> None:
    browser = site.of("mia")
    foreign = TEXT.replace("team: nlp", "team: vision")
    assert browser.send_form("/submit", PLAN, job_file=foreign).status_code == 403
    form = FormFields(planned(browser, TEXT)).forms["/submit"]
    assert browser.post("/submit", form | {"job_file": foreign}).status_code == 403
    assert browser.post("/submit", form, {"Origin": "https://evil.example"}).status_code == 403
    assert browser.post("/submit", form | {"form_token": "0" * 64}).status_code == 403
    assert "by-hand" not in names(site.world)
