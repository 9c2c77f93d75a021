"""Requests that change something: only from a form of this page, of this session. OWASP ASVS 5.0: 3.5.1, 3.5.3."""

import pytest

from tests.server.page.browsing import FROM_HERE, HOME, FormFields, Site
from tests.server.world import submitted

FOREIGN = [
    {"Origin": "https://evil.example"},
    {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    {"Origin": HOME, "Sec-Fetch-Site": "same-site"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "none"},
    {},
]


def state(site: Site, id: str) -> bool:
    with site.world.broker.store.reading() as look:
        view = look.job(id)
    assert view is not None
    return view.cancel_requested


def test_a_job_is_cancelled_after_a_question_and_once(site: Site) -> None:
    mine, browser = site.world.mine, site.of("mia")
    assert f'href="/jobs/{mine}/cancel"' in browser.get(f"/jobs/{mine}").text
    path = f"/jobs/{mine}/cancel"
    form = FormFields(browser.get(path).text).forms[path]
    assert not state(site, mine), "looking changes nothing"
    for _ in range(2):  # sent twice, as by an impatient hand
        answer = browser.post(path, form)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{mine}")
    assert state(site, mine)
    assert f'href="/jobs/{mine}/cancel"' not in browser.get(f"/jobs/{mine}").text
    with site.world.broker.store.access.reading() as look:
        found = [(line.person, line.origin, line.outcome) for _, line in look.audit(limit=9, subject=mine)]
    assert found == [("mia", "page testclient", "done"), ("mia", "page testclient", "begun")]


def test_several_jobs_are_cancelled_after_one_question_and_once(site: Site) -> None:
    world, browser = site.world, site.of("mia")
    other = submitted(world.broker, "other", "mia", "nlp")
    boxes = [one["value"] for tag, one in FormFields(browser.get("/jobs").text).elements if one.get("name") == "job"]
    assert sorted(filter(None, boxes)) == sorted([world.mine, world.asking, other])
    assert 'form="chosen"' not in site.of("vic").get("/jobs").text
    page = f"/jobs/cancel?job={world.mine}&job={other}"
    question = browser.get(page).text
    assert "Cancel 2 jobs?" in question
    assert other in question
    assert not state(site, other), "nothing is cancelled by looking"
    form = FormFields(question).forms["/jobs/cancel"]
    for _ in range(2):
        assert browser.post("/jobs/cancel", form).status_code == 303
    assert state(site, world.mine)
    assert state(site, other)
    with world.broker.store.access.reading() as look:
        lines = [line.action for id in (world.mine, other) for _, line in look.audit(limit=9, subject=id)]
    assert lines == ["jobs.cancel"] * 4  # begun and done, once each


def test_of_several_jobs_all_are_cancelled_or_none(site: Site) -> None:
    world, browser = site.world, site.of("mia")
    for foreign, status in ((world.foreign, 404), (submitted(world.broker, "taras", "tara", "nlp"), 403)):
        assert browser.get(f"/jobs/cancel?job={world.mine}&job={foreign}").status_code == status
        form = FormFields(browser.get(f"/jobs/cancel?job={world.mine}&job={world.asking}").text).forms["/jobs/cancel"]
        assert browser.post("/jobs/cancel", form | {"jobs": f"{world.mine} {foreign}"}).status_code == status
        assert not state(site, world.mine)
    assert "No job is chosen" in browser.get("/jobs/cancel").text


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_another_sites_form_changes_nothing(seen_site: Site, headers: dict[str, str]) -> None:
    browser, path = seen_site.of("mia"), f"/jobs/{seen_site.world.mine}/cancel"
    form = FormFields(browser.get(path).text).forms[path]
    answer = browser.post(path, form, headers)
    assert answer.status_code == 403
    assert not state(seen_site, seen_site.world.mine)
    assert browser.post("/sign-out", form, headers).status_code == 403
    assert browser.get("/").status_code == 200
    refused = seen_site.browser().post("/sign-in", {"token": seen_site.world.usual("vic")}, headers)
    assert (refused.status_code, "set-cookie" in refused.headers) == (403, False), "nobody is signed in as another"


@pytest.mark.parametrize(
    "wrong", [{"form_token": ""}, {"form_token": "é"}, {"form_token": "0" * 64}, {"key": ""}, {"key": "x"}]
)
def test_a_form_without_what_the_session_put_there_changes_nothing(seen_site: Site, wrong: dict[str, str]) -> None:
    browser, path = seen_site.of("mia"), f"/jobs/{seen_site.world.mine}/cancel"
    form = FormFields(browser.get(path).text).forms[path]
    assert browser.post(path, form | wrong).status_code == 403
    name = next(iter(wrong))
    assert browser.post(path, {key: value for key, value in form.items() if key != name}).status_code == 403
    assert not state(seen_site, seen_site.world.mine)


def test_a_form_of_another_session_changes_nothing(seen_site: Site) -> None:
    path = f"/jobs/{seen_site.world.mine}/cancel"
    theirs = FormFields(seen_site.of("tara").get(path).text).forms[path]
    assert seen_site.of("mia").post(path, theirs).status_code == 403
    assert not state(seen_site, seen_site.world.mine)


def test_what_is_no_form_is_told_so(seen_site: Site) -> None:
    client = seen_site.of("mia").client
    for body in (b"\xff\xfe=1", b"&".join(b"a%d=1" % n for n in range(101))):
        answer = client.post(f"/jobs/{seen_site.world.mine}/cancel", content=body, headers=FROM_HERE)
        assert answer.status_code == 422
    big = client.post("/sign-in", content=b"token=" + b"x" * 1_100_000, headers=FROM_HERE)
    assert big.status_code == 413


def test_nothing_changes_by_looking(seen_site: Site) -> None:
    assert seen_site.of("mia").get("/sign-out").status_code == 405
