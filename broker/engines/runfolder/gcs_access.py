"""Tokens for nodes that reach one job's run folder in Cloud Storage and nothing else: downscoped by a Credential Access
Boundary, which Cloud Storage enforces on buckets with uniform bucket-level access.

Form of the boundary: Google Cloud, IAM documentation, "Downscope with Credential Access Boundaries". Read 2026-11-25.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any
from urllib.parse import unquote, urlsplit

from broker.core.errors import LoginMissing, MissingExtra, Unreachable
from broker.core.job.jobs import Job
from broker.engines.runfolder.node_access import folders_read_by

_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_STS = "https://sts.{}/v1/token"
_DEFAULT_LIFETIME = timedelta(minutes=30)  # the time after which a token with an unknown end is renewed
_WHERE = "gcp sts token"


def boundary(runs_url: str, job_id: str, job: Job) -> dict[str, Any]:
    """The permissions of a node of the job in the bucket: read and write the job's folder; read the folders that the
    job reads.
    """
    parts = urlsplit(runs_url)
    bucket, root = parts.netloc, unquote(parts.path).strip("/")
    own_prefix, *read_prefixes = (
        f"{root}/{name}".lstrip("/") for name in (f"{job_id}/", *sorted(folders_read_by(job)))
    )
    rules = [_rule(bucket, [own_prefix], "inRole:roles/storage.objectAdmin")]
    if read_prefixes:
        rules.append(_rule(bucket, read_prefixes, "inRole:roles/storage.objectViewer"))
    return {"accessBoundary": {"accessBoundaryRules": rules}}


def _rule(bucket: str, prefixes: list[str], role: str) -> dict[str, Any]:
    conditions = [
        f"resource.name.startsWith({_cel_literal(f'projects/_/buckets/{bucket}/objects/{prefix}')})"
        for prefix in prefixes
    ]
    list_prefix = "api.getAttribute('storage.googleapis.com/objectListPrefix', '')"
    conditions += [f"{list_prefix}.startsWith({_cel_literal(prefix)})" for prefix in prefixes]
    return {
        "availableResource": f"//storage.googleapis.com/projects/_/buckets/{bucket}",
        "availablePermissions": [role],
        "availabilityCondition": {"expression": " || ".join(conditions)},
    }


def _cel_literal(text: str) -> str:
    """The text as a string literal of CEL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@dataclass(frozen=True)
class BoundTokens:
    """Exchanges tokens of the Google login of this process. ``sts``: the address of the token service, with ``{}`` for
    Google's domain."""

    runs_url: str
    sts: str = _STS

    def credentials(self, job_id: str, job: Job) -> Mapping[str, str]:
        try:
            auth, problems = import_module("google.auth"), import_module("google.auth.exceptions")
            request = import_module("google.auth.transport.requests").Request()
            client = import_module("google.oauth2.sts").Client
        except ImportError as error:
            raise MissingExtra("gcp", "credentials of nodes for a bucket of Cloud Storage") from error
        hint = "`gcloud auth application-default login`, or unset GPUBROKER_RUNS_NARROWED"
        try:
            login, _ = auth.default(scopes=[_SCOPE])
            if not login.valid:
                login.refresh(request)
            kind = "urn:ietf:params:oauth:token-type:access_token"
            response = client(self.sts.format(login.universe_domain)).exchange_token(
                request=request,
                grant_type="urn:ietf:params:oauth:grant-type:token-exchange",
                subject_token=login.token,
                subject_token_type=kind,
                requested_token_type=kind,
                additional_options=boundary(self.runs_url, job_id, job),
            )
        except problems.TransportError as error:
            raise Unreachable("Google's token service cannot be reached", where=_WHERE) from error
        except problems.DefaultCredentialsError as error:
            raise LoginMissing("there is no usable Google login", where=_WHERE, hint=hint) from error
        except problems.GoogleAuthError as error:
            raise LoginMissing(f"the token is refused: {_short_message(error)}", where=_WHERE, hint=hint) from error
        lifetime = response.get("expires_in")
        now = datetime.now(UTC)
        # A token without an expiry of its own expires with the login's token.
        login_end = login.expiry.replace(tzinfo=UTC) if login.expiry is not None else now + _DEFAULT_LIFETIME
        ends = now + timedelta(seconds=float(lifetime)) if lifetime else login_end
        return {"token": str(response["access_token"]), "expires_at": ends.isoformat()}


def _short_message(error: Exception) -> str:
    """The error without the content that the service sent, which may contain the token."""
    text = str(error.args[0]) if error.args else type(error).__name__
    try:
        document = json.loads(text)
    except ValueError:
        return " ".join(text.split())[:200]
    return str(document.get("error", type(error).__name__))[:200] if isinstance(document, dict) else text[:200]
