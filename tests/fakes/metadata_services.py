"""The metadata services of AWS, Google Cloud and Azure, for interruption notices only: small, and as strict about
headers as the real ones. ``taken``: set to the time (UTC) at which the machine ends, to make them announce it.
"""

from datetime import UTC, datetime
from email.utils import format_datetime

from tests.fakes.server import HttpAnswer, HttpRequest

_NOT_FOUND = HttpAnswer(404, b"not found")


class AwsMetadata:
    """IMDSv2 only: without a token from PUT /latest/api/token every request returns 401."""

    def __init__(self) -> None:
        self.taken: datetime | None = None
        self.rebalance = False
        self.token = "AQAE-one"

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if request.path == "/latest/api/token":
            lifetime = request.headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
            good = request.method == "PUT" and lifetime.isdecimal() and 1 <= int(lifetime) <= 21600
            return HttpAnswer(200, self.token.encode()) if good else HttpAnswer(400, b"bad request")
        if request.headers.get("x-aws-ec2-metadata-token") != self.token:
            return HttpAnswer(401, b"unauthorized")
        if request.path == "/latest/meta-data/spot/instance-action" and self.taken:
            return HttpAnswer(200, {"action": "terminate", "time": f"{self.taken:%Y-%m-%dT%H:%M:%SZ}"})
        if request.path == "/latest/meta-data/events/recommendations/rebalance" and self.rebalance:
            return HttpAnswer(200, {"noticeTime": "2026-11-21T12:00:00Z"})
        return _NOT_FOUND


class GcpMetadata:
    """Answers only requests with ``Metadata-Flavor: Google``."""

    def __init__(self) -> None:
        self.taken: datetime | None = None

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if request.headers.get("metadata-flavor") != "Google":
            return HttpAnswer(403, b"missing Metadata-Flavor")
        if request.path == "/computeMetadata/v1/instance/preempted":
            return HttpAnswer(200, b"TRUE" if self.taken else b"FALSE", {"Metadata-Flavor": "Google"})
        return _NOT_FOUND


class AzureMetadata:
    """Scheduled Events of a group of two machines, of which this is one."""

    def __init__(self, name: str = "trainer_0") -> None:
        self.taken: datetime | None = None
        self.name = name
        self.event = "Preempt"
        self.whose = name

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if request.headers.get("metadata") != "true" or "api-version" not in request.query:
            return HttpAnswer(400, b"bad request")
        if request.path == "/metadata/instance/compute/name":
            return HttpAnswer(200, self.name.encode())
        if request.path != "/metadata/scheduledevents":
            return _NOT_FOUND
        event = {
            "EventId": "C7061BAC-AFDC-4513-B24B-AA5F13A16123",
            "EventType": self.event,
            "ResourceType": "VirtualMachine",
            "Resources": [self.whose],
            "EventStatus": "Scheduled",
            "NotBefore": format_datetime(self.taken.astimezone(UTC), usegmt=True) if self.taken else "",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        }
        return HttpAnswer(200, {"DocumentIncarnation": 2, "Events": [event] if self.taken else []})
