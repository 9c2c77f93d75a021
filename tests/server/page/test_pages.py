"""What pages show: the figures of the use cases, nothing taken for markup, nothing loaded from elsewhere."""

import csv
import io
import re
from types import SimpleNamespace

import pytest
from markupsafe import escape

from broker.app.jobs import submit
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.values import figures
from broker.core.values.money import Money
from broker.server.page import csv_files
from broker.server.page.application import PAGES
from tests.server.page.browsing import FormFields, Site, answering
from tests.server.world import JOB, STRANGER, submitted

NAMED = {
    "/budgets/{id}": "/budgets/nlp",
    "{number}": "1",
    "{purchase}": "purchase-0",
    "{name}": "mia",
    "{preview}": "0",
    "{sha256}": "0" * 64,
}
LOOKS = [route.path for route in PAGES if route.method == "GET" and not route.path.endswith("/news")]
for unnamed, called in NAMED.items():
    LOOKS = [path.replace(unnamed, called) for path in LOOKS]
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def test_the_overview_has_the_figures_of_the_api(seen_site: Site) -> None:
    text = seen_site.of("mia").get("/").text
    for budget in seen_site.world.get("/budgets", "mia").json()["budgets"]:
        assert budget["id"] in text
        for amount in (budget["spent"], budget["held"], budget["limit"], budget["left"]):
            assert figures.money(abs(Money.usd(amount))) in text
    (asked,) = seen_site.world.get("/approvals", "mia").json()["requests"]
    assert figures.money(Money.usd(asked["total"])) in text
    assert asked["questions"][0]["because"] in text


def test_jobs_are_filtered_and_come_in_pages(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, world = site.of("adam"), site.world
    ids = {name: getattr(world, name) for name in ("mine", "asking", "foreign", "nobodys")}

    def shown(path: str) -> set[str]:
        text = browser.get(path).text
        return {name for name, id in ids.items() if f'href="/jobs/{id}"' in text}

    assert shown("/jobs") == set(ids)
    assert shown("/jobs?state=&team=nlp&user=") == {"mine", "asking"}
    assert shown("/jobs?state=awaiting_approval") == {"asking"}
    assert shown("/jobs?user=otto") == {"foreign"}
    assert browser.get("/jobs?state=nonsense").status_code == 404
    assert browser.get("/jobs?cursor=nonsense").status_code == 422
    monkeypatch.setattr("broker.server.page.jobs._ROWS", 3)
    older = re.search(r'href="(/jobs\?[^"]*cursor=[^"]*)" rel="next"', browser.get("/jobs").text)
    assert older
    assert len(shown("/jobs")) == 3
    assert shown("/jobs") | shown(older[1]) == set(ids)


def test_jobs_are_found_by_part_of_a_name_and_the_address_keeps_the_filters(site: Site) -> None:
    world, browser = site.world, site.of("mia")
    for name, user in (("Train-70B", "mia"), ("train-7b", "tara")):
        submitted(world.broker, name, user, "nlp")
    submitted(world.broker, "train-vision", STRANGER, "vision")

    def listed(query: str, who: str = "mia") -> list[str]:
        return re.findall(r'<td><a href="/jobs/[^"]+">([^<]+)</a>', site.of(who).get(f"/jobs?{query}").text)

    assert sorted(listed("q=train")) == ["Train-70B", "train-7b"], "not of other teams"
    assert listed("q=train&user=tara") == listed("q=TARA") == ["train-7b"]
    assert listed("q=tr%25n") == listed("q=t_ain") == [], "no patterns"
    assert listed("q=train&since=7d&sort=newest") == ["train-7b", "Train-70B"]
    assert len(listed("q=train", "adam")) == 3
    page = browser.get("/jobs?q=train&team=nlp&since=7d").text
    assert 'href="/jobs?q=train&amp;since=7d" aria-current="true">team: nlp' in page
    assert '<option value="7d" selected>' in page
    found = world.get("/jobs", "mia", q="TRAIN", since="2020-01-01T00:00:00Z").json()["jobs"]
    assert [job["name"] for job in found] == ["train-7b", "Train-70B"]
    assert world.get("/jobs", "mia", q="train", since="2999-01-01T00:00:00Z").json()["jobs"] == []
    for wrong, status in (("since=never", 422), ("sort=colour", 404), (f"q={'x' * 101}", 422)):
        assert browser.get(f"/jobs?{wrong}").status_code == status


@pytest.mark.parametrize("path", ["/jobs", "/offers", "/budgets", "/queue", "/approvals", "/reports?by=user"])
def test_a_list_is_a_file_too_with_the_rows_of_the_visitors_teams(seen_site: Site, path: str) -> None:
    answer = seen_site.of("mia").get(f"{path}{'&' if '?' in path else '?'}csv=true")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert re.fullmatch(r'attachment; filename="\w+\.csv"', answer.headers["content-disposition"])
    head, *rows = list(csv.reader(io.StringIO(answer.text)))
    assert all(len(row) == len(head) for row in rows)
    assert not [name for name in ("vision", "otto", "foreign") if name in answer.text]
    if path == "/jobs":
        listed = seen_site.world.get("/jobs", "mia").json()["jobs"]
        known = [(job["id"], job["held"]["sandbox"], f"{job['submitted_at'][:19]}Z") for job in listed]
        columns = [head.index(name) for name in ("id", "held.total", "submitted_at")]
        assert [tuple(row[column] for column in columns) for row in rows] == known


def test_files_have_all_pages_and_no_formula(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.server.page.jobs.MAX_ROWS", 2)
    for number in range(3):
        submitted(site.world.broker, f"more-{number}", "mia", "nlp")
    rows = list(csv.DictReader(io.StringIO(site.of("mia").get("/jobs?csv=true").text)))
    assert len(rows) == len(site.world.get("/jobs", "mia", limit=200).json()["jobs"]) == 5
    assert "".join(csv_files._lines(["name"], [SimpleNamespace(name="=1+1"), SimpleNamespace(name=None)])).split() == [
        "name", "'=1+1", '""',
    ]  # fmt: skip


def test_one_job_tells_its_story_and_its_money(seen_site: Site) -> None:
    world = seen_site.world
    text = seen_site.of("mia").get(f"/jobs/{world.asking}").text
    assert "submitted by mia" in text
    assert "waiting for approval" in text
    held = world.get(f"/jobs/{world.mine}", "mia").json()["held"]["sandbox"]
    assert f"{figures.money(Money.usd(held))} simulated" in seen_site.of("mia").get(f"/jobs/{world.mine}").text


def test_finance_sees_money_and_no_output(seen_site: Site) -> None:
    path = f"/jobs/{seen_site.world.mine}"
    assert "<h2>Output</h2>" in seen_site.of("vic").get(path).text
    assert "<h2>Output</h2>" not in seen_site.of("fay").get(path).text


def hostile_job(site: Site) -> str:
    broker = site.world.broker
    job = parse_job(JOB.format(name="x", team="team: nlp", most="6h"), file="x.yaml", now=broker.clock.now())
    evil: Job = job.model_copy(update={"name": HOSTILE, "project": HOSTILE})
    return submit.submit(broker, evil, by=Actor("mia")).id


def test_a_hostile_name_is_shown_and_not_obeyed(site: Site) -> None:
    browser = site.of("adam")
    id = hostile_job(site)
    for path in LOOKS:
        for asked in (path.format(id=id), f"{path.format(id=id)}?user={HOSTILE}"):
            page = FormFields(browser.get(asked).text)
            assert not [tag for tag, _ in page.elements if tag in ("img", "b")], asked
            assert all(ours(found) for tag, found in page.elements if tag == "script"), asked
            assert not [name for _, found in page.elements for name in found if name.startswith("on")], asked
    assert "&lt;script&gt;" in browser.get(f"/jobs/{id}").text
    assert "<script>" not in browser.get("/jobs/%3Cscript%3E").text


def ours(script: dict[str, str | None]) -> bool:
    """Whether a script is a file of ours, whose address changes with its content."""
    return re.fullmatch(r"/static/[\w./]+\.js\?v=[0-9a-f]{12}", script.get("src") or "") is not None


@pytest.mark.parametrize("path", [*LOOKS, "/sign-in", "/nothing"])
def test_every_page_stands_alone(seen_site: Site, path: str) -> None:
    """No inline script or style, nothing from another host; a title, one heading, names for fields."""
    answer = seen_site.of("mia").get(path.format(id=seen_site.world.mine))
    page = FormFields(answer.text)
    tags = [tag for tag, _ in page.elements]
    assert all(ours(found) for tag, found in page.elements if tag == "script")
    assert "script" not in re.sub(r"<script src=\S+ defer></script>|<noscript>.*</noscript>|scripted", "", answer.text)
    assert "style" not in tags
    assert tags.count("h1") == 1
    assert re.search(r"<title>\S.* – gpubroker</title>", answer.text)
    for tag, found in page.elements:
        assert "style" not in found, tag
        for name in ("src", "href", "action"):
            assert (found.get(name) or "/").startswith(("/", "#")), f"{tag} {name}"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "same-origin"


def test_the_sheet_is_kept_by_browsers_and_changes_its_address_when_it_changes(seen_site: Site) -> None:
    found = re.search(r'href="(/static/style.css\?v=\w+)"', seen_site.of("mia").get("/").text)
    assert found
    answer = seen_site.browser().get(found[1])
    assert answer.headers["content-type"].startswith("text/css")
    assert "immutable" in answer.headers["cache-control"]
    assert "http" not in answer.text, "nothing from elsewhere"
    for path in ("/static/", "/static/nothing", "/static/../application.py", "/static/%2e%2e/application.py"):
        assert seen_site.browser().get(path).status_code == 404


def test_a_fault_tells_nothing_of_the_server(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret of the house")

    browser = site.of("adam")
    monkeypatch.setattr("broker.app.billing.budgets.budgets", broken)
    answer = browser.get("/")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.headers["x-request-id"] in answer.text
    assert answer.headers["x-frame-options"] == "DENY"


def test_a_job_tells_why_it_is_where_it_is(seen_site: Site) -> None:
    world = seen_site.world
    text = seen_site.of("mia").get(f"/jobs/{world.mine}").text
    (decision,) = world.get(f"/jobs/{world.mine}/placements", "mia").json()["decisions"]
    taken = decision["taken"]
    (attempt,) = world.get(f"/jobs/{world.mine}", "mia").json()["attempts"]
    assert (decision["attempt"], decision["answer"]) == (1, "allow")
    assert taken["expected_cost"] == attempt["placement"]["expected_cost"]
    assert sum((Money.usd(term["amount"]) for term in taken["terms"]), Money.ZERO) == Money.usd(taken["expected_cost"])
    ranks = [Money.usd(one["ranked_by"]) for one in (taken, *decision["next_best"])]
    assert len(ranks) > 1
    assert min(ranks) == ranks[0]
    for said in (taken["instance_type"], taken["terms"][0]["how"], decision["verdicts"][0]["message"]):
        assert str(escape(said)) in text
    assert decision["offers_seen"] > len(ranks)


def test_the_cheapest_is_to_be_had_and_beside_it_stands_last_weeks(seen_site: Site) -> None:
    offers = seen_site.world.get("/offers", "mia", gpu="H100", limit=200).json()["offers"]
    found = {one["capacity_type"]: one for one in reversed(offers) if one["availability"] != "unavailable"}
    page = seen_site.of("mia").get("/").text
    assert found
    for one in found.values():
        assert figures.rate(Money.usd(one["price_per_gpu_hour"])) in page
        assert f"{one['provider']} {one['zone'] or one['region']}, {one['instance_type']}" in page
    assert "a week ago" in page


@pytest.mark.parametrize("path", ["/", "/queue", "/jobs/{mine}"])
def test_figures_are_renewed_in_place_or_by_the_browser_or_not_at_all(seen_site: Site, path: str) -> None:
    browser, path = seen_site.of("mia"), path.format(mine=seen_site.world.mine)
    plain, again, never = (browser.get(f"{path}{asked}") for asked in ("", "?refresh=30", "?refresh=0"))
    renewed = f'<main id="main" hx-get="{path}" hx-trigger="every 30s"'
    assert [renewed in one.text for one in (plain, again, never)] == [True, False, False]
    assert [one.headers.get("refresh") for one in (plain, again, never)] == [None, "30", None]
    assert f'<noscript>; <a href="{path}?refresh=30">' in plain.text
    assert f'<a href="{path}?refresh=0">stop</a>' in plain.text, "whoever reads may stop it (WCAG 2.2.2)"
    assert f'<a href="{path}">stop</a>' in again.text
    assert f'<a href="{path}">renew them</a>' in never.text


def test_the_output_of_a_job_is_renewed_until_the_job_has_ended(site: Site) -> None:
    browser, mine = site.of("mia"), site.world.mine
    assert f'hx-get="/jobs/{mine}/output?lines=40" hx-trigger="every 5s"' in browser.get(f"/jobs/{mine}").text
    assert (
        f'hx-get="/jobs/{mine}/output?lines=7&amp;attempt=1"'
        in browser.get(f"/jobs/{mine}/output?lines=7&attempt=1").text
    )
    form = FormFields(site.of("apple").get("/approvals").text).forms[f"/approvals/{site.world.asking}/grant"]
    assert site.of("apple").post(f"/approvals/{site.world.asking}/refuse", form).status_code == 303
    for page in ("", "/output"):
        assert "/output?lines" not in browser.get(f"/jobs/{site.world.asking}{page}").text
    ends = [browser.get(f"/jobs/{id}/output").headers.get("hx-reswap") for id in (mine, site.world.asking)]
    assert ends == [None, "outerHTML"], "what has asked is replaced, so that it asks no more"


def test_figures_asked_for_after_the_sessions_end_are_no_form(seen_site: Site) -> None:
    answer = seen_site.browser().get("/queue", headers={"HX-Request": "true"})
    assert (answer.status_code, answer.headers["hx-refresh"], answer.text) == (401, "true", "")


def test_a_session_that_asks_too_often_has_to_wait(site: Site) -> None:
    serve = site.world.broker.settings.serve.model_copy(update={"requests_per_minute": 3})
    settings = site.world.broker.settings.model_copy(update={"serve": serve})
    broker = Broker(settings, site.world.broker.registries, site.world.broker.account, store=site.world.broker.store)
    limited = Site(site.world, answering(broker))
    answers = [limited.of("mia").get("/me").status_code for _ in range(5)]
    assert answers == [200, 200, 200, 429, 429]
    assert limited.of("apple").get("/me").status_code == 200, "a colleague has requests of their own"
