"""Calls to EC2 with the AWS login on this machine, which must be for the account that SkyPilot's API server uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.core.errors import LoginMissing, MissingExtra, Unreachable


def ec2(region: str, operation: str, needed_for: str, **parameters: Any) -> Mapping[str, Any]:
    """One call, by EC2's name of the operation (``DescribeInstances``). Raises `MissingExtra` without boto3,
    `LoginMissing` without a login, or if AWS rejects it or does not permit the call, and `Unreachable` if AWS does not
    answer or asks for fewer calls. None of these ends a job."""
    where = f"aws {region} {operation}"
    hint = (
        f"{needed_for} needs the AWS login that SkyPilot uses, with permission for ec2:{operation}; "
        "`aws sts get-caller-identity` shows the present one"
    )
    try:
        import boto3
        from botocore import xform_name  # type: ignore[import-untyped]  # ships no types
        from botocore.config import Config  # type: ignore[import-untyped]  # ships no types
        from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError  # type: ignore[import-untyped]  # ships no types
    except ImportError as error:
        raise MissingExtra("skypilot", f"{needed_for} on AWS") from error
    try:
        patience = Config(connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 2})
        client = boto3.Session().client("ec2", region_name=region, config=patience)
        answer: Mapping[str, Any] = getattr(client, xform_name(operation))(**parameters)
    except (ConnectionError, HTTPClientError) as error:
        raise Unreachable("EC2 cannot be reached", where=where, hint="check the network") from error
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) >= 500 or "Limit" in code:
            raise Unreachable(f"EC2 answers {code}", where=where) from error
        raise LoginMissing(f"EC2 refuses the request: {code}", where=where, hint=hint) from error
    except BotoCoreError as error:
        raise LoginMissing(f"there is no usable AWS login: {type(error).__name__}", where=where, hint=hint) from error
    return answer


class AwsZones:
    """Asks EC2 once per region and caches the answer: an account's zone names do not change."""

    def __init__(self) -> None:
        self._known: dict[str, Mapping[str, str]] = {}

    def __call__(self, region: str) -> Mapping[str, str]:
        """Names by zone ID. Raises what `ec2` raises."""
        if region not in self._known:
            zones = ec2(region, "DescribeAvailabilityZones", "the launch").get("AvailabilityZones") or ()
            self._known[region] = {zone["ZoneId"]: zone["ZoneName"] for zone in zones if "ZoneId" in zone}
        return self._known[region]
