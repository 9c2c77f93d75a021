"""The store as the agent opens it: variables count, and errors read the same each time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.agent.store import ROOM, ObjectFolder, StoreTrouble, parts

NOBODY = "http://127.0.0.1:9"  # the discard port: nobody listens


@pytest.fixture(autouse=True)
def bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "s3cret", "AWS_REGION": "us-east-1"}
    for name, value in {**keys, "AWS_ENDPOINT_URL": NOBODY}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("broker.agent.store._RETRY", {"max_retries": 0})


def trouble() -> str:
    with pytest.raises(StoreTrouble) as error:
        ObjectFolder.open("s3://runs/job").write("lease.json", b"{}")
    return str(error.value)


def test_plain_http_is_spoken_where_a_variable_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "builder error" in trouble(), "refused before anything is sent"
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert "error sending request" in trouble()


def test_the_same_trouble_is_the_same_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert trouble() == trouble()
    assert "s3cret" not in trouble()


@given(st.integers(0, 5 << 40), st.integers(0, ROOM))
def test_the_largest_object_that_s3_takes_goes_up_in_as_many_parts_as_it_takes(size: int, room: int) -> None:
    part, at_once = parts(size, room)
    assert part >= 5 << 20
    assert size <= 10_000 * part
    assert 2 <= at_once <= 12
    assert part * at_once <= max(room, 2 * part)


def test_small_ones_go_up_twelve_parts_at_a_time_where_there_is_room() -> None:
    assert parts(0, ROOM) == parts(40 << 30, ROOM) == (5 << 20, 12)
    assert parts(140 << 30, ROOM) == (16 << 20, 4)
    assert parts(0, 0) == (5 << 20, 2)
