"""`gpubroker prices watch`, with the real Apprise and a receiver on loopback."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

SECRET = "s3cr3t-token"
BELOW = ("prices", "watch", "add", "below=1000", "--gpu", "H100", "--where", "provider=sandbox")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch, home: object) -> Iterator[list[dict[str, Any]]]:
    """What was posted to the target ``ops``."""
    found: list[dict[str, Any]] = []

    class AlertHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), AlertHandler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("GPUBROKER_NOTIFY__OPS", f"json://127.0.0.1:{server.server_port}/{SECRET}")
    yield found
    server.shutdown()
    server.server_close()


def test_a_watch_from_adding_to_removing(gpubroker: Any, taken: list[dict[str, Any]]) -> None:
    assert gpubroker("prices", "poll", "--provider", "sandbox").code == 0
    done = gpubroker(*BELOW, "--name", "cheap")
    assert done.code == 0
    assert "watching cheap: H100 from sandbox below $1,000.00 per GPU-hour" in done.out
    assert "already true" in done.out
    assert "not checked yet" in gpubroker("prices", "watch", "list").out
    done = gpubroker("prices", "watch", "list", "--check", "--json")
    assert done.code == 0
    assert [(one["target"], one["ok"]) for one in done.json["deliveries"]] == [("ops", True)]
    assert done.json["watches"][0]["notices"] == 1
    assert [one["title"] for one in taken] == ["gpubroker: H100 from sandbox below $1,000.00 per GPU-hour"]
    done = gpubroker("prices", "watch", "list", "--check")
    assert "true; cheapest:" in done.out
    assert len(taken) == 1
    document = gpubroker("prices", "watch", "list", "--json").json
    (watch,) = document["watches"]
    assert (watch["holds"], watch["notices"], watch["trigger"]) == (True, 1, "below")
    assert watch["price_per_gpu_hour"] == "1000.00"
    assert watch["deliveries"][0]["status"] == "delivered"
    assert document["targets"][0]["setting"] == "GPUBROKER_NOTIFY__OPS"
    assert gpubroker("prices", "watch", "remove", "cheap").out == "removed cheap\n"
    assert "no watches" in gpubroker("prices", "watch", "list").out


def test_what_cannot_be_delivered_is_shown_and_tried_again(
    gpubroker: Any, taken: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUBROKER_NOTIFY__DOWN", "nonsense://" + SECRET)
    gpubroker("prices", "poll", "--provider", "sandbox")
    gpubroker(*BELOW)
    done = gpubroker("prices", "watch", "list", "--check")
    assert done.code == 5
    assert "not sent to down (nonsense://…): Apprise does not accept this address; next try in 30s" in done.out
    assert "sent to ops (json://127.0.0.1" in done.out
    shown = gpubroker("prices", "watch", "list")
    assert "down: Apprise does not accept this address; tried 1 time, next try in" in shown.out
    assert gpubroker("prices", "watch", "list", "--check").code == 0  # not due yet
    monkeypatch.delenv("GPUBROKER_NOTIFY__DOWN")
    assert "down: no such recipient" in gpubroker("prices", "watch", "list").out


def test_secrets_are_never_shown(gpubroker: Any, taken: list[dict[str, Any]]) -> None:
    said = ""
    for arguments in (BELOW, *(("prices", "watch", verb) for verb in ("list", "check", "test"))):
        for more in ((), ("--json",)):
            done = gpubroker(*arguments, *more)
            said += done.out + done.err
    assert "json://127.0.0.1" in said
    assert SECRET not in said


def test_a_notice_on_trial(gpubroker: Any, taken: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpubroker("notices", "--test").code == 0
    assert [one["title"] for one in taken] == ["gpubroker: test alert"]
    done = gpubroker("notices", "opss", "--test")
    assert done.code == 2
    assert "did you mean 'ops'?" in done.err
    monkeypatch.setenv("GPUBROKER_NOTIFY__OPS", "nonsense")
    assert gpubroker("notices", "OPS", "--test", "--json").code == 5
    monkeypatch.delenv("GPUBROKER_NOTIFY__OPS")
    assert "GPUBROKER_NOTIFY__<NAME>" in gpubroker("notices", "--test").err


def test_without_targets_it_says_that_nobody_is_told(gpubroker: Any) -> None:
    gpubroker("prices", "poll", "--provider", "sandbox")
    assert "no recipient is configured" in gpubroker(*BELOW).err
    done = gpubroker("prices", "watch", "list", "--check")
    assert done.code == 0
    assert "no recipients" in done.out
    assert "no recipients" in gpubroker("prices", "watch", "list").out


def test_a_watch_of_what_has_only_list_prices_says_so(gpubroker: Any) -> None:
    assert "$" in gpubroker("offers", "--gpu", "H100", "--offline").out
    done = gpubroker("prices", "watch", "add", "below=99", "--gpu", "H100")
    assert "only list prices, which watches ignore" in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "the argument is missing"),
        (("cheap",), "expected below=USD, rises=PERCENT/TIME, available or stale=TIME; got 'cheap'"),
        (("below=cheap",), "expected a price in USD"),
        (("rises=0%",), "expected a rise in percent"),
        (("rises=nan",), "expected a rise in percent"),
        (("rises=20%/2",), "expected a duration"),
        (("stale=2h", "--gpu", "H100"), "only providers can be combined with stale"),
        (("stale=2",), "expected a duration"),
        (("stale=2h", "-w", "provider=sandbax"), "did you mean 'sandbox'?"),
        (("below=2", "--gpu", "H10O"), "did you mean 'H100'?"),
        (("below=2", "-w", "region=nowhere"), "unknown region"),
        (("below=2", "--tell", "opz"), "unknown target"),
        (("below=2", "--name", "Bad/Name"), "not a valid name for a watch"),
        (("below=2", "--every", "0h"), "greater than zero"),
    ],
)
def test_what_makes_no_sense_is_refused(gpubroker: Any, arguments: Any, said: str) -> None:
    done = gpubroker("prices", "watch", "add", *arguments)
    assert done.code == 2
    assert said in done.err
    assert gpubroker("prices", "watch", "list", "--json").json["watches"] == []


def test_a_misspelt_watch(gpubroker: Any) -> None:
    gpubroker("prices", "watch", "add", "available", "--name", "any")
    done = gpubroker("prices", "watch", "remove", "anny")
    assert done.code == 2
    assert "did you mean 'any'?" in done.err
