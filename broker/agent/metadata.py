"""The metadata services of clouds, where a preemption is announced first. Queried without a login or a proxy.

| cloud | queried | notice | source |
|---|---|---|---|
| AWS | ``spot/instance-action`` with an IMDSv2 token | 2 minutes | EC2 user guide, Spot Instance interruption notices |
| Google Cloud | ``instance/preempted`` | 30 seconds | Compute Engine, Preemption process |
| Azure | Scheduled Events of type Preempt or Terminate | 30 seconds and more | Azure, Scheduled Events for Linux VMs |

AWS's rebalance recommendation is not a notice: most such machines run for hours more. It becomes a warning.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Callable

from broker.agent.clock import from_text
from broker.agent.notices import NoticeSource, PolledSource, PreemptionNotice

_TIMEOUT = 5.0  # seconds; Azure's first answer may take longer and is retried
# Minimum seconds from notice to end, as the clouds document it.
NOTICE = {"AWS": 120.0, "Google Cloud": 30.0, "Azure": 30.0}
_LARGEST = 1 << 20

Now = Callable[[], datetime]


def sources(
    now: Now,
    environment: Mapping[str, str] = os.environ,
    dmi: Path = Path("/sys/class/dmi/id"),
    hypervisor: Path = Path("/sys/hypervisor/uuid"),
) -> list[PolledSource]:
    """The sources of the cloud in which this machine runs, according to its firmware, or to a variable with the
    service's address: ``AWS_EC2_METADATA_SERVICE_ENDPOINT`` and ``GCE_METADATA_HOST`` (those of the clouds' SDKs), and
    ``GPUBROKER_AZURE_METADATA_URL`` (Azure's SDK has none). ``now``: the node's clock.
    """
    vendor = _read_text(dmi / "sys_vendor")
    polled: list[PolledSource] = []
    aws = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
    if aws or vendor == "Amazon EC2" or _is_xen_of_aws(vendor, dmi, hypervisor):
        polled.append(_source("AWS", from_aws(aws or "http://169.254.169.254")))
    gcp = environment.get("GCE_METADATA_HOST")
    if gcp or vendor == "Google":
        polled.append(_source("Google Cloud", from_gcp(f"http://{gcp or 'metadata.google.internal'}", now)))
    azure = environment.get("GPUBROKER_AZURE_METADATA_URL")
    if azure or vendor == "Microsoft Corporation":
        polled.append(_source("Azure", from_azure(azure or "http://169.254.169.254")))
    return polled


def _is_xen_of_aws(vendor: str, dmi: Path, hypervisor: Path) -> bool:
    """Whether this is an older AWS instance, such as p2, p3 or g3, on Xen, whose firmware names Xen as its vendor; its
    metadata service is the usual one of AWS. The version of the firmware contains "amazon", and the hypervisor's UUID
    begins with "ec2" (EC2 user guide, Detect whether a host is an EC2 instance).
    """
    firmware = _read_text(dmi / "bios_version").lower(), _read_text(hypervisor).lower()
    return vendor == "Xen" and ("amazon" in firmware[0] or firmware[1].startswith("ec2"))


def _source(cloud: str, poll: NoticeSource) -> PolledSource:
    return PolledSource(cloud, poll, NOTICE[cloud])


def from_aws(base: str) -> NoticeSource:
    """The source for AWS, by IMDSv2: requests a token first, and a new one when it is refused."""
    base = base.rstrip("/")
    token: list[str] = []
    warned: list[bool] = []

    def ask(path: str) -> Any | None:
        try:
            if not token:
                lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
                answer = _request(f"{base}/latest/api/token", lifetime, method="PUT")
                if answer is None:
                    return None
                token.append(answer.strip())
            text = _request(f"{base}/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": token[0]})
        except PermissionError:
            token.clear()
            return None
        return _document(text)

    def read_notice() -> PreemptionNotice | None:
        action = ask("spot/instance-action")
        if isinstance(action, dict):
            # "hibernate" and "stop" take the machine away, too; nothing of the job continues.
            return PreemptionNotice("AWS", _time(action.get("time")))
        if not warned and isinstance(ask("events/recommendations/rebalance"), dict):
            warned.append(True)
            return PreemptionNotice("AWS rebalance recommendation", warning=True)
        return None

    return read_notice


def from_gcp(base: str, now: Now) -> NoticeSource:
    """The source for Google Cloud, whose service answers TRUE from the preemption on; the machine ends at most 30
    seconds later.
    """

    def read_notice() -> PreemptionNotice | None:
        url = f"{base.rstrip('/')}/computeMetadata/v1/instance/preempted"
        answer = _request_or_none(url, {"Metadata-Flavor": "Google"})
        return (
            PreemptionNotice("Google Cloud", now() + timedelta(seconds=NOTICE["Google Cloud"]))
            if (answer or "").strip() == "TRUE"
            else None
        )

    return read_notice


def from_azure(base: str) -> NoticeSource:
    """The source for Azure.

    Scheduled Events name the machines of the whole group; only those of this machine count. They are not acknowledged,
    because an acknowledgement makes the end come earlier.
    """
    base = base.rstrip("/")
    header = {"Metadata": "true"}

    def read_notice() -> PreemptionNotice | None:
        document = _document(_request_or_none(f"{base}/metadata/scheduledevents?api-version=2020-07-01", header))
        for event in document.get("Events", []) if isinstance(document, dict) else []:
            if not isinstance(event, dict) or event.get("EventType") not in ("Preempt", "Terminate"):
                continue
            own = _request_or_none(f"{base}/metadata/instance/compute/name?api-version=2021-02-01&format=text", header)
            if own and _is_among(own.strip(), event.get("Resources")):
                return PreemptionNotice("Azure", _date(event.get("NotBefore")))
        return None

    return read_notice


def _is_among(name: str, resources: Any) -> bool:
    """Whether an event's resources include this machine. A member of a scale set has the name ``set_3`` in both."""
    return isinstance(resources, list) and name.lower() in [str(resource).lower() for resource in resources]


def _request_or_none(url: str, headers: Mapping[str, str]) -> str | None:
    try:
        return _request(url, headers)
    except PermissionError:
        return None


def _request(url: str, headers: Mapping[str, str], method: str = "GET") -> str | None:
    """The answer's text; None for 404 and for temporary errors. Raises PermissionError for 401."""
    # Imported late: it takes 4 MB of memory, which machines without such a service do not need.
    import http.client
    import urllib.error
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers=dict(headers), method=method)  # noqa: S310 (http, by our own base)
    try:
        with opener.open(request, timeout=_TIMEOUT) as answer:
            return str(answer.read(_LARGEST).decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        if error.code == 401:
            raise PermissionError(url) from None
        return None
    except (OSError, ValueError, http.client.HTTPException):  # no service, a time-out, or an incomplete answer
        return None


def _document(text: str | None) -> Any | None:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None


def _time(text: Any) -> datetime | None:
    try:
        return from_text(str(text))
    except ValueError:
        return None


def _date(text: Any) -> datetime | None:
    """An HTTP date, as Azure writes it; None if it is empty, because the event has already started."""
    try:
        date = parsedate_to_datetime(str(text))
    except (TypeError, ValueError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=timezone.utc)


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""
