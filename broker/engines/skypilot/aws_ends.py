"""Who ended machines, by EC2: their ``StateReason``, and the status of their spot requests.

They are found by the tag of every machine of gpubroker; EC2 forgets a terminated machine after about an hour.

Codes: AWS, API reference of EC2, StateReason; User guide of EC2, Spot request status. Read 2026-11-25.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from broker.core.errors import LoginMissing, MissingExtra, Unreachable
from broker.core.market.capacity import TAG
from broker.engines.skypilot.evidence import CloudStatement, CloudVerdict

_TAKEN_REASONS = frozenset({"Server.SpotInstanceTermination", "Server.SpotInstanceShutdown"})
_BROKE_REASONS = frozenset({"Server.InternalError", "Server.ScheduledStop"})
# Status codes of spot requests. If the account itself ends a machine after the announcement, its code is
# ``instance-terminated-by-user``.
_ANNOUNCED_STATUS = frozenset({"marked-for-termination", "marked-for-stop"})
_TAKEN_STATUS = frozenset(
    {
        "instance-terminated-by-price",
        "instance-terminated-no-capacity",
        "instance-terminated-capacity-oversubscribed",
        "instance-terminated-launch-group-constraint",
        "instance-terminated-by-service",
        "instance-stopped-by-price",
        "instance-stopped-no-capacity",
    }
)
_EXISTING = ("pending", "running")
_PURPOSE = "asking who ended a machine"
# The order in which the statements about several machines count: a machine that was taken back ends its gang.
_ORDER = (
    CloudVerdict.TAKEN,
    CloudVerdict.BROKE,
    CloudVerdict.ANNOUNCED,
    CloudVerdict.RUNS,
    CloudVerdict.ASKED_FOR,
    CloudVerdict.UNKNOWN,
)


def aws_statement(key: str, region: str) -> CloudStatement:
    """EC2's statement about the machines of that key. Raises what `ec2` raises."""
    tag = [{"Name": f"tag:{TAG}", "Values": [key]}]
    answer = ec2(region, "DescribeInstances", _PURPOSE, Filters=tag)
    machines = [item for part in answer.get("Reservations") or () for item in part.get("Instances") or ()]
    requests = [str(item["SpotInstanceRequestId"]) for item in machines if item.get("SpotInstanceRequestId")]
    statuses: dict[str, str] = {}
    if requests:
        # By filter and not by id: an unknown id would raise an error.
        ids = [{"Name": "spot-instance-request-id", "Values": requests}]
        response = ec2(region, "DescribeSpotInstanceRequests", _PURPOSE, Filters=ids)
        for item in response.get("SpotInstanceRequests") or ():
            statuses[str(item.get("SpotInstanceRequestId"))] = str((item.get("Status") or {}).get("Code") or "")
    return statement_about(machines, statuses)


def aws_end(key: str, region: str) -> None:
    """End the machines of that key. Idempotent. Raises what `ec2` raises."""
    filters = [
        {"Name": f"tag:{TAG}", "Values": [key]},
        {"Name": "instance-state-name", "Values": [*_EXISTING, "stopping", "stopped"]},
    ]
    purpose = "ending a machine that SkyPilot lost"
    answer = ec2(region, "DescribeInstances", purpose, Filters=filters)
    ids = [str(item["InstanceId"]) for part in answer.get("Reservations") or () for item in part.get("Instances") or ()]
    if ids:
        ec2(region, "TerminateInstances", purpose, InstanceIds=ids)


def statement_about(machines: Sequence[Mapping[str, Any]], statuses: Mapping[str, str]) -> CloudStatement:
    """The statement about machines in the form of DescribeInstances. ``statuses``: of spot requests, by id. Pure."""
    statements = [
        _statement_of(machine, statuses.get(str(machine.get("SpotInstanceRequestId")), "")) for machine in machines
    ]
    unknown = CloudStatement(CloudVerdict.UNKNOWN, "EC2 knows no such machine any more")
    return min(statements, key=lambda statement: _ORDER.index(statement.says), default=unknown)


def _statement_of(machine: Mapping[str, Any], status: str) -> CloudStatement:
    reason = str((machine.get("StateReason") or {}).get("Code") or "")
    state = str((machine.get("State") or {}).get("Name") or "")
    if state in _EXISTING:
        says = CloudVerdict.ANNOUNCED if status in _ANNOUNCED_STATUS else CloudVerdict.RUNS
        return CloudStatement(says, f"EC2: {status if says is CloudVerdict.ANNOUNCED else state}")
    if reason in _TAKEN_REASONS or status in _TAKEN_STATUS:
        return CloudStatement(CloudVerdict.TAKEN, f"EC2: {reason if reason in _TAKEN_REASONS else status}")
    if reason in _BROKE_REASONS:
        return CloudStatement(CloudVerdict.BROKE, f"EC2: {reason}")
    if reason:
        return CloudStatement(CloudVerdict.ASKED_FOR, f"EC2: {reason}")
    return CloudStatement(CloudVerdict.UNKNOWN, f"EC2: {state}, without a reason")


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
