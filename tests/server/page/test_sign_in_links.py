"""One-time sign-in links: used once, expired, replaced, replayed, made up; and the first administrator's."""

import logging
from datetime import timedelta
from pathlib import Path

import pytest

from broker.app.access import people, sessions
from broker.core.access.sessions import LINK_LIFETIME, LINK_PATH
from broker.core.actors import Role
from broker.core.errors import InvalidInput, NotAllowed
from broker.core.values.clock import ManualClock
from tests.actors import ANN, BOB, ROOT, person, with_clock
from tests.empty_store import empty_store
from tests.server.page.browsing import Browser, Site, answering
from tests.server.world import broker_over, client_of

COOKIE = "gpubroker_session"


def test_a_link_signs_in_once(site: Site) -> None:
    link = site.world.link("mia")
    preview = site.browser().client
    for _ in range(2):  # programs that look at the links of a message
        answer = preview.get(link)
        assert answer.status_code == 200
        assert answer.headers["referrer-policy"] == "strict-origin"
        assert "mia" not in answer.text
    browser = site.browser()
    entered = browser.follow(link)
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    assert ">mia<" in browser.get("/").text
    assert site.browser().follow(link).status_code == 401


def test_links_that_do_not_sign_in_are_alike(site: Site) -> None:
    """Whether used, replaced, expired, of a disabled person or made up; before the button and after it."""
    clock = ManualClock(site.world.broker.clock.now())
    broker = with_clock(site.world.broker, clock)
    page = answering(broker)

    def link_of(name: str) -> str:
        return f"{LINK_PATH}/{sessions.invite(broker, name, by=ROOT).secret}"

    used, expired, replaced, disabled = (link_of(name) for name in ("mia", "vic", "tara", "apple"))
    Browser(client_of(page)).follow(used)
    people.disable(broker, "apple", by=ROOT)
    people.enable(broker, "apple", by=ROOT)
    Browser(client_of(page)).follow(link_of("tara"))
    clock.advance(LINK_LIFETIME)
    answers = set()
    for link in (used, expired, replaced, disabled, f"{LINK_PATH}/guessed", f"{LINK_PATH}/%00é"):
        browser = Browser(client_of(page))
        shown, refused = browser.get(link), browser.follow(link)
        assert refused.status_code == 401
        assert COOKIE not in browser.client.cookies
        assert link.rpartition("/")[2] not in refused.text
        answers.add((shown.text.partition("<footer>")[0], refused.text.partition("<footer>")[0]))
    assert len(answers) == 1


def test_who_guesses_waits_and_other_sites_press_no_button(site: Site) -> None:
    link = site.world.link("mia")
    assert site.browser().post(link, {}, {"Origin": "https://evil.example"}).status_code == 403
    statuses = [site.browser().follow(f"{LINK_PATH}/guess-{number}").status_code for number in range(21)]
    assert statuses == [401] * 20 + [429]


def test_a_disabled_person_is_out_for_good(site: Site) -> None:
    browser, link = site.of("mia"), site.world.link("mia")
    people.disable(site.world.broker, "mia", by=ROOT)
    people.enable(site.world.broker, "mia", by=ROOT)
    assert browser.get("/").status_code == 303
    assert site.browser().follow(link).status_code == 401
    assert site.browser().follow(site.world.link("mia")).status_code == 303


def test_only_administrators_invite_and_only_people_who_may_sign_in(site: Site) -> None:
    broker = site.world.broker
    with pytest.raises(NotAllowed):
        sessions.invite(broker, "mia", by=person("tara"))
    people.add(broker, "robot", by=ROOT, service=True)
    with pytest.raises(InvalidInput, match="service account"):
        sessions.invite(broker, "robot", by=ROOT)
    people.disable(broker, "mia", by=ROOT)
    with pytest.raises(InvalidInput, match="mia is disabled"):
        sessions.invite(broker, "mia", by=ROOT)
    for lifetime in (timedelta(0), timedelta(days=8)):
        with pytest.raises(InvalidInput, match="at most 7d"):
            sessions.invite(broker, "vic", by=ROOT, lifetime=lifetime)


def test_links_are_on_record_without_their_secrets(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    link = site.world.link("mia")
    with caplog.at_level(logging.DEBUG):
        for _ in range(2):
            site.browser().follow(link)
    with site.world.broker.store.access.reading() as look:
        lines = [line for _, line in look.audit(limit=3)]
    assert [(one.action, one.person, one.subject) for one in lines] == [
        ("sessions.begin", "mia", "mia"),
        ("tokens.create", "mia", lines[0].token),
        ("people.invite", "root", "mia"),
    ]
    assert lines[0].after == "by a link of root"
    secret = link.rpartition("/")[2]
    assert secret not in str(lines) + "".join(one.getMessage() for one in caplog.records if one.name != "httpx")
    stored = (site.world.broker.settings.home / "store.db").read_bytes()
    wal = (site.world.broker.settings.home / "store.db-wal").read_bytes()
    assert secret.encode() not in stored + wal


def test_the_first_administrator_comes_by_the_newest_link_of_the_server(tmp_path: Path) -> None:
    broker = broker_over(empty_store(tmp_path / "store.db"), tmp_path)
    earlier, newest = (sessions.first_link(broker, by=ANN) for _ in range(2))
    assert earlier is not None
    assert newest is not None
    assert sessions.lacks_administrator(broker), "a link alone changes nothing"
    assert sessions.sign_in_by_link(broker, earlier.secret, origin="page here") is None
    assert sessions.sign_in_by_link(broker, newest.secret, origin="page here")
    assert [(one.name, one.roles) for one in people.people(broker)] == [("ann", frozenset({Role.ADMINISTRATOR}))]
    assert sessions.first_link(broker, by=BOB) is None
    broker.close()


def test_a_first_link_makes_nobody_an_administrator_beside_another(tmp_path: Path) -> None:
    broker = broker_over(empty_store(tmp_path / "store.db"), tmp_path)
    first = sessions.first_link(broker, by=BOB)
    people.add(broker, "ann", by=ANN, administrator=True)
    people.add(broker, "bob", by=ANN)
    assert first is not None
    assert sessions.sign_in_by_link(broker, first.secret, origin="page here") is None
    broker.close()
