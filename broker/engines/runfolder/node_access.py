"""Credentials for nodes that reach one job's run folder and nothing else.

| store | method |
|---|---|
| S3 | AWS STS `AssumeRole` with a session policy: a session may do what both the role *and* the policy allow |
| Google Cloud Storage | tokens with a Credential Access Boundary, enforced with uniform bucket-level access |
| Azure Blob Storage | user-delegation SAS, signed with a key that the account gives to this process's Entra login |
| stores with the S3 API but without STS | none: nodes use their own identity |

In an Azure account with a hierarchical namespace, a signature is for a directory: a node gets one to read and write its
job's folder, and one to read each other folder that the job reads. In other accounts, a signature is for a single blob
or a whole container: a node gets one for the container, which expires and is otherwise not narrowed.

Forms: Google Cloud, IAM documentation, "Downscope with Credential Access Boundaries"; Microsoft Learn, "Create a user
delegation SAS". Read 2026-11-26.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from broker.core.errors import InvalidInput, LoginMissing, MissingExtra, RetryLater, Unreachable
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


_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_STS = "https://sts.{}/v1/token"
_DEFAULT_LIFETIME = timedelta(minutes=30)  # the time after which a token with an unknown end is renewed
_GCS_WHERE = "gcp sts token"


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
            raise Unreachable("Google's token service cannot be reached", where=_GCS_WHERE) from error
        except problems.DefaultCredentialsError as error:
            raise LoginMissing("there is no usable Google login", where=_GCS_WHERE, hint=hint) from error
        except problems.GoogleAuthError as error:
            raise LoginMissing(f"the token is refused: {_short_message(error)}", where=_GCS_WHERE, hint=hint) from error
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


_AZURE_WHERE = "azure user delegation key"
_AZURE_HINT = (
    "log in to Azure with the roles Storage Blob Delegator and Storage Blob Data Contributor, "
    "or unset GPUBROKER_RUNS_NARROWED"
)
_CLOCK_TOLERANCE = timedelta(minutes=5)
_WRITE_RIGHTS, _READ_RIGHTS = "racwdl", "rl"  # read, add, create, write, delete, list


@dataclass(frozen=True)
class BlobContainer:
    """The container of run folders. ``url``: the account's Blob endpoint; ``root``: the path within the container."""

    account: str
    url: str
    name: str
    root: str

    @classmethod
    def of(cls, runs_url: str, environment: Mapping[str, str]) -> BlobContainer:
        """Parse the URL like obstore: ``az://container/path``, with the account in the environment, or
        ``abfss://container@account.dfs.core.windows.net/path``. Raises `InvalidInput` if no account is named.
        """
        parts = urlsplit(runs_url)
        name, _, host = parts.netloc.partition("@")
        account = host.partition(".")[0] or _first_set(environment, "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_ACCOUNT_NAME")
        if not account:
            hint = "set AZURE_STORAGE_ACCOUNT_NAME"
            raise InvalidInput("the storage account is not named", where=runs_url, hint=hint)
        default_url = f"https://{account}.blob.core.windows.net"
        url = _first_set(environment, "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT") or default_url
        return cls(account, url, name, unquote(parts.path).strip("/"))

    def directory(self, name: str) -> str:
        return f"{self.root}/{name}".strip("/")


def _first_set(environment: Mapping[str, str], *names: str) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")


@dataclass(frozen=True)
class DelegatedSignatures:
    """``seconds``: the lifetime of a signature, at most seven days.

    ``login``: a credential of azure-identity; None: the one that this process finds. ``connection``: further arguments
    for the SDK's client.
    """

    runs_url: str
    seconds: int
    login: Any = None
    connection: Mapping[str, Any] | None = None

    def credentials(self, job_id: str, job: Job) -> Mapping[str, str]:
        """``sas_token``, ``expires_at`` and ``others``: the signatures of folders that are read, as JSON by name.

        Raises `LoginMissing`, `Unreachable`, `MissingExtra`.
        """
        try:
            blob, lake = import_module("azure.storage.blob"), import_module("azure.storage.filedatalake")
            identity, problems = import_module("azure.identity"), import_module("azure.core.exceptions")
        except ImportError as error:
            raise MissingExtra("azure", "credentials of nodes for a container of Azure Blob Storage") from error
        container, now = BlobContainer.of(self.runs_url, os.environ), datetime.now(UTC)
        starts, ends = now - _CLOCK_TOLERANCE, now + timedelta(seconds=self.seconds)
        login = self.login or identity.DefaultAzureCredential()
        try:
            with blob.BlobServiceClient(
                container.url, credential=login, retry_total=2, **(self.connection or {})
            ) as service:
                key = service.get_user_delegation_key(starts, ends)
                is_hierarchical = _is_hierarchical(service, problems)
        except problems.ServiceRequestError as error:
            raise Unreachable("the storage account cannot be reached", where=container.url) from error
        except problems.AzureError as error:
            code = getattr(error, "error_code", None) or type(error).__name__
            raise LoginMissing(f"no key for signatures: {code}", where=_AZURE_WHERE, hint=_AZURE_HINT) from error

        def signed(name: str, rights: str) -> str:
            options: dict[str, Any] = {"permission": rights, "start": starts, "expiry": ends}
            if not is_hierarchical:
                return str(
                    blob.generate_container_sas(container.account, container.name, user_delegation_key=key, **options)
                )
            return str(
                lake.generate_directory_sas(
                    container.account, container.name, container.directory(name), key, **options
                )
            )

        result = {"sas_token": signed(job_id, _WRITE_RIGHTS), "expires_at": ends.isoformat()}
        if is_hierarchical:
            # Tasks of an array have separate folders, and no directory contains exactly these: so the folder of all
            # jobs is readable.
            read_signatures = {
                name: signed(name if name.endswith("/") else "", _READ_RIGHTS) for name in sorted(folders_read_by(job))
            }
            result |= {"others": json.dumps(read_signatures)} if read_signatures else {}
        return result


def _is_hierarchical(service: Any, problems: Any) -> bool:
    """Whether the account accepts signatures for directories; false if it does not tell."""
    try:
        return bool(service.get_account_information().get("is_hns_enabled"))
    except problems.HttpResponseError:
        return False
