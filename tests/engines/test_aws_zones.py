"""Zone names of an AWS account, asked of moto's EC2."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError  # type: ignore[import-untyped]
from moto import mock_aws

from broker.core.errors import BrokerError, LoginMissing, Unreachable
from broker.engines.skypilot.machine_ends import AwsZones

CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in CREDENTIALS:
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield


def test_zone_ids_are_the_accounts_own_names(account: None) -> None:
    described = boto3.client("ec2", region_name="us-east-1").describe_availability_zones()["AvailabilityZones"]
    assert AwsZones()("us-east-1") == {zone["ZoneId"]: zone["ZoneName"] for zone in described}
    assert AwsZones()("us-east-1")["use1-az6"].startswith("us-east-1")


def test_a_region_is_asked_about_once(account: None, monkeypatch: pytest.MonkeyPatch) -> None:
    zones = AwsZones()
    first = zones("us-east-1")
    monkeypatch.setattr(boto3, "Session", lambda: pytest.fail("asked again"))
    assert zones("us-east-1") == first


def refusal(code: str, status: int) -> ClientError:
    told = {"Error": {"Code": code, "Message": "key AKIASECRET"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(told, "DescribeAvailabilityZones")


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (refusal("AuthFailure", 401), LoginMissing),
        (refusal("UnauthorizedOperation", 403), LoginMissing),
        (refusal("RequestLimitExceeded", 503), Unreachable),
        (refusal("InternalError", 500), Unreachable),
        (EndpointConnectionError(endpoint_url="https://ec2"), Unreachable),
    ],
)
def test_failures_are_classed_and_tell_no_keys(
    raised: Exception, kind: type[BrokerError], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Session:
        def client(self, *_: object, **__: object) -> Session:
            return self

        def describe_availability_zones(self) -> None:
            raise raised

    monkeypatch.setattr(boto3, "Session", Session)
    with pytest.raises(kind, match="EC2") as found:
        AwsZones()("us-east-1")
    assert "AKIASECRET" not in f"{found.value} {found.value.hint}"


def test_without_a_login_the_launch_asks_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(LoginMissing, match="no usable AWS login"):
        AwsZones()("us-east-1")
