"""Requests are signed for the region in which the bucket is, whatever region the user's tools are set to."""

from collections.abc import Iterator

import pytest

from broker.agent import aws as module
from broker.agent.aws import REGION_VARIABLE, bucket_region
from broker.agent.store import ObjectFolder, StoreTrouble
from tests.fakes.server import FakeServer, HttpAnswer, HttpRequest


class Bucket:
    """S3 that answers about the bucket with that status, and refuses what is signed for another region."""

    def __init__(self, region: str | None, status: int = 403) -> None:
        self.region, self.status = region, status
        self.heads = 0

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if request.method == "HEAD":
            self.heads += 1
            return HttpAnswer(self.status, b"", {"x-amz-bucket-region": self.region} if self.region else {})
        signed = {name.lower(): value for name, value in request.headers.items()}["authorization"]
        right = f"/{self.region}/s3/" in signed
        return HttpAnswer(200 if right else 400, b"", {"ETag": '"x"'})


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", REGION_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setattr("broker.agent.store._RETRY", {"max_retries": 0})
    module._regions.clear()
    yield monkeypatch
    module._regions.clear()


@pytest.mark.parametrize("status", [200, 301, 403])
def test_the_bucket_itself_tells_its_region_to_anybody(status: int, machine: pytest.MonkeyPatch) -> None:
    bucket = Bucket("eu-central-1", status)
    with FakeServer(bucket) as server:
        machine.setenv("AWS_ENDPOINT_URL", server.url)
        for _ in range(3):
            ObjectFolder.open("s3://runs/team").write("x", b"content")
    assert bucket.heads == 1, "asked once"


def test_what_the_users_tools_are_set_to_does_not_count_for_buckets_of_aws(machine: pytest.MonkeyPatch) -> None:
    with FakeServer(Bucket("eu-central-1")) as server:
        machine.setattr(module, "_AWS", server.url)
        machine.setenv("AWS_REGION", "us-west-2")
        assert bucket_region("s3://runs/team") == "eu-central-1"
        assert bucket_region("gs://runs/team") is bucket_region("file:///runs") is None
        assert bucket_region("s3://runs/team", {REGION_VARIABLE: "eu-north-1"}) == "eu-north-1", "a node does not ask"


def test_a_store_at_another_address_is_as_it_is_named(machine: pytest.MonkeyPatch) -> None:
    bucket = Bucket("eu-central-1")
    with FakeServer(bucket) as server:
        machine.setenv("AWS_ENDPOINT_URL", server.url)
        machine.setenv("AWS_REGION", "us-west-2")
        assert bucket_region("s3://runs/team") is None
        with pytest.raises(StoreTrouble):
            ObjectFolder.open("s3://runs/team").write("x", b"content")
    assert not bucket.heads


@pytest.mark.parametrize("told", [None, "no region\r\n", "x" * 50])
def test_who_tells_nothing_or_nonsense_leaves_it_to_the_variables(
    told: str | None, machine: pytest.MonkeyPatch
) -> None:
    with FakeServer(Bucket(told and told.strip())) as server:
        machine.setenv("AWS_ENDPOINT_URL", server.url)
        assert bucket_region("s3://runs/team") is None
    machine.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert bucket_region("s3://runs/team") is None, "nobody answers"
