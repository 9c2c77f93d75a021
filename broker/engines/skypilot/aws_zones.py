"""Zone names of the AWS account that launches, by zone ID: ``use1-az6`` is ``us-east-1a`` for one account only."""

from __future__ import annotations

from collections.abc import Mapping

from broker.engines.skypilot.aws_calls import ec2


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
