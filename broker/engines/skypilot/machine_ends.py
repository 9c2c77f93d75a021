"""Who ended machines, by the records of their clouds.

EC2: their ``StateReason``, and the status of their spot requests. They are found by the tag of every machine of
gpubroker; EC2 forgets a terminated machine after about an hour. Codes: AWS, API reference of EC2, StateReason; User
guide of EC2, Spot request status.

Kubernetes: the events of the cluster, which are kept for an hour, and the pod itself while it ends. The scheduler
reports that it preempted a pod for one of a higher priority class; the node controllers and the kubelet report that a
node failed or lacked room. After a drain, only the state of its node (it accepts no pods) differs from that after an
ordinary deletion. Reasons: reference of the API, Pod conditions (DisruptionTarget, from 1.26 on), and the events of
kube-scheduler, the taint manager and the kubelet.

Compute Engine: its operation ``compute.instances.preempted`` remains for two weeks after the machine. The project is
that of the Google login on this machine, which must be the one that SkyPilot's API server uses. Operations: Compute
Engine documentation, "Preemptible VM instances" and the sample of an instance's preemption history; states and types:
reference of the API, resources Instance and Operation.

All read 2026-11-25.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

from broker.core.errors import BrokerError, LoginMissing, MissingExtra, Unreachable
from broker.core.market.capacity import TAG
from broker.engines.skypilot.evidence import GCP, KUBERNETES, CloudStatement, CloudVerdict, name_on_cloud
from broker.engines.skypilot.task import cluster_name

_EC2_TAKEN_REASONS = frozenset({"Server.SpotInstanceTermination", "Server.SpotInstanceShutdown"})
_EC2_BROKE_REASONS = frozenset({"Server.InternalError", "Server.ScheduledStop"})
# Status codes of spot requests. If the account itself ends a machine after the announcement, its code is
# ``instance-terminated-by-user``.
_EC2_ANNOUNCED_STATUS = frozenset({"marked-for-termination", "marked-for-stop"})
_EC2_TAKEN_STATUS = frozenset(
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
_EC2_EXISTING = ("pending", "running")
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
        {"Name": "instance-state-name", "Values": [*_EC2_EXISTING, "stopping", "stopped"]},
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
    return min(statements, key=lambda statement: _ORDER.index(statement.verdict), default=unknown)


def _statement_of(machine: Mapping[str, Any], status: str) -> CloudStatement:
    reason = str((machine.get("StateReason") or {}).get("Code") or "")
    state = str((machine.get("State") or {}).get("Name") or "")
    if state in _EC2_EXISTING:
        says = CloudVerdict.ANNOUNCED if status in _EC2_ANNOUNCED_STATUS else CloudVerdict.RUNS
        return CloudStatement(says, f"EC2: {status if says is CloudVerdict.ANNOUNCED else state}")
    if reason in _EC2_TAKEN_REASONS or status in _EC2_TAKEN_STATUS:
        return CloudStatement(CloudVerdict.TAKEN, f"EC2: {reason if reason in _EC2_TAKEN_REASONS else status}")
    if reason in _EC2_BROKE_REASONS:
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


_KUBECTL_TIMEOUT = 30.0
_ANSWER_WITHIN = "10s"
_KUBECTL_WHERE = "kubernetes"
# Reasons of a pod's condition DisruptionTarget, and of its status.
_TAKEN_CONDITIONS = frozenset({"PreemptionByScheduler", "EvictionByEvictionAPI"})
_BROKE_CONDITIONS = frozenset({"DeletionByTaintManager", "DeletionByPodGC", "TerminationByKubelet", "NodeLost"})
# Reasons of events about a pod.
_TAKEN_EVENTS = frozenset({"Preempted"})
_BROKE_EVENTS = frozenset({"TaintManagerEviction", "NodeNotReady"})
_ASSIGNED = re.compile(r"Successfully assigned \S+ to (\S+)")

KubectlList = Callable[[str, Sequence[str]], list[Any]]
"""The items that kubectl lists in a context."""


def kubernetes_statement(key: str, context: str, list_items: KubectlList | None = None) -> CloudStatement:
    """The statement of the cluster of that context about the pods of a key.

    Raises `Unreachable` if it does not answer, `LoginMissing` without the rights to list pods, events and nodes.
    ``list_items``: for tests.
    """
    query = list_items or kubectl_list
    pods = query(context, ["pods", "--all-namespaces", f"--selector={TAG}={key}"])
    if any(_is_running(item) for item in pods):
        return CloudStatement(CloudVerdict.RUNS, "Kubernetes: the pod runs")
    event_query = ["events", "--all-namespaces", "--field-selector=involvedObject.kind=Pod"]
    events = [item for item in query(context, event_query) if _is_about(item, key)]
    reasons = [str(item.get("reason")) for item in events]
    statements = [*map(_pod_statement, pods), _statement_from(reasons, _TAKEN_EVENTS, _BROKE_EVENTS)]
    names = _nodes(pods, events)
    return next(filter(None, statements), None) or _node_statement(names, query(context, ["nodes"]) if names else [])


def kubectl_list(context: str, words: Sequence[str]) -> list[Any]:
    """Raises `Unreachable` and `LoginMissing`."""
    hint = "who ended a pod is asked with kubectl: it takes the rights to list pods, events and nodes"
    command = ["kubectl", f"--context={context}", f"--request-timeout={_ANSWER_WITHIN}", "get", *words, "--output=json"]
    try:
        result = subprocess.run(  # noqa: S603 (a fixed command; no shell reads its arguments)
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_KUBECTL_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Unreachable(f"kubectl did not answer within {_KUBECTL_TIMEOUT:.0f} s", where=_KUBECTL_WHERE) from error
    except OSError as error:
        raise LoginMissing(
            f"kubectl cannot be run: {error.strerror or error}", where=_KUBECTL_WHERE, hint=hint
        ) from error
    error_text = " ".join(result.stderr.split())[:300]
    if result.returncode and re.search(r"\b(Forbidden|Unauthorized|does not exist|must be logged in)\b", error_text):
        raise LoginMissing(error_text, where=_KUBECTL_WHERE, hint=hint)
    try:
        items = json.loads(result.stdout)["items"] if not result.returncode else None
    except (ValueError, KeyError, TypeError):
        items = None
    if not isinstance(items, list):
        raise Unreachable(f"kubectl: {error_text or 'no list'}", where=_KUBECTL_WHERE)
    return items


def _is_running(pod: Mapping[str, Any]) -> bool:
    ending = (pod.get("metadata") or {}).get("deletionTimestamp") is not None
    return not ending and (pod.get("status") or {}).get("phase") in ("Pending", "Running")


def _pod_statement(pod: Mapping[str, Any]) -> CloudStatement | None:
    """The statement of a pod that is ending about itself."""
    status = pod.get("status") or {}
    targets = [condition for condition in status.get("conditions") or () if condition.get("type") == "DisruptionTarget"]
    reasons = [str(condition.get("reason")) for condition in targets] + [str(status.get("reason") or "")]
    return _statement_from(reasons, _TAKEN_CONDITIONS, _BROKE_CONDITIONS)


def _statement_from(
    reasons: Sequence[str], taken_reasons: frozenset[str], broke: frozenset[str]
) -> CloudStatement | None:
    for known_reasons, says in ((taken_reasons, CloudVerdict.TAKEN), (broke, CloudVerdict.BROKE)):
        for reason in reasons:
            if reason in known_reasons:
                return CloudStatement(says, f"Kubernetes: {reason}")
    return None


def _is_about(event: Mapping[str, Any], key: str) -> bool:
    """Whether the event is about a pod of the key.

    A pod that is gone has no labels any more; its name consists of SkyPilot's name of the cluster, a hash of SkyPilot's
    user, and its role in the cluster.
    """
    name = str((event.get("involvedObject") or {}).get("name") or "")
    return (
        re.fullmatch(rf"{re.escape(name_on_cloud(cluster_name(key), KUBERNETES))}-[0-9a-z]{{8}}-(head|worker\d*)", name)
        is not None
    )


def _nodes(pods: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> set[str]:
    names = {str((pod.get("spec") or {}).get("nodeName") or "") for pod in pods}
    for event in events:
        if assigned := _ASSIGNED.search(str(event.get("message") or "")):
            names.add(assigned[1])
    return names - {""}


def _node_statement(names: set[str], nodes: Sequence[Mapping[str, Any]]) -> CloudStatement:
    """The statement about nodes: a deleted pod was ended on request, unless its node is being drained or is gone."""
    nodes_by_name = {str(node["metadata"]["name"]): node for node in nodes}
    for name in sorted(names):
        if name not in nodes_by_name:
            return CloudStatement(CloudVerdict.TAKEN, f"Kubernetes: node {name} is gone")
        if (nodes_by_name[name].get("spec") or {}).get("unschedulable"):
            return CloudStatement(CloudVerdict.TAKEN, f"Kubernetes: node {name} is cordoned")
    if not names:
        return CloudStatement(CloudVerdict.UNKNOWN, "Kubernetes has no record of the pod any more")
    return CloudStatement(CloudVerdict.ASKED_FOR, "Kubernetes: the pod was deleted, and no event says why")


_GCP_WHERE = "gcp compute"
_GCP_TIMEOUT = 30.0  # seconds
_PREEMPTED = "compute.instances.preempted"
# By type of operation, the most informative about the end first.
_VERDICTS: Mapping[str, CloudVerdict] = {
    _PREEMPTED: CloudVerdict.TAKEN,
    "compute.instances.hostError": CloudVerdict.BROKE,
    "compute.instances.automaticRestart": CloudVerdict.BROKE,
    "delete": CloudVerdict.ASKED_FOR,
    "stop": CloudVerdict.ASKED_FOR,
    "compute.instances.guestTerminate": CloudVerdict.ASKED_FOR,
}
_GCP_EXISTING = ("PROVISIONING", "STAGING", "RUNNING", "REPAIRING")


@dataclass(frozen=True, slots=True)
class GcpRecord:
    """An instance, with its ``status`` and zone, or an operation on one, with its type. ``name``: the instance's."""

    name: str
    kind: str
    zone: str = ""


class GcpRecords(Protocol):
    """The queries to Compute Engine. They raise `Unreachable` and `LoginMissing`."""

    def instances(self, label: str, value: str) -> Sequence[GcpRecord]:
        """The instances with that label."""

    def operations(self, kind: str) -> Sequence[GcpRecord]:
        """The operations of that type on instances, in all zones."""

    def delete(self, machine: GcpRecord) -> None:
        """Request the end of a machine. Idempotent."""


def gcp_statement(key: str, region: str, make: Callable[[], GcpRecords] | None = None) -> CloudStatement:
    """Compute Engine's statement about the machines of that key.

    ``make``: for tests. Raises `Unreachable`, `LoginMissing` and `MissingExtra`.
    """
    records = (make or ComputeEngine)()
    instances = records.instances(TAG, key)
    if any(record.kind in _GCP_EXISTING for record in instances):
        return CloudStatement(CloudVerdict.RUNS, "Compute Engine: the machine runs")
    name_pattern = re.compile(
        rf"{re.escape(name_on_cloud(cluster_name(key), GCP))}-[0-9a-z]{{8}}-(head|worker)-[0-9a-z]+-\w+"
    )
    for kind, says in _VERDICTS.items():
        if any(name_pattern.fullmatch(record.name) for record in records.operations(kind)):
            return CloudStatement(says, f"Compute Engine: {kind}")
    return CloudStatement(CloudVerdict.UNKNOWN, "Compute Engine has no record of its end")


def gcp_end(key: str, region: str, make: Callable[[], GcpRecords] | None = None) -> None:
    """End the machines of that key, including stopped ones: their disks are billed.

    Idempotent. ``make``: for tests. Raises what `gcp_statement` raises.
    """
    records = (make or ComputeEngine)()
    for machine in records.instances(TAG, key):
        if machine.kind != "STOPPING":
            records.delete(machine)


class ComputeEngine:
    """Google's API for one project, through its SDK."""

    def __init__(self, credentials: Any = None, project: str = "", endpoint: str = "") -> None:
        """``credentials`` and ``project``: default to those of the login on this machine.

        ``endpoint``: replaces Google's, for tests. Raises `MissingExtra` and `LoginMissing`.
        """
        try:
            import google.auth
            from google.api_core.exceptions import GoogleAPIError
            from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
            from google.cloud import compute_v1
            from requests import RequestException
        except ImportError as error:
            raise MissingExtra("gcp", "asking who ended a machine on Google Cloud") from error
        if credentials is None:
            try:
                credentials, default_project = google.auth.default()
            except DefaultCredentialsError as error:
                raise _login_error("there is no usable Google login") from error
            project = project or default_project or ""
        if not project:
            raise _login_error("the Google login names no project")
        self._sdk, self._credentials, self._project = compute_v1, credentials, project
        self._endpoint = endpoint
        self._problems = (GoogleAPIError, GoogleAuthError, RequestException)

    def instances(self, label: str, value: str) -> Sequence[GcpRecord]:
        pages = self._list_pages("InstancesClient", f'labels.{label} = "{value}"')
        return [
            GcpRecord(instance.name, instance.status, instance.zone.rpartition("/")[2])
            for _, page in pages
            for instance in page.instances
        ]

    def operations(self, kind: str) -> Sequence[GcpRecord]:
        pages = self._list_pages("GlobalOperationsClient", f'operationType = "{kind}"')
        operations = [operation for _, page in pages for operation in page.operations]
        return [
            GcpRecord(operation.target_link.rpartition("/instances/")[2], operation.operation_type)
            for operation in operations
        ]

    def delete(self, machine: GcpRecord) -> None:
        request = {"project": self._project, "zone": machine.zone, "instance": machine.name}
        try:
            self._client("InstancesClient").delete_unary(request=request, retry=None, timeout=_GCP_TIMEOUT)
        except self._problems as error:
            if getattr(error, "code", None) != HTTPStatus.NOT_FOUND:
                raise _to_broker_error(error) from error

    def _list_pages(self, client: str, query: str) -> Iterable[tuple[str, Any]]:
        try:
            request = {"project": self._project, "filter": query}
            return list(self._client(client).aggregated_list(request=request, retry=None, timeout=_GCP_TIMEOUT))
        except self._problems as error:
            raise _to_broker_error(error) from error

    def _client(self, name: str) -> Any:
        options = {"client_options": {"api_endpoint": self._endpoint}} if self._endpoint else {}
        return getattr(self._sdk, name)(credentials=self._credentials, transport="rest", **options)


def _to_broker_error(error: Exception) -> BrokerError:
    status = getattr(error, "code", None)
    if isinstance(status, int) and 400 <= status < 500 and status != 429:
        return _login_error(f"Compute Engine refuses the request: {status}")
    if type(error).__module__.startswith("google.auth") and not type(error).__name__.startswith("Transport"):
        return _login_error(f"the Google login is not accepted: {type(error).__name__}")
    return Unreachable(f"Compute Engine does not answer: {type(error).__name__}", where=_GCP_WHERE)


def _login_error(message: str) -> LoginMissing:
    hint = (
        "who ended a machine is asked, and a lost machine ended, with the Google login that SkyPilot uses, with the "
        "permissions compute.instances.list, compute.instances.delete and compute.globalOperations.list; "
        "`gcloud auth application-default login` makes one"
    )
    return LoginMissing(message, where=_GCP_WHERE, hint=hint)
