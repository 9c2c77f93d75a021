"""Containers of Azure Blob Storage for run folders, in a storage account that exists."""

from __future__ import annotations

import os

from broker.core.errors import InvalidInput
from broker.core.ports import Bucket
from providers.azure.errors import translate_errors
from providers.azure.login import AzureLogin
from providers.azure.settings import NAME

_ACCOUNT = "AZURE_STORAGE_ACCOUNT_NAME"
_NEW_ACCOUNT = "az storage account create --name ACCOUNT --resource-group GROUP --allow-blob-public-access false"
_ROLE = "the login needs the role Storage Blob Data Contributor on the account"


def make_bucket(login: AzureLogin, name: str) -> Bucket:
    """See `broker.core.ports.MakesBuckets`. ``name``: ``ACCOUNT/CONTAINER``, or the container alone. New containers are
    private; Azure encrypts all."""
    account, _, container = name.rpartition("/")
    account = account or os.environ.get(_ACCOUNT, "")
    if not account:
        hint = f"name it: --create-bucket ACCOUNT/CONTAINER, or {_ACCOUNT}; to make one: `{_NEW_ACCOUNT}`"
        raise InvalidInput("the storage account is not named", where="--create-bucket", hint=hint)
    from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceExistsError
    from azure.storage.blob import BlobServiceClient

    where = f"{NAME}: container {account}/{container}"
    address = os.environ.get("AZURE_STORAGE_ENDPOINT") or f"https://{account}.blob.core.windows.net"
    with translate_errors(where), BlobServiceClient(address, credential=login.token) as service:
        try:
            service.create_container(container)
            created = True
        except ResourceExistsError:
            created = False
        except (ClientAuthenticationError, HttpResponseError) as error:
            if error.status_code in (400, 401, 403, 404):
                code = str(getattr(error, "error_code", "") or error.reason)
                raise InvalidInput(f"refused: {code}", where=where, hint=_ROLE) from error
            raise
    undo = f"az storage container delete --name {container} --account-name {account} --auth-mode login"
    return Bucket(f"abfss://{container}@{account}.dfs.core.windows.net/gpubroker", "", created, undo)
