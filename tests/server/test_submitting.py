"""Submission over the network: files uploaded piece by piece, secrets sealed elsewhere, and nothing read from the
server's disk or from another person's files."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from broker.agent.source_tree import TreeEntry, tree_bytes, tree_id, unpack
from broker.app.jobs import jobs
from broker.app.jobs.network_jobs import open_upload_pool
from broker.app.jobs.sealed_secrets import JobSecrets, encrypt_for_service, publish_service_key
from broker.app.jobs.snapshots import pool_name
from broker.core.access.people import Permission
from broker.core.actors import Actor, ProcessAccount
from broker.server.api.limits import UploadQuota
from broker.settings import ServeSettings
from tests.server.test_changing import ask, lines
from tests.server.test_matrix import access_of
from tests.server.world import EVERYBODY, JOB, STRANGER, Company, bearer, submitted

FILE = JOB.format(name="sent", team="team: nlp", most="2h")
WITH_FILES = f"{FILE}workdir: /home/mia/project\n"


def put(world: Company, kind: str, data: bytes, by: str = "mia", named: str = "") -> Any:
    sha256 = named or hashlib.sha256(data).hexdigest()
    return world.client.put(f"/api/v1/contents/{kind}/{sha256}", content=data, headers=bearer(world.usual(by)))


def uploaded(world: Company, by: str = "mia", text: bytes = b"print(1)\n") -> dict[str, Any]:
    """A folder with one file; its snapshot."""
    assert put(world, "files", text, by).status_code == 204
    entry = TreeEntry("train.py", size=len(text), sha256=hashlib.sha256(text).hexdigest())
    data = tree_bytes([entry])
    assert put(world, "trees", data, by).status_code == 204
    copy = {"tree": tree_id(data), "source": "/home/mia/project", "files": 1, "size": len(text)}
    return {"pool": pool_name(world.broker, Actor(by)), "trees": [copy]}


def submit(world: Company, by: str = "mia", key: str | None = None, **body: Any) -> Any:
    return ask(world, "/jobs", by, {"job_file": FILE} | body, key)


def test_a_job_is_submitted_once_with_the_files_that_were_uploaded(world: Company, tmp_path: Path) -> None:
    snapshot, key = uploaded(world), str(uuid4())
    answer = submit(world, key=key, job_file=WITH_FILES, snapshot=snapshot)
    assert answer.status_code == 201, answer.text
    again = submit(world, key=key, job_file=WITH_FILES, snapshot=snapshot)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.json() == answer.json()
    view = jobs.find(world.broker, answer.json()["id"])
    assert (view.user, view.job.team, view.job.workdir) == ("mia", "nlp", "/home/mia/project")
    assert view.job.snapshot is not None
    unpack(open_upload_pool(world.broker, Actor("mia")), view.job.snapshot.trees[0].tree, tmp_path / "node")
    assert (tmp_path / "node" / "train.py").read_text() == "print(1)\n"
    assert lines(world, "sent") == [("mia", "jobs.submit", "begun", ""), ("mia", "jobs.submit", "done", "")]


def test_a_job_from_the_network_does_not_run_under_the_account_of_the_service(
    seen_world: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen_world.broker.settings, "serve", ServeSettings())
    planned = ask(seen_world, "/plans", "mia", {"job_file": FILE}).json()
    assert planned["placements"] == []
    assert planned["exit_code"] == 4
    refused = submit(seen_world)
    assert refused.status_code == 409, refused.text
    assert "jobs_here = true" in json.dumps([planned, refused.json()])


def test_a_plan_changes_nothing(seen_world: Company) -> None:
    before = len(seen_world.get("/jobs", "mia").json()["jobs"])
    answer = ask(seen_world, "/plans", "mia", {"job_file": FILE})
    assert answer.status_code == 200, answer.text
    assert answer.json()["exit_code"] == 0
    assert answer.json()["placements"][0]["offer"]["provider"] == "sandbox"
    assert len(seen_world.get("/jobs", "mia").json()["jobs"]) == before


@pytest.mark.parametrize("path", ["/jobs", "/plans"])
@pytest.mark.parametrize("who", EVERYBODY)
def test_only_members_submit_for_a_team(seen_world: Company, who: str, path: str) -> None:
    if access_of(who).may(Permission.SUBMIT, "nlp"):
        assert path == "/jobs" or ask(seen_world, path, who, {"job_file": FILE}).status_code == 200
        return
    assert ask(seen_world, path, who, {"job_file": FILE}).status_code == 403


def test_a_job_that_needs_an_approval_says_so(world: Company) -> None:
    answer = submit(world, job_file=JOB.format(name="long", team="team: nlp", most="6h"))
    assert (answer.status_code, answer.json()["state"]) == (202, "awaiting_approval")


def test_a_bad_job_file_is_refused_with_its_lines(seen_world: Company) -> None:
    answer = submit(seen_world, job_file="name: x\nrunn: echo\n")
    assert answer.status_code == 422
    assert "runn" in answer.text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("workdir: /etc\n", "none were uploaded"),
        ("file_mounts: {/x: /etc/shadow}\n", "none were uploaded"),
        ("file_mounts: {/x: {source: /etc, store: s3, name: n}}\n", "does not upload local files"),
        ("resume_from: foreign\n", "foreign"),
    ],
)
def test_nothing_of_the_server_or_of_others_is_read(seen_world: Company, more: str, said: str) -> None:
    answer = submit(seen_world, job_file=FILE + more)
    assert answer.status_code in (404, 422), answer.text
    assert said in answer.json()["detail"]


def test_other_jobs_are_named_by_ids_that_one_may_see(seen_world: Company) -> None:
    for more in (f"resume_from: {seen_world.foreign}\n", f"after: {seen_world.foreign}\n"):
        answer = submit(seen_world, job_file=FILE + more)
        assert (answer.status_code, answer.json()["kind"]) == (404, "unknown_name")


@pytest.mark.parametrize("reference", ["foreign", "foreig", "fore", "forein", "zzzz", "nobodys"])
def test_a_wrong_name_tells_nothing_of_others_jobs(seen_world: Company, reference: str) -> None:
    answer = submit(seen_world, job_file=FILE + f"after: {reference}\n")
    assert (answer.status_code, answer.json()["detail"]) == (404, f"unknown job '{reference}'")
    ids = (seen_world.mine, seen_world.asking, seen_world.foreign, seen_world.nobodys)
    assert not [id for id in ids if id in answer.text]


def test_a_namesake_of_another_team_is_not_taken_and_hinders_nobody(world: Company) -> None:
    submitted(world.broker, "mine", STRANGER, "vision")
    answer = submit(world, job_file=FILE + "after: mine\n")
    assert answer.status_code == 201, answer.text
    with world.broker.store.reading() as reader:
        recorded = reader.job(answer.json()["id"])
    assert recorded
    assert [(predecessor.job, predecessor.folder) for predecessor in recorded.job.after] == [(world.mine, "mine")]


def test_a_snapshot_is_of_the_submitter_and_there(seen_world: Company) -> None:
    mine = uploaded(seen_world)
    stolen = submit(seen_world, "apple", job_file=WITH_FILES, snapshot=mine)
    assert (stolen.status_code, "another person's" in stolen.text) == (422, True)
    mine["trees"][0]["tree"] = "0" * 64
    assert "was not uploaded" in submit(seen_world, job_file=WITH_FILES, snapshot=mine).json()["detail"]
    mine["trees"][0]["tree"] = "../../secrets"
    assert submit(seen_world, job_file=WITH_FILES, snapshot=mine).status_code == 422


def test_contents_are_what_their_names_say(seen_world: Company) -> None:
    data = b"some bytes"
    head = seen_world.client.head
    path = f"/api/v1/contents/files/{hashlib.sha256(data).hexdigest()}"
    mia, apple = (bearer(seen_world.usual(who)) for who in ("mia", "apple"))
    assert head(path, headers=mia).status_code == 404
    assert put(seen_world, "files", data).status_code == 204
    assert head(path, headers=mia).status_code == 200
    assert head(path, headers=apple).status_code == 404, "whether another has a file is nobody's business"
    assert put(seen_world, "files", b"others", named="0" * 64).status_code == 422
    assert put(seen_world, "trees", b"no list").status_code == 422
    assert put(seen_world, "files", b"", named="../x").status_code in (404, 405, 422)


def test_an_upload_may_be_larger_than_a_request_and_has_a_limit(world: Company) -> None:
    assert put(world, "files", b"x" * 3_000_000).status_code == 204
    world.broker.settings.max_snapshot = 2_000_000

    def pieces() -> Iterator[bytes]:
        for _ in range(5):
            yield b"y" * 500_000

    sha256 = hashlib.sha256(b"".join(pieces())).hexdigest()
    path, headers = f"/api/v1/contents/files/{sha256}", bearer(world.usual("mia"))
    answer = world.client.put(path, content=pieces(), headers=headers)
    assert (answer.status_code, answer.json()["kind"]) == (422, "content_too_large")
    assert world.client.head(path, headers=headers).status_code == 404


def test_a_full_disk_is_told_and_nothing_is_kept(seen_world: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __enter__(self) -> Full:
            return self

        def __exit__(self, *ended: object) -> None:
            pass

        def write(self, piece: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("broker.server.api.contents.tempfile.SpooledTemporaryFile", lambda most: Full())
    answer = put(seen_world, "files", b"too much")
    assert (answer.status_code, answer.json()["kind"]) == (503, "store_problem")


def test_other_requests_stay_small(seen_world: Company) -> None:
    assert submit(seen_world, job_file="#" * 1_200_000).status_code == 413


def test_secrets_are_sealed_elsewhere_and_open_here(world: Company) -> None:
    needs = f"{FILE}secrets: {{HF_TOKEN: null}}\n"
    assert "HF_TOKEN" in submit(world, job_file=needs).json()["detail"]
    publish_service_key(world.broker)
    terms = world.get("/submission", "mia").json()
    assert terms["pool"] == pool_name(world.broker, Actor("mia"))
    box = encrypt_for_service(terms["secrets_key"], {"HF_TOKEN": "hf_secret"})
    body = {"key": box.key, "id": box.id, "box": box.box}
    answer = submit(world, job_file=needs, sealed=body)
    assert answer.status_code == 201, answer.text
    assert "hf_secret" not in answer.text
    view = jobs.find(world.broker, answer.json()["id"])
    secrets = JobSecrets(world.broker)
    assert secrets.missing(view.job) == []
    assert secrets.of(view, ProcessAccount("service", for_others=True)) == {"HF_TOKEN": "hf_secret"}
    assert "seal" in submit(world, job_file=needs, sealed=body).json()["detail"], "a box opens for one job"
    assert "another key" in submit(world, job_file=needs, sealed=body | {"key": "0" * 16}).json()["detail"]
    assert submit(world, job_file=needs, sealed=body | {"id": "../../x"}).status_code == 422


def test_an_ended_job_is_run_again_once_with_its_files(world: Company) -> None:
    sent = submit(world, job_file=WITH_FILES, snapshot=uploaded(world)).json()["id"]
    early = ask(world, f"/jobs/{sent}/retry", "mia")
    assert (early.status_code, "has not ended" in early.text) == (409, True)
    assert ask(world, f"/approvals/{world.asking}/refuse", "apple").status_code == 200
    key = str(uuid4())
    again, replayed = (ask(world, f"/jobs/{world.asking}/retry", "mia", {"from_start": True}, key) for _ in range(2))
    assert (again.status_code, again.json()["state"]) == (202, "awaiting_approval"), again.text
    assert again.json()["id"] == replayed.json()["id"] != world.asking
    assert ask(world, f"/jobs/{world.asking}/retry", "vic").status_code == 403
    assert lines(world, world.asking)[-1] == ("mia", "jobs.retry", "done", "")


def test_running_again_takes_no_secret_of_the_service(world: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_service")
    publish_service_key(world.broker)
    needs = JOB.format(name="needs", team="team: nlp", most="6h") + "secrets: {HF_TOKEN: null}\n"
    box = encrypt_for_service(world.get("/submission", "mia").json()["secrets_key"], {"HF_TOKEN": "hf_secret"})
    sent = submit(world, job_file=needs, sealed={"key": box.key, "id": box.id, "box": box.box}).json()["id"]
    assert ask(world, f"/approvals/{sent}/refuse", "apple").status_code == 200
    refused = ask(world, f"/jobs/{sent}/retry", "mia")
    assert (refused.status_code, "values of secrets are missing" in refused.text) == (422, True)


def test_uploads_of_a_person_are_limited_in_sum(world: Company) -> None:
    world.app.state.uploads = UploadQuota(1_000)
    assert put(world, "files", b"a" * 600).status_code == 204
    for _ in range(3):
        assert put(world, "files", b"a" * 600).status_code == 204, "the same bytes take no more room"
    refused = put(world, "files", b"b" * 600)
    assert (refused.status_code, refused.json()["kind"]) == (422, "upload_quota_reached")
    assert put(world, "files", b"b" * 600, "apple").status_code == 204, "each person has their own"
    assert put(world, "files", b"c" * 400).status_code == 204
    world.app.state.uploads = UploadQuota(1_000)
    assert put(world, "files", b"d").status_code == 422, "a new process counts what is there"


def test_an_upload_that_fails_takes_no_room(world: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    quota = UploadQuota(1_000)
    pool = open_upload_pool(world.broker, Actor("mia"))
    for _ in range(3):
        with pytest.raises(OSError, match="disk"), quota.taken("mia", pool, 900):
            raise OSError("disk")
    with quota.taken("mia", pool, 1_000):
        pass
