"""What a node may do in the bucket, judged by an evaluator of IAM policies; and when its credentials are renewed."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.agent.access import ACCESS_VARIABLE, unseal
from broker.core.errors import RetryLater
from broker.core.job.jobs import Job, Predecessor
from broker.core.job.snapshots import FileSnapshot, TreeCopy
from broker.core.values.clock import ManualClock
from broker.engines.runfolder.attempt_keys import AttemptKeys
from broker.engines.runfolder.node_access import policy
from broker.engines.runfolder.run_folders import RunFolders
from tests.engines.runfolder.test_runfolder import NOW, view_of

BUCKET = "arn:aws:s3:::runs"


def job(**given: Any) -> Job:
    snapshot = FileSnapshot(pool="snapshots-ann", trees=(TreeCopy(tree="t", to="", source="here", files=1, size=1),))
    return Job(name="n", run="true", snapshot=snapshot, **given)


def allowed(action: str, resource: str, about: Job, url: str = "s3://runs/team") -> bool:
    """By moto's evaluation, which leaves conditions aside."""
    control = pytest.importorskip("moto.iam.access_control", reason="moto is not installed (the extra `dev`)")
    judged = control.IAMPolicy(json.dumps(policy(url, "abc-1", about))).is_action_permitted(action, resource)
    return bool(judged == control.PermissionResult.PERMITTED)


@pytest.mark.parametrize("action", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"])
def test_a_node_reads_and_writes_its_own_job(action: str) -> None:
    assert allowed(action, f"{BUCKET}/team/abc-1/attempts/1/heartbeat.json", job())
    for other in ("abc-12/attempts/1/lease.json", "abc/checkpoints/x", "sealed/x.json", "abc-1"):
        assert not allowed(action, f"{BUCKET}/team/{other}", job())
    assert not allowed(action, f"{BUCKET}/abc-1/x", job())
    assert not allowed(action, "arn:aws:s3:::other/team/abc-1/x", job())


def test_it_reads_what_its_job_takes_and_writes_none_of_it() -> None:
    about = job(after=(Predecessor(job="data", inputs=("*",), folder="data"), Predecessor(job="gate")))
    for path in ("snapshots-ann/trees/t", "data/attempts/1/outputs/x"):
        assert allowed("s3:GetObject", f"{BUCKET}/team/{path}", about)
        assert not allowed("s3:PutObject", f"{BUCKET}/team/{path}", about)
    assert not allowed("s3:GetObject", f"{BUCKET}/team/gate/attempts/1/outputs/x", about), "it takes nothing of it"
    assert not allowed("s3:PutBucketPolicy", BUCKET, about)


def test_it_lists_no_more_than_it_reads() -> None:
    listing = policy("s3://runs/team/deep/", "abc-1", job())["Statement"][-1]
    assert (listing["Action"], listing["Resource"]) == ("s3:ListBucket", BUCKET)
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["team/deep/abc-1/*", "team/deep/snapshots-ann/*"]}}
    assert policy("s3://runs", "abc-1", Job(name="n", run="true"))["Statement"][0]["Resource"] == f"{BUCKET}/abc-1/*"


class Giver:
    """Sessions of an hour, or of as many seconds as are said."""

    def __init__(self) -> None:
        self.given = 0
        self.seconds = 3600.0
        self.broken = False

    def credentials(self, job_id: str, job: Job) -> Mapping[str, str]:
        if self.broken:
            raise RetryLater("throttled")
        self.given += 1
        expires = (datetime.now(UTC) + timedelta(seconds=self.seconds)).isoformat()
        return {"access_key_id": f"{self.given}", "secret_access_key": "s", "token": "t", "expires_at": expires}


def test_a_launch_takes_credentials_along_and_they_are_renewed_in_time(tmp_path: Path) -> None:
    giver, keys = Giver(), AttemptKeys(lambda: "root")
    view = view_of(Job(name="n", run="true"))
    attempt = view.attempts[0]
    file = tmp_path / "j" / "attempts" / "1" / "access.json"

    def folders() -> RunFolders:
        return RunFolders(tmp_path.as_uri(), ManualClock(NOW), keys=keys, access=giver)

    first = folders()
    assert json.loads(first.variables(view, attempt)[ACCESS_VARIABLE])["access_key_id"] == "1"
    first.renew_access(view, attempt)
    assert not file.exists(), "not yet"
    second = folders()
    second.renew_access(view, attempt)  # a broker that begins does not know when that was
    second.renew_access(view, attempt)
    assert unseal(json.loads(file.read_text()), keys.of(attempt.key))["access_key_id"] == "2"
    assert '"s"' not in file.read_text()
    giver.seconds = 0.0
    third = folders()
    for number in ("3", "4"):
        third.renew_access(view, attempt)
        assert unseal(json.loads(file.read_text()), keys.of(attempt.key))["access_key_id"] == number
    giver.broken = True
    with pytest.raises(RetryLater):
        third.renew_access(view, attempt)
    third.renew_access(view, attempt)  # it rests after a failure


def test_without_a_role_nothing_is_given(tmp_path: Path) -> None:
    folders = RunFolders(tmp_path.as_uri(), ManualClock(NOW), keys=AttemptKeys(lambda: "root"))
    view = view_of(Job(name="n", run="true"))
    assert ACCESS_VARIABLE not in folders.variables(view, view.attempts[0])
    folders.renew_access(view, view.attempts[0])
    assert not (tmp_path / "j").exists()
