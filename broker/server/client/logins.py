"""The team server that this person is logged in to, and the token for it."""

from __future__ import annotations

import json
import os
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import platformdirs

from broker.core.errors import InvalidInput, StoreProblem

if TYPE_CHECKING:
    import httpx

SERVER, TOKEN = "GPUBROKER_SERVER", "GPUBROKER_TOKEN"
"""Environment variables that take precedence over the saved login, for service accounts. ``GPUBROKER_SERVER=off``
ignores the login."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, repr=False)
class SavedLogin:
    """``url``: of the server, without a path. ``token``: an API token, a secret. ``by_variable``: from the environment,
    so that a new login would not replace it."""

    url: str
    token: str
    by_variable: bool = field(default=False, compare=False)

    def __repr__(self) -> str:
        return f"<SavedLogin {self.url}>"


def login_file(environment: Mapping[str, str] = os.environ) -> Path:
    """The file of the login: in the folder that ``GPUBROKER_HOME`` names, or in the user's configuration folder."""
    home = environment.get("GPUBROKER_HOME")
    return Path(home or platformdirs.user_config_dir("gpubroker")) / "login.json"


def current_login(environment: Mapping[str, str] = os.environ) -> SavedLogin | None:
    """The login from the environment, or else the saved one; None if commands use a store of this machine. Sends no
    request. Raises `InvalidInput` for a server without a token, a token without a server, and a file that cannot be
    read."""
    server = environment.get(SERVER)
    if server == "off":
        return None
    if server:
        token = environment.get(TOKEN, "")
        if not token:
            raise InvalidInput(f"{SERVER} is set and {TOKEN} is not", hint=f"set both, or {SERVER}=off")
        return SavedLogin(server_url(server), token, by_variable=True)
    if environment.get(TOKEN):  # otherwise the command would act as another person than the token's
        hint = f"set {SERVER} to the server's address, or unset {TOKEN}; {SERVER}=off uses the store of this machine"
        raise InvalidInput(f"{TOKEN} is set and {SERVER} is not", hint=hint)
    file = login_file(environment)
    try:
        saved = json.loads(file.read_bytes())
        return SavedLogin(server_url(saved["url"]), str(saved["token"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = "`gpubroker logout`, then `gpubroker login URL`"
        raise InvalidInput(f"the saved login cannot be read: {error}", where=str(file), hint=hint) from error


def save_login(login: SavedLogin, environment: Mapping[str, str] = os.environ) -> Path:
    """Save the login, readable by this user only; replaces an earlier one. Raises `StoreProblem`."""
    file = login_file(environment)
    draft = file.with_name(f".{file.name}.{secrets.token_hex(6)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            json.dump({"url": login.url, "token": login.token}, stream)
        draft.replace(file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise StoreProblem(f"the login cannot be saved: {error.strerror}", where=str(file)) from error
    return file


def delete_login(environment: Mapping[str, str] = os.environ) -> None:
    """Delete the saved login. Idempotent. Raises `StoreProblem`."""
    try:
        login_file(environment).unlink(missing_ok=True)
    except OSError as error:
        raise StoreProblem(
            f"the login cannot be deleted: {error.strerror}", where=str(login_file(environment))
        ) from error


def server_url(text: str) -> str:
    """The address of a server: ``https://gpus.example.org``. Without a scheme, https is used. Raises `InvalidInput` for
    an invalid address, and for http to another machine, where the token would be sent unencrypted."""
    url = text if "://" in text else f"https://{text}"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidInput(f"not a server address: {text!r}", hint="expected https://HOST[:PORT]") from error
    if parts.scheme not in ("http", "https") or not host or parts.path.strip("/") or parts.query or parts.username:
        raise InvalidInput(f"not a server address: {text!r}", hint="expected https://HOST[:PORT]")
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise InvalidInput(f"{text} has no TLS, and the token would be sent unencrypted", hint="use https://")
    return f"{parts.scheme}://{parts.netloc}"


def http_client(
    url: str,
    timeout: httpx.Timeout,
    transport: httpx.BaseTransport | None = None,
    headers: Mapping[str, str] | None = None,
) -> httpx.Client:
    """An HTTP client for the server at that address. ``transport``: replaces the network in tests. Sends no request."""
    import httpx

    # Plain HTTP needs no certificates, and loading them takes 20 ms.
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.startswith("http:") else True
    return httpx.Client(base_url=url, timeout=timeout, transport=transport, headers=headers, verify=trust)
