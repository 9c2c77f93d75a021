"""Who is told of what, and when; and that nothing is lost on the way."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.app.alerts import notify
from broker.app.alerts.routes import combine_notices, recipients
from broker.core.notices import Notice, Severity
from broker.core.values.clock import ManualClock
from broker.settings import Settings
from broker.store import Store, open_store
from tests.empty_store import empty_store

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def about(*teams: str, severity: Severity = Severity.WARNING, key: str = "k", thread: str = "") -> Notice:
    return Notice(key, f"title of {key}", f"body of {key}", severity, thread, teams)


def settings(tmp_path: Path, **routes: dict[str, Any]) -> Settings:
    targets = {name: f"json://127.0.0.1:9/{name}" for name in ("ops", "nlp", "pager")}
    return Settings.model_validate({"home": tmp_path, "notify": targets, "routes": routes})


def test_without_routes_everybody_hears_everything(tmp_path: Path) -> None:
    assert recipients(settings(tmp_path), about("web")) == ("ops", "nlp", "pager")


def test_a_route_names_teams_and_a_severity(tmp_path: Path) -> None:
    found = settings(tmp_path, nlp={"teams": ["nlp", "speech-*"]}, pager={"at_least": "failure"})
    assert recipients(found, about("speech-eu")) == ("ops", "nlp")
    assert recipients(found, about("web")) == ("ops",)
    assert recipients(found, about()) == ("ops",)
    assert recipients(found, about("nlp", severity=Severity.FAILURE)) == ("ops", "nlp", "pager")


def test_what_no_route_is_about_is_told_to_everybody(tmp_path: Path) -> None:
    found = settings(tmp_path, **{name: {"teams": ["nlp"]} for name in ("ops", "nlp", "pager")})
    assert recipients(found, about("web")) == ("ops", "nlp", "pager")


def test_one_message_of_several_begins_with_the_gravest_and_has_all() -> None:
    notices = [about(key="a"), about(key="b", severity=Severity.FAILURE), about(key="c", severity=Severity.INFO)]
    found = combine_notices(notices)
    assert found.title == "gpubroker: 3 alerts: title of b, and 2 more"
    assert all(one.body in found.body and one.title in found.body for one in notices)
    assert found.severity is Severity.FAILURE
    assert combine_notices(notices[:1]) == notices[0]


class Post:
    """What was sent, in place of Apprise; fails while ``down``."""

    def __init__(self) -> None:
        self.sent: list[Notice] = []
        self.down = ""

    def __call__(self, notice: Notice, address: str) -> str:
        if not self.down:
            self.sent.append(notice)
        return self.down


@pytest.fixture
def post(monkeypatch: pytest.MonkeyPatch) -> Post:
    made = Post()
    monkeypatch.setattr(notify, "_send", made)
    return made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


def test_an_incident_is_one_message_and_what_fails_is_kept_whole(
    store: Store, clock: ManualClock, post: Post, tmp_path: Path
) -> None:
    ops = {"ops": settings(tmp_path).notify["ops"]}
    post.down = "the service answered 503"
    for key, thread in (("a", "budget/nlp"), ("b", "budget/nlp"), ("c", "")):
        store.outbox.add(about(key=key, thread=thread), ops, clock.now())
    assert [one.ok for one in notify.deliver(store, clock, ops)] == [False] * 3
    assert {one.notice.key for one in store.outbox.newest(9, failed=True)} == {"a", "b", "c"}
    post.down = ""
    clock.advance(timedelta(minutes=1))
    notify.deliver(store, clock, ops)
    assert [one.thread for one in post.sent] == ["budget/nlp", ""]
    assert store.outbox.newest(9, failed=True) == []


def test_what_was_given_up_can_be_tried_again(store: Store, clock: ManualClock, post: Post, tmp_path: Path) -> None:
    ops = {"ops": settings(tmp_path).notify["ops"]}
    post.down = "the service cannot be reached"
    notify.notify(store, clock, about(), ops)
    for _ in range(99):
        clock.advance(HOUR)
        notify.deliver(store, clock, ops)
    assert store.outbox.newest(9, failed=True)[0].given_up
    assert store.outbox.retry(clock.now(), ["ops"]) == 1
    assert [one.ok for one in notify.deliver(store, clock, ops)] == [False]
    post.down = ""
    clock.advance(timedelta(minutes=1))
    assert [one.ok for one in notify.deliver(store, clock, ops)] == [True]


def test_mail_of_one_incident_is_one_thread() -> None:
    from apprise import Apprise

    def references(thread: str) -> str | None:
        address = notify._add_thread_headers("mailto://me:secret@example.com?to=a@example.com", thread)
        headers: dict[str, str] = getattr(Apprise.instantiate(address), "headers", {})
        return headers.get("References")

    assert references("budget/nlp") == references("budget/nlp") != references("budget/web")
    assert references("") is None
    assert notify._add_thread_headers("slack://a/b/c", "budget/nlp") == "slack://a/b/c"


def test_who_hears_of_other_teams_hears_nothing_of_these_because_it_is_too_slight(tmp_path: Path) -> None:
    found = settings(tmp_path, ops={"at_least": "warning"}, pager={"at_least": "failure"}, nlp={"teams": ["nlp"]})
    assert recipients(found, about("web", severity=Severity.INFO)) == ()


def test_one_notice_that_the_service_refuses_keeps_no_other_from_its_recipient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(message: Notice, address: str) -> str:
        return "the service answered 400" if "poison" in message.body else ""

    monkeypatch.setattr(notify, "_send", refuse)
    found, clock = settings(tmp_path), ManualClock(NOON)
    ops = {"ops": found.notify["ops"]}
    store = open_store(empty_store(tmp_path / "store.db"), clock=clock)
    for key in ("a", "b", "poison"):
        store.outbox.add(about(key=key, thread="incident"), ops, clock.now())
    for _ in range(3):
        clock.advance(HOUR)
        notify.deliver(store, clock, ops)
    assert {one.notice.key for one in store.outbox.newest(9, failed=True)} == {"poison"}
    store.close()
