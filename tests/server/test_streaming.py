"""A job's events and output as they happen."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from broker.app.access import tokens
from broker.app.jobs import jobs
from broker.app.jobs.logs import LogLine, OutputFollower
from broker.core.actors import Actor
from broker.core.errors import BrokerError, GiveUp, StoreProblem
from broker.server.api import routes as streaming
from broker.server.api.limits import TooManyRequests
from tests.actors import ROOT
from tests.server.world import Company, bearer


def messages(text: str) -> list[tuple[str, str, Any]]:
    """Kind, id and data of every message."""
    found = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        found.append((fields["event"], fields.get("id", ""), json.loads(fields["data"])))
    return found


def test_a_stream_has_the_events_of_the_document_and_goes_on_where_it_was(world: Company) -> None:
    whole = world.get(f"/jobs/{world.asking}", "mia").json()["events"]
    answer = world.get(f"/jobs/{world.asking}/stream", "mia", seconds=0)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *sent, end = messages(answer.text)
    assert [data for _, _, data in sent] == whole
    assert end == ("end", "", {"because": "time"})
    jobs.cancel(world.broker, jobs.find(world.broker, world.asking), by=Actor("mia"))
    headers = bearer(world.usual("mia")) | {"Last-Event-ID": sent[-1][1]}
    more = world.client.get(f"/api/v1/jobs/{world.asking}/stream?seconds=0", headers=headers)
    new = [data for kind, _, data in messages(more.text) if kind == "event"]
    assert new == world.get(f"/jobs/{world.asking}", "mia").json()["events"][len(whole) :]
    assert new


def test_output_is_sent_once(world: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    def new(self: OutputFollower, view: object, only: object) -> Iterator[LogLine]:
        return iter([LogLine(1, None, "first"), LogLine(1, None, 'second: \u2028 "x"')])

    monkeypatch.setattr(OutputFollower, "new", new)
    *_, one, other, _ = messages(world.get(f"/jobs/{world.mine}/stream", "mia", seconds=0, output=True).text)
    assert (one[2]["line"], other[2]["line"]) == ("first", 'second: \u2028 "x"')
    headers = bearer(world.usual("mia")) | {"Last-Event-ID": one[1]}
    rest = world.client.get(f"/api/v1/jobs/{world.mine}/stream?seconds=0&output=true", headers=headers)
    assert [data["line"] for kind, _, data in messages(rest.text) if kind == "output"] == [other[2]["line"]]


@pytest.mark.parametrize("known", [0, 3])
def test_no_line_of_a_long_piece_is_lost_between_two_looks(
    world: Company, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    """What follows output reads a piece of it once, and gives its lines one by one."""
    read: set[int] = set()

    def new(self: OutputFollower, view: object, only: object) -> Iterator[LogLine]:
        if id(self) not in read:
            read.add(id(self))
            yield from (LogLine(1, None, str(number)) for number in range(5))

    monkeypatch.setattr(OutputFollower, "new", new)
    monkeypatch.setattr(streaming, "_MAX_LINES", 2)
    headers = bearer(world.usual("mia")) | {"Last-Event-ID": f"999.{known}"}
    answer = world.client.get(f"/api/v1/jobs/{world.mine}/stream?seconds=0&output=true", headers=headers)
    lines = [data["line"] for kind, _, data in messages(answer.text) if kind == "output"]
    assert lines == [str(number) for number in range(known, 5)]


def test_whoever_may_not_see_output_gets_none(seen_world: Company) -> None:
    assert seen_world.get(f"/jobs/{seen_world.mine}/stream", "fay", seconds=0).status_code == 200
    assert seen_world.get(f"/jobs/{seen_world.mine}/stream", "fay", seconds=0, output=True).status_code == 403


def test_a_token_revoked_meanwhile_hears_no_more(world: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    token = world.token("mia")
    looked = streaming._read_news

    def look(*arguments: Any) -> Any:
        found = looked(*arguments)
        tokens.revoke(world.broker, token.split("_")[1], by=ROOT)
        return found

    monkeypatch.setattr(streaming, "_read_news", look)
    monkeypatch.setattr(streaming, "_POLL_SECONDS", 0.0)
    answer = world.client.get(f"/api/v1/jobs/{world.mine}/stream?seconds=60", headers=bearer(token))
    assert messages(answer.text)[-1] == ("end", "", {"because": "access"})


def test_a_token_has_few_streams_at_once(seen_world: Company) -> None:
    open_ = streaming.OpenStreams()
    held = [open_.one("ann") for _ in range(5)]
    for one in held:
        one.__enter__()
    with pytest.raises(TooManyRequests), open_.one("ann"):
        pass
    with open_.one("bob"):
        pass
    held[0].__exit__(None, None, None)
    with open_.one("ann"):
        pass


@pytest.mark.parametrize("trouble", [StoreProblem("the disk is gone"), GiveUp("the run store is gone")])
def test_a_stream_that_cannot_be_read_ends_with_a_word(
    world: Company, monkeypatch: pytest.MonkeyPatch, trouble: BrokerError
) -> None:
    def broken(*_: object) -> None:
        raise trouble

    monkeypatch.setattr("broker.server.api.routes.jobs.events", broken)
    text = world.get(f"/jobs/{world.mine}/stream", "mia", seconds=0).text
    assert text.endswith('event: end\ndata: {"because": "trouble"}\n\n')
    assert "is gone" not in text, "only the log has the rest"
