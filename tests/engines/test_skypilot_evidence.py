"""Who ended a machine: the cloud's word makes an interruption, never the node's. On the stand-in of the SDK, and the
words of EC2 from its codes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from moto import mock_aws

from broker.core.errors import LoginMissing, Unreachable
from broker.core.ports import EngineState, Observation
from broker.engines.skypilot import aftermath
from broker.engines.skypilot.evidence import CloudVerdict
from broker.engines.skypilot.machine_ends import aws_end, aws_statement, statement_about
from tests.contracts.engine_bench import Bench, eventually
from tests.engines.skypilot_bench import bench_on, offer, placed
from tests.fakes import skypilot as fake


@pytest.fixture
def bench(tmp_path: Path, sky: fake.Sky) -> Bench:
    return bench_on(tmp_path, sky)


def gone_by_itself(bench: Bench, sky: fake.Sky, cloud: str = "aws") -> Observation:
    """A job that ends its own agent, whose machine SkyPilot then takes down."""
    bench.doomed = placed(offer(cloud))
    handle = bench.doomed_one()
    for process in sky._clusters[handle.rpartition(":")[2]].processes():
        with contextlib.suppress(psutil.Error):
            if any(word.endswith("agent.pyz") for word in process.cmdline()):
                process.kill()
    return bench.until(handle, EngineState.GONE)


@pytest.mark.system
def test_a_job_that_ends_its_own_agent_was_not_interrupted_and_has_failed(bench: Bench, sky: fake.Sky) -> None:
    gone = gone_by_itself(bench, sky)
    assert (gone.interrupted, gone.own_end) == (False, True), gone.evidence
    assert "the cloud: on request" in gone.evidence


@pytest.mark.system
def test_where_no_cloud_can_be_asked_it_is_billed_and_counts_without_a_checkpoint(bench: Bench, sky: fake.Sky) -> None:
    gone = gone_by_itself(bench, sky, "lambda")
    assert (gone.interrupted, gone.own_end) == (False, True), gone.evidence
    assert "its cloud is not asked who ended it" in gone.evidence


def kept(bench: Bench, handle: str) -> None:
    key = handle.rpartition(":")[2]
    journal = bench.folder / "runs" / key.removesuffix("-1") / "attempts" / "1" / "journal.json"
    document = json.loads(journal.read_text())
    saved = {"at": "2026-01-01T00:00:00Z", "kind": "checkpoint_saved", "checkpoint": "000001", "step": 1, "size": 10}
    document["entries"].append(saved)
    journal.write_text(json.dumps(document))


def vanish(bench: Bench, sky: fake.Sky, handle: str) -> Observation:
    """Its machine is gone, and nobody says that it was taken."""
    sky.take_away(handle.rpartition(":")[2])
    sky._taken.clear()
    return bench.until(handle, EngineState.GONE)


@pytest.mark.system
def test_where_no_cloud_can_be_asked_a_job_that_got_on_is_placed_again_and_billed(bench: Bench, sky: fake.Sky) -> None:
    bench.doomed = placed(offer("lambda"))
    handle = bench.doomed_one()
    kept(bench, handle)
    gone = vanish(bench, sky, handle)
    assert (gone.interrupted, gone.own_end) == (False, False), gone.evidence


@pytest.mark.system
def test_against_the_clouds_word_no_checkpoint_helps(bench: Bench, sky: fake.Sky) -> None:
    handle = bench.doomed_one()
    kept(bench, handle)
    gone = vanish(bench, sky, handle)
    assert (gone.interrupted, gone.own_end) == (False, True), gone.evidence


@pytest.mark.parametrize(
    ("announced", "saved", "own_end"), [(True, False, False), (False, True, False), (False, False, True)]
)
def test_a_node_that_calls_its_end_an_interruption_is_believed_as_far_as_the_cloud_announced_it_or_it_got_on(
    bench: Bench, sky: fake.Sky, announced: bool, saved: bool, own_end: bool
) -> None:
    """It is billed in any case: it ended before it was taken."""
    handle = bench.doomed_one()
    key = handle.rpartition(":")[2]
    if announced:
        sky.announced.add(key)
    if saved:
        kept(bench, handle)
    ending = {"cause": "preempted", "at": "2026-01-01T00:00:00Z", "evidence": "notice from ec2"}
    (bench.folder / "runs" / key.removesuffix("-1") / "attempts" / "1" / "exit.json").write_text(json.dumps(ending))
    bench.engine.cancel(handle)  # as the reconciler does with what has ended
    gone = bench.until(handle, EngineState.GONE)
    assert (gone.interrupted, gone.own_end) == (False, own_end), gone.evidence


@pytest.mark.system
def test_a_machine_that_was_taken_before_we_ended_it_is_an_interruption(bench: Bench, sky: fake.Sky) -> None:
    """Its agent fell silent, so we took it down; the cloud had taken it, and bills none of it."""
    handle = bench.doomed_one()
    sky._taken.add(handle.rpartition(":")[2])
    bench.engine.cancel(handle)
    gone = bench.until(handle, EngineState.GONE)
    assert (gone.interrupted, gone.own_end) == (True, False), gone.evidence


@pytest.mark.system
def test_a_cloud_that_does_not_answer_is_asked_again_and_not_for_ever(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.doomed_one()
    sky.words_trouble = Unreachable("EC2 cannot be reached")
    sky.take_away(handle.rpartition(":")[2])
    eventually(lambda: "gone, and EC2 cannot be reached" in bench.look(handle).evidence, "it is asked")
    assert bench.look(handle).state is EngineState.UP
    monkeypatch.setattr(aftermath, "_ASK_AGAIN", aftermath._ASK_AGAIN * 0)
    gone = bench.until(handle, EngineState.GONE)
    assert (gone.interrupted, gone.own_end) == (False, True), "without the cloud's word it is none"


@pytest.mark.system
def test_a_machine_that_skypilot_lost_and_the_cloud_has_is_ended_and_billed_until_then(
    bench: Bench, sky: fake.Sky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SkyPilot gives a launch up while its machine cannot be found yet, and then ends nothing."""
    handle = bench.doomed_one()
    sky.lose(handle.rpartition(":")[2])
    eventually(lambda: "does not know that yet" in bench.look(handle).evidence, "the cloud is asked")
    assert bench.look(handle).state is EngineState.UP, "it may be about to end"
    assert sky._lost
    last_seen = datetime.now(UTC)
    bench.look(handle)
    monkeypatch.setattr(aftermath, "_LOST_AFTER", aftermath._LOST_AFTER * 0)
    gone = bench.until(handle, EngineState.GONE)
    assert not sky._lost
    assert gone.gone_at is not None
    assert gone.gone_at >= last_seen, "it is billed as long as it ran"
    assert not gone.interrupted


@pytest.mark.system
def test_a_login_that_may_not_ask_is_no_word_of_the_cloud(bench: Bench, sky: fake.Sky) -> None:
    handle = bench.doomed_one()
    sky.words_trouble = LoginMissing("EC2 refuses the request: UnauthorizedOperation")
    sky.take_away(handle.rpartition(":")[2])
    gone = bench.until(handle, EngineState.GONE)
    assert not gone.interrupted
    assert "UnauthorizedOperation" in gone.evidence


# --- EC2 ------------------------------------------------------------------------------------------------------------


def machine(state: str, reason: str = "", request: str = "") -> dict[str, Any]:
    return {"State": {"Name": state}, "StateReason": {"Code": reason}, "SpotInstanceRequestId": request}


@pytest.mark.parametrize(
    ("machines", "statuses", "says"),
    [
        ([machine("terminated", "Server.SpotInstanceTermination")], {}, CloudVerdict.TAKEN),
        ([machine("shutting-down", "Server.SpotInstanceShutdown")], {}, CloudVerdict.TAKEN),
        ([machine("terminated", "", "sir-1")], {"sir-1": "instance-terminated-no-capacity"}, CloudVerdict.TAKEN),
        ([machine("terminated", "", "sir-1")], {"sir-1": "instance-terminated-by-user"}, CloudVerdict.UNKNOWN),
        ([machine("terminated", "Server.InternalError")], {}, CloudVerdict.BROKE),
        ([machine("terminated", "Client.UserInitiatedShutdown")], {}, CloudVerdict.ASKED_FOR),
        ([machine("stopped", "Client.InstanceInitiatedShutdown")], {}, CloudVerdict.ASKED_FOR),
        ([machine("running", "", "sir-1")], {"sir-1": "marked-for-termination"}, CloudVerdict.ANNOUNCED),
        ([machine("running", "", "sir-1")], {"sir-1": "fulfilled"}, CloudVerdict.RUNS),
        ([], {}, CloudVerdict.UNKNOWN),
        # A gang: one was taken, so the other was ended.
        (
            [
                machine("terminated", "Client.UserInitiatedShutdown"),
                machine("terminated", "Server.SpotInstanceTermination"),
            ],
            {},
            CloudVerdict.TAKEN,
        ),
    ],
)
def test_the_words_of_ec2(machines: list[dict[str, Any]], statuses: dict[str, str], says: CloudVerdict) -> None:
    assert statement_about(machines, statuses).verdict is says


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield boto3.client("ec2", region_name="us-east-1")


def started(account: Any, key: str) -> str:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "gpubroker", "Value": key}]}]
    made = account.run_instances(ImageId="ami-1e749f67", MinCount=1, MaxCount=1, TagSpecifications=tags)
    return str(made["Instances"][0]["InstanceId"])


def test_only_the_machines_of_the_key_are_ended(account: Any) -> None:
    started(account, "train-1")
    started(account, "train-2")
    aws_end("train-1", "us-east-1")
    aws_end("train-1", "us-east-1")
    aws_end("train-3", "us-east-1")
    assert aws_statement("train-1", "us-east-1").verdict is CloudVerdict.ASKED_FOR
    assert aws_statement("train-2", "us-east-1").verdict is CloudVerdict.RUNS


def test_ec2_is_asked_by_the_tag_of_the_key(account: Any) -> None:
    mine = started(account, "train-1")
    started(account, "train-2")
    assert aws_statement("train-1", "us-east-1").verdict is CloudVerdict.RUNS
    account.terminate_instances(InstanceIds=[mine])
    assert aws_statement("train-1", "us-east-1").verdict is CloudVerdict.ASKED_FOR
    assert aws_statement("train-2", "us-east-1").verdict is CloudVerdict.RUNS
    assert aws_statement("train-3", "us-east-1").verdict is CloudVerdict.UNKNOWN


@pytest.mark.parametrize(
    ("code", "kind"), [("RequestLimitExceeded", Unreachable), ("UnauthorizedOperation", LoginMissing)]
)
def test_what_ec2_refuses_is_classed(code: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    class RefusingSession:
        def client(self, *_: object, **__: object) -> RefusingSession:
            return self

        def describe_instances(self, **_: object) -> None:
            raise ClientError({"Error": {"Code": code, "Message": "x"}}, "DescribeInstances")

    monkeypatch.setattr(boto3, "Session", RefusingSession)
    with pytest.raises(kind):
        aws_statement("train-1", "us-east-1")
