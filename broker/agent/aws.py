"""The AWS region of a bucket, and the login of AWS's tools.

Requests are signed for a region, and S3 refuses those signed for another one. It tells anyone the region of any bucket,
in a header of its answer to a HEAD request, whatever the answer's status (S3 API reference, HeadBucket:
``x-amz-bucket-region``). Other stores with the S3 API may not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

REGION_VARIABLE = "GPUBROKER_RUNS_REGION"
"""The variable with the region of the run folders' bucket, set by the broker so that its nodes need not ask."""
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")  # the address of a store that is not AWS's own
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_TIMEOUT = 5.0  # seconds
_AWS = "https://s3.amazonaws.com"
_regions: dict[tuple[str, str], str] = {}


def bucket_region(url: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The region of the bucket of that URL, queried until it is known, once per process.

    None for URLs of other services and if the store does not tell it; then the variables of AWS's tools apply.

    The store's answer takes precedence over ``AWS_REGION``, which is the default region of the user's machines, not the
    bucket's. Only for a store at another address (``AWS_ENDPOINT_URL``) is a configured region used without asking.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("s3", "s3a"):
        return None
    if environment.get(REGION_VARIABLE):
        return environment[REGION_VARIABLE]
    endpoint = next((environment[name] for name in _ENDPOINTS if environment.get(name)), None)
    if endpoint is not None and any(environment.get(name) for name in _REGION_VARIABLES):
        return None
    key = endpoint or _AWS, parts.netloc
    if key not in _regions:
        region = _query_region(*key)
        if region is None:  # the network may be available the next time
            return None
        _regions[key] = region
    return _regions[key]


def _query_region(endpoint: str, bucket: str) -> str | None:
    # Imported late: it takes 4 MB of memory, which machines without S3 do not need.
    import http.client
    import urllib.error
    import urllib.request

    address = f"{endpoint.rstrip('/')}/{quote(bucket)}"
    if urlsplit(address).scheme not in ("http", "https"):
        return None
    request = urllib.request.Request(address, method="HEAD")  # noqa: S310 (the scheme is checked)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 (as above)
            region = answer.headers.get("x-amz-bucket-region")
    except urllib.error.HTTPError as error:  # the answers "forbidden" and "moved" contain it as well
        region = error.headers.get("x-amz-bucket-region")
    except (OSError, ValueError, http.client.HTTPException):
        return None
    return region if region and re.fullmatch(r"[a-z0-9-]{1,40}", region) else None


_AWS_FILES = (("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"), ("AWS_CONFIG_FILE", "~/.aws/config"))
# With one of these, obstore has a login already.
_AWS_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                  "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_SKIP_SIGNATURE")  # fmt: skip
_AZURE_PREFIXES = ("AZURE_STORAGE_", "AZURE_CLIENT_", "AZURE_FEDERATED_", "AZURE_MSI_", "IDENTITY_", "AZURE_SAS")
_AZURE_PLACES = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_USE_EMULATOR")


def tool_login(scheme: str) -> dict[str, Any]:
    """obstore's options for a store of that URL scheme; none without such a file, or with a login in the
    environment."""
    if scheme in ("s3", "s3a"):
        if any(os.environ.get(name) for name in _AWS_VARIABLES):
            return {}
        files = [Path(os.environ.get(name) or default).expanduser() for name, default in _AWS_FILES]
        provider = _aws_session(os.environ.get("AWS_PROFILE")) if any(file.is_file() for file in files) else None
        return {} if provider is None else {"credential_provider": provider}
    if scheme in ("az", "adl", "azure", "abfs", "abfss"):
        names = [name for name in os.environ if name.startswith(_AZURE_PREFIXES) and name not in _AZURE_PLACES]
        folder = Path(os.environ.get("AZURE_CONFIG_DIR") or "~/.azure").expanduser()
        return {"use_azure_cli": True} if not names and (folder / "azureProfile.json").is_file() else {}
    return {}


@lru_cache(maxsize=1)
def _aws_session(profile: str | None) -> Any:
    """A credential provider with boto3's login; None without boto3, or if the files have none."""
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return None
    from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]  # ships no types

    try:
        return Boto3CredentialProvider()
    except (BotoCoreError, ValueError):
        return None
