"""Credentials for nodes that reach one job's run folder and nothing else; here: narrowed sessions of an AWS role.

| store | method |
|---|---|
| S3 | AWS STS `AssumeRole` with a session policy: a session may do what both the role *and* the policy allow |
| Google Cloud Storage | tokens with a Credential Access Boundary (`gcs_access`) |
| Azure Blob Storage | user-delegation signatures, for the job's folder if there are directories (`azure_access`) |
| stores with the S3 API but without STS | none: nodes use their own identity |
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from broker.core.errors import LoginMissing, MissingExtra, RetryLater, Unreachable
from broker.core.job.jobs import Job

_MAX_POLICY_LENGTH = 2048  # the maximum characters that STS accepts


class AccessProvider(Protocol):
    """Provides credentials for the run folder of a job."""

    def credentials(self, job_id: str, job: Job) -> Mapping[str, str]:
        """``token``, or in Azure ``sas_token``, and ``expires_at`` (ISO 8601, UTC); for S3 also ``access_key_id`` and
        ``secret_access_key``. Raises
        `RetryLater` or `LoginMissing`."""


def policy(runs_url: str, job_id: str, job: Job) -> dict[str, Any]:
    """The permissions of a node of the job in the bucket: read and write the job's folder; read the job's files, the
    folders of the jobs whose results are its inputs, and of the job from whose checkpoint it starts.
    """
    parts = urlsplit(runs_url)
    bucket, root = parts.netloc, unquote(parts.path).strip("/")
    own_prefix, *read_prefixes = (
        f"{root}/{name}".lstrip("/") for name in (f"{job_id}/", *sorted(folders_read_by(job)))
    )
    arn = f"arn:aws:s3:::{bucket}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
                "Resource": f"{arn}/{own_prefix}*",
            },
            *([_read_statement(arn, read_prefixes)] if read_prefixes else []),
            {
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": arn,
                "Condition": {"StringLike": {"s3:prefix": [f"{prefix}*" for prefix in (own_prefix, *read_prefixes)]}},
            },
        ],
    }


def _read_statement(arn: str, prefixes: Sequence[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": "s3:GetObject", "Resource": [f"{arn}/{prefix}*" for prefix in prefixes]}


def folders_read_by(job: Job) -> set[str]:
    """The other jobs' folders that a job reads. Tasks of an array are named by the array's id and a number."""
    folders = {f"{job.snapshot.pool}/"} if job.snapshot else set()
    folders |= {f"{job.resume_from.job}/"} if job.resume_from else set()
    return folders | {
        name for predecessor in job.after if predecessor.inputs for name in predecessor.tasks or [f"{predecessor.job}/"]
    }


@dataclass(frozen=True)
class RoleSessions:
    """``role``: the ARN of a role that this process's AWS login may assume, with rights to the place of all run
    folders. ``seconds``: the duration of a session; the role must allow it.
    """

    runs_url: str
    role: str
    seconds: int

    def credentials(self, job_id: str, job: Job) -> Mapping[str, str]:
        try:
            boto3, problems = import_module("boto3"), import_module("botocore.exceptions")
        except ImportError:
            raise MissingExtra("aws", "credentials of nodes for an S3 bucket") from None
        where = f"aws sts AssumeRole {self.role}"
        policy_text = json.dumps(policy(self.runs_url, job_id, job), separators=(",", ":"))
        try:
            session = boto3.Session()
            client = session.client("sts", region_name=session.region_name or "us-east-1")
            answer = client.assume_role(
                RoleArn=self.role,
                RoleSessionName=f"gpubroker-{job_id}"[:64],
                Policy=policy_text,
                DurationSeconds=self.seconds,
            )["Credentials"]
        except problems.NoCredentialsError as error:
            raise LoginMissing(str(error), where=where, hint="log in to AWS, or unset GPUBROKER_RUNS_ROLE") from error
        except problems.ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            hint = "the role must trust this login, and allow sessions of that length (GPUBROKER_RUNS_ROLE_SECONDS)"
            if len(policy_text) > _MAX_POLICY_LENGTH:
                hint = "the job reads from too many other jobs for one session policy"
            kind = RetryLater if code in ("Throttling", "ServiceUnavailable", "InternalFailure") else LoginMissing
            raise kind(str(error), where=where, hint=hint) from error
        except problems.BotoCoreError as error:
            raise Unreachable(str(error), where=where) from error
        expires: datetime = answer["Expiration"]
        return {
            "access_key_id": answer["AccessKeyId"],
            "secret_access_key": answer["SecretAccessKey"],
            "token": answer["SessionToken"],
            "expires_at": expires.isoformat(),
        }
