"""Who ended machines, and the end of machines that SkyPilot lost, by Compute Engine.

Its operation ``compute.instances.preempted`` remains for two weeks after the machine. The project is that of the Google
login on this machine, which must be the one that SkyPilot's API server uses.

Operations: Google Cloud, Compute Engine documentation, "Preemptible VM instances" and the sample of an instance's
preemption history; states and types: reference of the API, resources Instance and Operation. Read 2026-11-25.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

from broker.core.errors import BrokerError, LoginMissing, MissingExtra, Unreachable
from broker.core.market.capacity import TAG
from broker.engines.skypilot.evidence import GCP, CloudStatement, CloudVerdict, name_on_cloud
from broker.engines.skypilot.task import cluster_name

_WHERE = "gcp compute"
_TIMEOUT = 30.0  # seconds
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
_EXISTING = ("PROVISIONING", "STAGING", "RUNNING", "REPAIRING")


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
    if any(record.kind in _EXISTING for record in instances):
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
        pages = self._listed("InstancesClient", f'labels.{label} = "{value}"')
        return [
            GcpRecord(instance.name, instance.status, instance.zone.rpartition("/")[2])
            for _, page in pages
            for instance in page.instances
        ]

    def operations(self, kind: str) -> Sequence[GcpRecord]:
        pages = self._listed("GlobalOperationsClient", f'operationType = "{kind}"')
        operations = [operation for _, page in pages for operation in page.operations]
        return [
            GcpRecord(operation.target_link.rpartition("/instances/")[2], operation.operation_type)
            for operation in operations
        ]

    def delete(self, machine: GcpRecord) -> None:
        request = {"project": self._project, "zone": machine.zone, "instance": machine.name}
        try:
            self._client("InstancesClient").delete_unary(request=request, retry=None, timeout=_TIMEOUT)
        except self._problems as error:
            if getattr(error, "code", None) != HTTPStatus.NOT_FOUND:
                raise _to_broker_error(error) from error

    def _listed(self, client: str, query: str) -> Iterable[tuple[str, Any]]:
        try:
            request = {"project": self._project, "filter": query}
            return list(self._client(client).aggregated_list(request=request, retry=None, timeout=_TIMEOUT))
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
    return Unreachable(f"Compute Engine does not answer: {type(error).__name__}", where=_WHERE)


def _login_error(message: str) -> LoginMissing:
    hint = (
        "who ended a machine is asked, and a lost machine ended, with the Google login that SkyPilot uses, with the "
        "permissions compute.instances.list, compute.instances.delete and compute.globalOperations.list; "
        "`gcloud auth application-default login` makes one"
    )
    return LoginMissing(message, where=_WHERE, hint=hint)
