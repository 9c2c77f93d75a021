"""A sweep over AWS: moto's machines, found by their tags and ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from providers.aws.login import AwsLogin
from providers.aws.provider import Aws
from tests.contracts.sweeping import check_a_sweep


def test_a_sweep_ends_orphans_and_nothing_else(make: Callable[..., Aws], login: AwsLogin, tmp_path: Path) -> None:
    regions = ("us-east-1", "eu-west-1")
    started: list[str] = []

    def start(tags: Mapping[str, str]) -> None:
        client = login.client("ec2", regions[len(started) % 2])
        kind = {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        made = client.run_instances(
            ImageId="ami-12c6146b", InstanceType="g5.xlarge", MinCount=1, MaxCount=1, TagSpecifications=[kind]
        )
        started.append(made["Instances"][0]["InstanceId"])

    check_a_sweep(make(login, prices="api", regions=regions), tmp_path, start, just_started=True)
    stranger = login.client("ec2", regions[5 % 2]).describe_instances(InstanceIds=[started[5]])
    assert stranger["Reservations"][0]["Instances"][0]["State"]["Name"] == "running"
