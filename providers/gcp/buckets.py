"""Buckets of Cloud Storage for run folders, by its JSON API: one request, so nothing is half-made."""

import os
import re
from typing import Any

from broker.core.errors import InvalidInput, Refused, Unreachable
from broker.core.ports import Bucket
from providers.gcp.login import GcpLogin
from providers.gcp.settings import NAME

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{1,61}[a-z0-9]")
_DEFAULT_REGION = "us-central1"
_WHERE = f"{NAME}: buckets"
# Private by policy, without the deleted objects that Google keeps, and bills, for a week unless told otherwise.
_PROPERTIES = {
    "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}, "publicAccessPrevention": "enforced"},
    "softDeletePolicy": {"retentionDurationSeconds": "0"},
    "lifecycle": {"rule": [{"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 7}}]},
}


def make_bucket(login: GcpLogin, name: str) -> Bucket:
    """See `broker.core.ports.MakesBuckets`. It lies in the region of the settings or of gcloud's variables."""
    if not _NAME.fullmatch(name):
        hint = "use 3 to 63 lower-case letters, digits and hyphens"
        raise InvalidInput(f"{name!r} is not a name for a bucket of Cloud Storage", where="--create-bucket", hint=hint)
    exact = [region for region in login.settings.regions if not set("*?") & set(region)]
    region = next(iter(exact), os.environ.get("CLOUDSDK_COMPUTE_REGION") or _DEFAULT_REGION)
    undo = f"gcloud storage buckets delete gs://{name}"
    body = {"name": name, "location": region, **_PROPERTIES}
    status, answer = _request(login, "POST", "", body)
    if status == 409:
        status, answer = _request(login, "GET", f"/{name}", None)
        if status != 200:
            raise InvalidInput(
                f"the bucket {name} belongs to somebody else, or this login may not use it",
                where="--create-bucket",
                hint="choose another name: those of Cloud Storage are shared by all projects",
            )
        return Bucket(f"gs://{name}/gpubroker", f"{NAME}/{str(answer.get('location')).lower()}", False, undo)
    if status != 200:
        message = (answer.get("error") or {}).get("message") or f"HTTP {status}"
        raise Refused(message, where=_WHERE, hint=f"the login needs the role Storage Admin in {login.project}")
    return Bucket(f"gs://{name}/gpubroker", f"{NAME}/{region}", True, undo)


def _request(login: GcpLogin, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    import requests

    address = os.environ.get("GOOGLE_BASE_URL") or "https://storage.googleapis.com"  # as for run folders
    login.renew()
    try:
        with login.session() as session:
            parameters = {"project": login.project} if method == "POST" else {}
            answer = session.request(
                method,
                f"{address}/storage/v1/b{path}",
                params=parameters,
                json=body,
                timeout=login.settings.timeout_seconds,
            )
            content = answer.json()
    except (requests.RequestException, ValueError) as error:
        raise Unreachable(f"Cloud Storage gave no answer: {type(error).__name__}", where=_WHERE) from error
    return answer.status_code, content if isinstance(content, dict) else {}
