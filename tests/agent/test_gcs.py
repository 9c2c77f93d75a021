"""The agent's store over Cloud Storage, as its discovery document has it; and the double that stands for it."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from obstore.store import MemoryStore

from broker.agent.store import ObjectFolder, StoreTrouble
from tests.fakes.gcs import GcsBucket
from tests.waiting import LONGEST


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsBucket]:
    monkeypatch.setattr("broker.agent.store._RETRY", {"max_retries": 0})
    with GcsBucket("runs", "token", page=2) as made:
        monkeypatch.setenv("GOOGLE_BASE_URL", made.url)
        monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "token")
        monkeypatch.setenv("GOOGLE_ALLOW_HTTP", "true")
        yield made


@pytest.fixture
def store(bucket: GcsBucket) -> ObjectFolder:
    return ObjectFolder.open("gs://runs/job")


def asked(bucket: GcsBucket, path: str) -> tuple[int, Any]:
    """What the JSON API says."""
    request = urllib.request.Request(f"{bucket.url}/storage/v1/{path}", headers={"Authorization": "Bearer token"})
    try:
        with urllib.request.urlopen(request, timeout=LONGEST) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_what_is_created_is_created_once(store: ObjectFolder, bucket: GcsBucket) -> None:
    assert store.create("claim-0.json", b"first")
    assert not store.create("claim-0.json", b"second")
    assert store.read("claim-0.json") == b"first"
    store.delete("claim-0.json")
    assert store.create("claim-0.json", b"third"), "generation 0 means that there is none"


def test_large_files_go_up_in_parts_and_come_down_whole(store: ObjectFolder, bucket: GcsBucket) -> None:
    data = os.urandom(12 << 20)
    store.upload("checkpoints/1/weights", (data[at : at + (1 << 20)] for at in range(0, len(data), 1 << 20)))
    assert b"".join(store.stream("checkpoints/1/weights")) == data
    assert store.sizes("checkpoints") == {"checkpoints/1/weights": len(data)}


MIB = 1 << 20


def test_an_object_of_any_size_is_read_by_requests_that_end_within_their_time_limit(
    store: ObjectFolder, bucket: GcsBucket
) -> None:
    data = os.urandom(40 * MIB)
    store.write("weights", data)
    pieces = list(store.stream("weights"))
    assert [len(piece) for piece in pieces] == [16 * MIB, 16 * MIB, 8 * MIB]
    assert b"".join(pieces) == data
    assert b"".join(store.stream("weights", 17 * MIB)) == data[17 * MIB :]
    assert b"".join(store.stream("weights", 39 * MIB)) == data[39 * MIB :]


def test_an_object_that_is_replaced_while_it_is_read_is_no_mixture() -> None:
    store = ObjectFolder(MemoryStore())
    store.write("weights", bytes(40 * MIB))
    pieces = store.stream("weights")
    next(pieces)
    store.write("weights", os.urandom(40 * MIB))
    with pytest.raises(StoreTrouble, match="cannot read weights"):
        list(pieces)


def test_half_an_upload_is_nothing(store: ObjectFolder, bucket: GcsBucket) -> None:
    def pieces() -> Iterator[bytes]:
        yield os.urandom(6 << 20)
        raise KeyError("gone")

    with pytest.raises(KeyError):
        store.upload("checkpoints/1/weights", pieces())
    assert bucket.objects == {}


def test_long_lists_come_in_pages(store: ObjectFolder) -> None:
    for number in range(5):
        store.write(f"attempts/{number}/spec.json", b"{}")
        store.write(f"attempts/{number}.json", b"{}")
    assert store.folders("attempts") == ["0", "1", "2", "3", "4"]
    assert store.files("attempts") == [f"{number}.json" for number in range(5)]
    assert len(store.sizes("")) == 10


def test_a_login_that_is_none_is_trouble_without_the_token(
    store: ObjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "guessed-token")
    with pytest.raises(StoreTrouble) as error:
        ObjectFolder.open("gs://runs/job").write("x", b"")
    assert "guessed-token" not in str(error.value)


def test_objects_are_resources_of_the_document(store: ObjectFolder, bucket: GcsBucket) -> None:
    store.write("a b/ü.json", b"{}")
    status, answer = asked(bucket, "b/runs/o?prefix=job/")
    assert status == 200
    (item,) = answer["items"]
    assert (item["name"], item["size"]) == ("job/a b/ü.json", "2")
    where = "b/runs/o/job%2Fa%20b%2F%C3%BC.json"
    assert asked(bucket, f"{where}?ifGenerationMatch={item['generation']}")[0] == 200
    store.write("a b/ü.json", b"[]")
    status, answer = asked(bucket, f"{where}?ifGenerationMatch={item['generation']}")
    assert (status, answer["error"]["errors"][0]["reason"]) == (412, "conditionNotMet")


def test_what_the_document_does_not_know_is_an_error(bucket: GcsBucket) -> None:
    with pytest.raises((urllib.error.URLError, ConnectionError, OSError)):
        asked(bucket, "b/runs/o?ifGenerationMatched=1")
