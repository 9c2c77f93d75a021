"""Logins that the clouds' own tools keep in files, which obstore does not read: of ``aws configure``, ``aws sso login``
and ``az login``. Machines that a job rents have none of these files."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

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
