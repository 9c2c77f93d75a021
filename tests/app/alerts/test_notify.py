"""Telling people, with the real Apprise and a receiver on loopback."""

import io
import json
import logging
import socket
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from broker.app.alerts import notify
from broker.core.errors import InvalidInput, MissingExtra, UnknownName
from broker.core.notices import Notice, Severity
from broker.core.values.clock import ManualClock
from broker.store import Store, open_store

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOTICE = Notice("budget/nlp/80%", "80 % of nlp is spent", "spent $80 of $100", Severity.WARNING)
SECRET = "s3cr3t-token"


class Receiver:
    """Takes what is posted, and answers as it is told to."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.status = 200
        outer = self

        class WebhookHandler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if outer.status == 200:
                    outer.taken.append(body)
                self.send_response(outer.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), WebhookHandler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self) -> SecretStr:
        return SecretStr(f"json://user:{SECRET}@127.0.0.1:{self.server.server_port}/{SECRET}")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


def unreachable() -> SecretStr:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return SecretStr(f"json://127.0.0.1:{free.getsockname()[1]}/{SECRET}")


def test_a_notice_arrives_once(store: Store, clock: ManualClock, receiver: Receiver) -> None:
    targets = {"ops": receiver.address}
    (done,) = notify.notify(store, clock, NOTICE, targets)
    assert (done.ok, done.target, done.key) == (True, "ops", NOTICE.key)
    assert [(it["title"], it["message"], it["type"]) for it in receiver.taken] == [
        (NOTICE.title, NOTICE.body, "warning")
    ]
    assert notify.notify(store, clock, NOTICE, targets) == []
    assert notify.notify(store, clock, Notice("budget/nlp/100%", "x", "y"), targets)[0].ok
    assert len(receiver.taken) == 2


def test_after_a_restart_nothing_is_told_twice(tmp_path: Path, clock: ManualClock, receiver: Receiver) -> None:
    for _ in range(2):
        again = open_store(f"sqlite:///{tmp_path / 'again.db'}", clock=clock)
        notify.notify(again, clock, NOTICE, {"ops": receiver.address})
        again.close()
    assert len(receiver.taken) == 1


def test_what_fails_is_tried_again_with_longer_pauses(store: Store, clock: ManualClock, receiver: Receiver) -> None:
    targets = {"ops": receiver.address}
    receiver.status = 503
    (failed,) = notify.notify(store, clock, NOTICE, targets)
    assert (failed.error, failed.next_try_in) == ("the service answered 503", timedelta(seconds=30))
    assert notify.deliver(store, clock, targets) == []
    pauses = []
    for _ in range(9):
        (kept,) = store.outbox.under("")
        assert kept.next_try is not None
        pauses.append((kept.next_try - clock.now()).total_seconds())
        clock.time = kept.next_try
        notify.deliver(store, clock, targets)
    assert pauses == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    receiver.status = 200
    clock.advance(timedelta(hours=1))
    assert notify.deliver(store, clock, targets)[0].ok
    assert len(receiver.taken) == 1


def test_after_three_days_it_is_given_up(store: Store, clock: ManualClock) -> None:
    targets, begun = {"ops": SecretStr("nonsense")}, clock.now()
    (failed,) = notify.notify(store, clock, NOTICE, targets)
    while failed.next_try_in is not None:
        clock.advance(failed.next_try_in)
        (failed,) = notify.deliver(store, clock, targets)
    assert failed.error == "Apprise does not accept this address; given up"
    assert timedelta(days=3) <= clock.now() - begun < timedelta(days=3, hours=1)
    (kept,) = store.outbox.under("")
    assert kept.given_up
    clock.advance(timedelta(days=3))
    assert notify.deliver(store, clock, targets) == []


def test_one_that_fails_does_not_hold_back_the_others(store: Store, clock: ManualClock, receiver: Receiver) -> None:
    targets = {"a": unreachable(), "b": SecretStr("nonsense"), "c": receiver.address}
    done = {one.target: one.error for one in notify.notify(store, clock, NOTICE, targets)}
    assert done == {"a": "the service cannot be reached", "b": "Apprise does not accept this address", "c": ""}
    assert len(receiver.taken) == 1


def test_what_was_claimed_by_a_process_that_died_is_sent_later(
    store: Store, clock: ManualClock, receiver: Receiver
) -> None:
    store.outbox.add(NOTICE, ["ops"], clock.now())
    assert store.outbox.claim(["ops"], clock.now(), timedelta(minutes=2)) is not None  # and then the power failed
    assert notify.deliver(store, clock, {"ops": receiver.address}) == []
    clock.advance(timedelta(minutes=2))
    assert notify.deliver(store, clock, {"ops": receiver.address})[0].ok


def test_while_one_sends_no_other_does(store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    targets, sent = {"ops": SecretStr("json://127.0.0.1")}, []

    def send(notice: Notice, address: str) -> str:
        sent.append(notice.key)
        clock.advance(timedelta(minutes=1))  # a slow service; meanwhile another process looks
        assert len(sent) > 1 or notify.deliver(store, clock, targets) == []
        return ""

    monkeypatch.setattr(notify, "_send", send)
    notify.notify(store, clock, NOTICE, targets)
    assert sent == [NOTICE.key]


def test_addresses_are_neither_stored_nor_logged_nor_shown(
    tmp_path: Path,
    store: Store,
    clock: ManualClock,
    receiver: Receiver,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    targets = {"up": receiver.address, "down": unreachable(), "odd": SecretStr(f"slack://{SECRET}")}
    receiver.status = 500
    log = io.StringIO()  # as a program that keeps everything would set it up; pytest's own looks into every logger
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler(log)])
    monkeypatch.setattr(logging.getLogger(), "level", logging.DEBUG)
    done = notify.notify(store, clock, NOTICE, targets)
    assert all(not one.ok for one in done)
    store.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    captured = capfd.readouterr()
    said = "".join(
        [captured.out, captured.err, log.getvalue(), repr(done), *map(notify.redact_address, targets.values())]
    )
    assert NOTICE.title.encode() in kept
    assert SECRET.encode() not in kept
    assert SECRET not in said


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("slack://TokenA/TokenB/TokenC/#chan", "slack://…"),
        ("tgram://123:abc/1", "tgram://…"),
        ("https://hooks.example.com/services/T/B/x", "https://…"),
        ("json://hooks.example.com:8080/path/secret?key=x@y", "json://hooks.example.com:8080/…"),
        ("mailto://me:password@example.com?to=you@example.org", "mailto://example.com/…"),
        ("json://me:pass/word@example.com/x", "json://…"),
        ("json://me:12/34@example.com/x", "json://…"),
        ("token", "…"),
        ("", "…"),
    ],
)
def test_what_may_be_shown_of_an_address(address: str, shown: str) -> None:
    assert notify.redact_address(SecretStr(address)) == shown


def test_addresses_and_names_are_checked(receiver: Receiver) -> None:
    targets = {"ops": receiver.address, "odd": SecretStr("nonsense://x")}
    with pytest.raises(InvalidInput) as wrong:
        notify.check_addresses(targets)
    assert wrong.value.where == "GPUBROKER_NOTIFY__ODD"
    notify.check_addresses({"ops": receiver.address})
    assert set(notify.select_targets(targets, [])) == {"ops", "odd"}
    assert set(notify.select_targets(targets, ["ops"])) == {"ops"}
    with pytest.raises(UnknownName, match="did you mean 'ops'"):
        notify.select_targets(targets, ["opps"])


def test_without_apprise_the_part_is_named_and_the_notice_kept(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(MissingExtra) as missing:
        notify.notify(store, clock, NOTICE, {"ops": SecretStr("json://127.0.0.1")})
    assert missing.value.extra == "serve"
    (kept,) = store.outbox.under("")
    assert not kept.given_up
