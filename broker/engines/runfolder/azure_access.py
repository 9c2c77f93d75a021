"""Signatures for nodes that reach run folders in Azure Blob Storage: user-delegation SAS, signed with a key that the
account gives to this process's Entra login, so that no account key is used.

In an account with a hierarchical namespace, a signature is for a directory: a node gets one to read and write its job's
folder, and one to read each other folder that the job reads. In other accounts, a signature is for a single blob or a
whole container: a node gets one for the container, which expires and is otherwise not narrowed.

Forms: Microsoft Learn, "Create a user delegation SAS". Read 2026-11-26.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any
from urllib.parse import unquote, urlsplit

from broker.core.errors import InvalidInput, LoginMissing, MissingExtra, Unreachable
from broker.core.job.jobs import Job
from broker.engines.runfolder.node_access import folders_read_by

_WHERE = "azure user delegation key"
_HINT = (
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
            raise LoginMissing(f"no key for signatures: {code}", where=_WHERE, hint=_HINT) from error

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
