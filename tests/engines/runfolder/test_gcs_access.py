"""A node's token for Cloud Storage reaches its job's folder and what the job reads, and nothing else: Google's own
libraries and obstore against a token service and a bucket that hold to the documented boundaries."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.agent.access import NodeAccess, seal
from broker.agent.store import ObjectFolder, StoreTrouble
from broker.core.errors import LoginMissing
from broker.core.job.jobs import Job
from broker.engines.runfolder.node_access import BoundTokens, boundary
from tests.fakes.gcs import GcsBucket
from tests.fakes.gcs_bounds import TokenService
from tests.fakes.server import FakeServer

RUNS = "gs://runs/team"
JOB = Job.model_validate({"name": "n", "run": "true", "resume_from": {"job": "before"}})


@pytest.fixture
def service() -> TokenService:
    return TokenService("login")


@pytest.fixture
def tokens(service: TokenService, monkeypatch: pytest.MonkeyPatch) -> Iterator[BoundTokens]:
    google = pytest.importorskip("google.auth", reason="Google's SDKs are not installed (the extra `gcp`)")
    from google.oauth2.credentials import Credentials

    ends = (datetime.now(UTC) + timedelta(hours=1)).replace(tzinfo=None)  # as google-auth has it
    login = Credentials("login", expiry=ends)  # type: ignore[no-untyped-call]  # ships no types
    monkeypatch.setattr(google, "default", lambda scopes: (login, "team-ml"))
    with FakeServer(service) as server:
        yield BoundTokens(RUNS, f"{server.url}/v1/token")


@pytest.fixture
def bucket(service: TokenService, monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsBucket]:
    pytest.importorskip("googleapiclient", reason="the discovery documents are not installed (the extra `dev`)")
    monkeypatch.setattr("broker.agent.store._RETRY", {"max_retries": 0})
    with GcsBucket("runs", "root") as made:
        made.bounds = service.given
        monkeypatch.setenv("GOOGLE_BASE_URL", made.url)
        monkeypatch.setenv("GOOGLE_ALLOW_HTTP", "true")
        yield made


def folder(job: str, tokens: BoundTokens) -> ObjectFolder:
    return ObjectFolder.open(f"{RUNS}/{job}", NodeAccess(json.dumps(dict(tokens.credentials("mine", JOB)))))


def test_a_node_works_in_its_own_folder(tokens: BoundTokens, bucket: GcsBucket) -> None:
    mine = folder("mine", tokens)
    assert mine.create("claim-0.json", b"first")
    mine.write("checkpoints/1/weights", b"w")
    assert mine.read("claim-0.json") == b"first"
    assert mine.sizes("checkpoints") == {"checkpoints/1/weights": 1}
    mine.delete("claim-0.json")
    assert set(bucket.objects) == {"team/mine/checkpoints/1/weights"}


def test_what_a_job_reads_it_cannot_write_and_others_it_cannot_even_read(
    tokens: BoundTokens, bucket: GcsBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "root")
    for job in ("before", "mine-too", "other"):
        ObjectFolder.open(f"{RUNS}/{job}").write("spec.json", b"{}")
    monkeypatch.delenv("GOOGLE_BEARER_TOKEN")
    before = folder("before", tokens)
    assert before.read("spec.json") == b"{}"
    with pytest.raises(StoreTrouble):
        before.write("spec.json", b"forged")
    for job in ("mine-too", "other"):
        foreign = folder(job, tokens)
        with pytest.raises(StoreTrouble):
            foreign.read("spec.json")
        with pytest.raises(StoreTrouble):
            foreign.write("spec.json", b"forged")
        with pytest.raises(StoreTrouble):
            foreign.delete("spec.json")
        with pytest.raises(StoreTrouble):
            foreign.sizes("")
    assert {one.data for one in bucket.objects.values()} == {b"{}"}


def test_a_login_that_is_refused_says_what_to_do_and_no_token(tokens: BoundTokens, service: TokenService) -> None:
    service.logins.clear()
    with pytest.raises(LoginMissing, match="refused") as error:
        tokens.credentials("mine", JOB)
    assert "gcloud auth" in error.value.hint
    assert "login'" not in str(error.value)


def test_tokens_are_renewed_like_sessions(tokens: BoundTokens) -> None:
    key = "aa" * 32
    first: dict[str, Any] = dict(tokens.credentials("mine", JOB))
    assert datetime.now(UTC) < datetime.fromisoformat(first["expires_at"]) <= datetime.now(UTC) + timedelta(hours=1.1)
    soon = (datetime.now(UTC) + timedelta(minutes=1)).isoformat()
    access = NodeAccess(json.dumps({**first, "expires_at": soon}))
    access.renew(seal(tokens.credentials("mine", JOB), key), key)
    assert access()["token"] == "narrowed-1"


def test_names_cannot_leave_their_place_in_the_condition() -> None:
    (rule,) = boundary("gs://runs/it's", "j", Job(name="n", run="true"))["accessBoundary"]["accessBoundaryRules"]
    expression = rule["availabilityCondition"]["expression"]
    assert "objects/it\\'s/j/')" in expression


def test_runs_in_the_root_of_a_bucket() -> None:
    (rule,) = boundary("gs://runs", "j", Job(name="n", run="true"))["accessBoundary"]["accessBoundaryRules"]
    assert "'projects/_/buckets/runs/objects/j/'" in rule["availabilityCondition"]["expression"]
