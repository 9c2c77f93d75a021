"""A node with a session of a role instead of a login of its own, on moto's S3, IAM and STS, which check signatures."""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.agent.access import ACCESS_VARIABLE
from broker.agent.aws import REGION_VARIABLE
from broker.agent.signatures import KEY_VARIABLE
from broker.core.errors import LoginMissing
from broker.core.job.jobs import Job
from broker.engines.runfolder.attempt_keys import AttemptKeys
from broker.engines.runfolder.node_access import RoleSessions
from tests.agent.node import SAVE, Node, eventually
from tests.system.object_stores import ObjectStore, s3

pytestmark = pytest.mark.system
ROLE = "arn:aws:iam::123456789012:role/nodes"
KEY = AttemptKeys(lambda: "root").of("j-1")


@dataclass
class RoleAccount:
    """The store, and what gives sessions."""

    store: ObjectStore
    sessions: RoleSessions


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[RoleAccount]:
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed (the extra `aws`)")
    with s3() as store:
        trust = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole"}]})
        rights = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
        iam = boto3.client("iam", endpoint_url=store.endpoint, region_name="us-east-1", aws_access_key_id="root",
                           aws_secret_access_key="root")  # fmt: skip
        _ask_nothing_for(store.endpoint, 1_000_000)  # while the role is made
        iam.create_role(RoleName="nodes", AssumeRolePolicyDocument=trust)
        document = json.dumps({"Version": "2012-10-17", "Statement": [rights]})
        iam.put_role_policy(RoleName="nodes", PolicyName="runs", PolicyDocument=document)
        may_assume = json.dumps({"Version": "2012-10-17", "Statement": [{**rights, "Action": "sts:*"}]})
        iam.put_user_policy(UserName="on-aws", PolicyName="nodes", PolicyDocument=may_assume)
        _ask_nothing_for(store.endpoint, 0)
        for name, value in store.first.items():
            monkeypatch.setenv(name, value)
        yield RoleAccount(store, RoleSessions(store.url, ROLE, 3600))


def _ask_nothing_for(endpoint: str, requests: int) -> None:
    """moto checks no signature of so many requests."""
    body, header = str(requests).encode(), {"Content-Type": "text/plain"}
    request = urllib.request.Request(f"{endpoint}/moto-api/reset-auth", body, header)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200


def test_a_node_saves_with_a_session_and_goes_on_with_the_next_one(account: RoleAccount, tmp_path: Path) -> None:
    first = dict(account.sessions.credentials("j", Job(name="n", run="true")))
    assert datetime.now(UTC) < datetime.fromisoformat(first["expires_at"]) <= datetime.now(UTC) + timedelta(hours=1.1)
    node = Node(tmp_path, account.store.url, clean=True)
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    script = f"{SAVE} save step_1; env | grep -c SECRET; echo up; {wait}; save step_2"
    try:
        node.spec(script, key=KEY)
        soon = (datetime.now(UTC) + timedelta(seconds=4)).isoformat()
        given = json.dumps({**first, "expires_at": soon})
        endpoint = {name: account.store.first[name] for name in ("AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP")}
        agent = node.start(env={**endpoint, REGION_VARIABLE: "us-east-1", KEY_VARIABLE: KEY, ACCESS_VARIABLE: given})
        node.until_said("up")
        assert "0" in node.output(), "the job sees no credentials"
        node.runs.write_access(1, account.sessions.credentials("j", Job(name="n", run="true")), KEY)
        eventually(lambda: "credentials last until" in node.said(), "they are renewed")
        (tmp_path / "go").touch()
        assert agent.wait(60) == 0, node.said()
    finally:
        node.close()
    assert node.saved() == [1, 2]


def test_a_role_that_cannot_be_assumed_says_what_to_do(account: RoleAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "guessed")
    with pytest.raises(LoginMissing, match="SignatureDoesNotMatch") as error:
        account.sessions.credentials("j", Job(name="n", run="true"))
    assert "GPUBROKER_RUNS_ROLE_SECONDS" in error.value.hint
    assert "guessed" not in str(error.value)
