"""Policies on the page: rules with their places, and a change that is seen before it is applied."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from broker.app.access import people
from broker.app.policy import preview_tasks, trial_documents
from broker.app.wiring import Broker
from broker.core.errors import StoreProblem
from broker.server.page import policies
from tests.actors import ROOT
from tests.server.page.browsing import FormFields, Site
from tests.server.world import POLICY

STRICTER = POLICY.replace("cost: $4", "cost: $1")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests wait for previews, however busy the machine is."""
    monkeypatch.setattr(policies, "_PATIENCE", 100.0)


class Slow:
    """A preview that has taken its first step, and takes the next ones when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.told, self._preview = threading.Event(), threading.Event(), trial_documents.preview
        monkeypatch.setattr(preview_tasks, "preview", self)
        monkeypatch.setattr(policies, "_PATIENCE", 0.0)

    def __call__(self, broker: Broker, files: Mapping[str, str], report: Callable[[int], None]) -> Any:
        report(1)
        self.begun.set()
        assert self.told.wait(100)
        return self._preview(broker, files, report)


def test_a_long_preview_is_computed_beside_the_request(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, slow = site.of("adam"), Slow(monkeypatch)
    typed = FormFields(browser.get("/policies/change").text).forms["/policies/preview"]
    answer = browser.post("/policies/preview", typed | {"text0": STRICTER, "reason": "a tight <month>"})
    assert answer.status_code == 303
    where = answer.headers["location"]
    assert slow.begun.wait(100)
    waits = browser.get(where)
    assert (waits.status_code, waits.headers["refresh"]) == (200, "1")
    assert '<progress max="3" value="1"' in waits.text
    people.add(site.world.broker, "ada", by=ROOT, administrator=True)
    assert site.of("ada").get(where).status_code == 404, "another person's"
    assert site.of("tara").get(where).status_code == 403
    id = where.partition("?")[0].rpartition("/")[2]
    document = site.world.get(f"/policies/previews/{id}", "adam").json()
    assert (document["done"], document["result"]) == (1, None)
    slow.told.set()
    assert preview_tasks.find_preview(site.world.broker, id, "adam").ended.wait(100)
    shown = browser.get(where)
    assert "refresh" not in shown.headers
    assert "cost: $1" in shown.text
    apply = FormFields(shown.text).forms["/policies/apply"]
    assert apply["reason"] == "a tight <month>"
    assert browser.post("/policies/apply", apply | {"text0": STRICTER}).status_code == 303
    assert "a tight &lt;month&gt;" in browser.get("/policies").text


def test_few_previews_are_computed_at_once_and_a_failed_one_says_why(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, slow = site.of("adam"), Slow(monkeypatch)
    typed = FormFields(browser.get("/policies/change").text).forms["/policies/preview"] | {"text0": STRICTER}
    (where, *_) = [browser.post("/policies/preview", typed).headers["location"] for _ in range(3)]
    refused = browser.post("/policies/preview", typed)
    assert (refused.status_code, "3 previews of policies are being computed" in refused.text) == (503, True)

    def unreadable(*_: object) -> None:
        raise StoreProblem("the store is <away>")

    monkeypatch.setattr(slow, "_preview", unreadable)
    slow.told.set()
    id = where.partition("?")[0].rpartition("/")[2]
    assert preview_tasks.find_preview(site.world.broker, id, "adam").ended.wait(100)
    failed = browser.get(where)
    assert "the store is &lt;away&gt;" in failed.text
    assert "refresh" not in failed.headers


def test_a_change_is_seen_then_applied_once(site: Site) -> None:
    browser, store = site.of("adam"), site.world.broker.store
    form = FormFields(browser.get("/policies/change").text).forms["/policies/preview"]
    assert form["name0"] == "test.yaml"
    typed = form | {"text0": STRICTER.replace("\n", "\r\n"), "reason": "a tight month"}
    seen = browser.post("/policies/preview", typed)
    assert seen.status_code == 200
    assert "Apply it" in seen.text
    assert "cost: $1" in seen.text
    active = store.active_policy()
    assert active is not None
    assert active.number == 1, "looking changes nothing"

    apply = FormFields(seen.text).forms["/policies/apply"] | {"text0": STRICTER, "reason": "a tight month"}
    for _ in range(2):
        assert browser.post("/policies/apply", apply).status_code == 303
    active = store.active_policy()
    assert active is not None
    assert (active.number, active.by, active.note, active.files) == (
        2,
        "adam",
        "a tight month",
        {"test.yaml": STRICTER},
    )
    assert "a tight month" in browser.get("/policies").text
    assert "Go back to it" in browser.get("/policies/versions/1").text


def test_who_was_slower_is_told(site: Site) -> None:
    browser = site.of("adam")
    typed = FormFields(browser.get("/policies/change").text).forms["/policies/preview"] | {"text0": STRICTER}
    apply = FormFields(browser.post("/policies/preview", typed).text).forms["/policies/apply"] | {"text0": STRICTER}
    site.world.broker.store.activate_policy({"test.yaml": POLICY + "# another\n"}, by="ada")
    late = browser.post("/policies/apply", apply)
    assert (late.status_code, "the policy was changed" in late.text) == (409, True)


def test_a_mistake_keeps_what_was_typed(seen_site: Site) -> None:
    browser = seen_site.of("adam")
    typed = FormFields(browser.get("/policies/change").text).forms["/policies/preview"]
    wrong = browser.post("/policies/preview", typed | {"text0": POLICY + "budgts: []\n"})
    assert wrong.status_code == 422
    line = POLICY.count("\n") + 1
    assert f"line {line}, column 1: budgts: " in wrong.text
    assert wrong.text.count("budgts: []") == 2, "in the form, and beside its mistake"


def test_a_rule_leads_to_its_line(seen_site: Site) -> None:
    text = seen_site.of("fay").get("/policies").text
    line = POLICY.splitlines().index(next(one for one in POLICY.splitlines() if "name: big" in one)) + 1
    assert f'href="#test.yaml-{line}"' in text
    assert f'id="test.yaml-{line}"' in text
    assert "Change the policy" not in text


def test_no_file_of_many_is_lost_in_the_form(site: Site) -> None:
    browser, store = site.of("adam"), site.world.broker.store
    files = {"test.yaml": POLICY} | {f"z{number}.yaml": f"version: 1\n# {number}\n" for number in range(39)}
    store.activate_policy(files, by="adam")
    form = FormFields(browser.get("/policies/change").text).forms["/policies/preview"]
    assert "these files are active already" in browser.post("/policies/preview", _typed(form, files)).text
    store.activate_policy(files | {"one-more.yaml": "version: 1\n"}, by="adam")
    refused = browser.get("/policies/change")
    assert (refused.status_code, "this form at most 40" in refused.text) == (422, True)


def _typed(form: dict[str, str], files: dict[str, str]) -> dict[str, str]:
    names = {form[key]: key.removeprefix("name") for key in form if key.startswith("name") and form[key]}
    return form | {f"text{names[name]}": text for name, text in files.items()}


@pytest.mark.parametrize("who", ["mia", "tara", "fay"])
def test_others_are_not_shown_the_form(seen_site: Site, who: str) -> None:
    assert seen_site.of(who).get("/policies/change").status_code == 403
