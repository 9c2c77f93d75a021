"""Zone names of the AWS account that launches, by zone ID: ``use1-az6`` is ``us-east-1a`` for one account only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.core.errors import LoginMissing, MissingExtra, Unreachable

_HINT = (
    "the launch needs the AWS login that SkyPilot uses, with permission for ec2:DescribeAvailabilityZones; "
    "`aws sts get-caller-identity` shows the present one"
)


class AwsZones:
    """Asks EC2 once per region and keeps the answer: an account's zone names do not change. It uses the AWS login on
    this machine, which must be for the account that SkyPilot's API server uses."""

    def __init__(self) -> None:
        self._known: dict[str, Mapping[str, str]] = {}

    def __call__(self, region: str) -> Mapping[str, str]:
        """Names by zone ID. Raises `MissingExtra` without boto3, `LoginMissing` without a login or if AWS rejects it,
        `Unreachable` if AWS does not answer. None of these ends a job."""
        if region not in self._known:
            zones = _described(region)
            self._known[region] = {zone["ZoneId"]: zone["ZoneName"] for zone in zones if "ZoneId" in zone}
        return self._known[region]


def _described(region: str) -> list[dict[str, Any]]:
    where = f"aws {region} DescribeAvailabilityZones"
    try:
        import boto3
        from botocore.exceptions import (  # type: ignore[import-untyped]  # ships no types
            BotoCoreError,
            ClientError,
            ConnectionError,
            HTTPClientError,
        )
    except ImportError as error:
        raise MissingExtra("skypilot", "launching on AWS") from error
    try:
        answer = boto3.Session().client("ec2", region_name=region).describe_availability_zones()
    except (ConnectionError, HTTPClientError) as error:
        raise Unreachable("EC2 cannot be reached", where=where, hint="check the network") from error
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) >= 500 or "Limit" in code:
            raise Unreachable(f"EC2 answers {code}", where=where) from error
        raise LoginMissing(f"EC2 refuses the request: {code}", where=where, hint=_HINT) from error
    except BotoCoreError as error:
        raise LoginMissing(f"there is no usable AWS login: {type(error).__name__}", where=where, hint=_HINT) from error
    zones: list[dict[str, Any]] = answer.get("AvailabilityZones") or []
    return zones
