"""A login by a code that the person enters at the server's page (RFC 8628)."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import httpx

from broker.core.errors import AskAPerson, Malformed, Unreachable
from broker.server.api.paths import CLIENT, DEVICE_AUTHORIZATION, GRANT, REVOCATION, TOKEN
from broker.server.client.logins import SavedLogin, http_client

_TIMEOUT = httpx.Timeout(20.0, connect=10.0)  # seconds
_SLOW_DOWN_SECONDS = 5.0  # seconds added to the interval after `slow_down` (RFC 8628, section 3.5)
_REFUSED = {
    "access_denied": "the login was refused in the web UI, or the person is disabled",
    "expired_token": "nobody entered the code in time",
}


@dataclass(frozen=True, slots=True)
class ShownCode:
    """The data for the person: the code, the page, and the page with the code filled in."""

    code: str
    page: str
    page_with_code: str
    seconds: int


class LoginRefused(AskAPerson):
    """The login was refused or has expired. Begin again."""


def log_in(
    url: str,
    scopes: Collection[str],
    machine: str,
    show: Callable[[ShownCode], None],
    wait: Callable[[float], None],
    *,
    transport: httpx.BaseTransport | None = None,
) -> SavedLogin:
    """Request a login at the server, and return it after a person has granted it. ``machine``: the name of this
    machine, which the page shows; ``show``: called once with the code; ``wait``: called between requests with the
    seconds to wait.

    Raises `LoginRefused`, `Unreachable`, and `Malformed` for a server that is not gpubroker's. Nothing is saved.
    """
    with http_client(url, _TIMEOUT, transport) as http:
        request = {"client_id": CLIENT, "client_name": machine, "scope": " ".join(scopes)}
        authorization = _post_form(http, url, DEVICE_AUTHORIZATION, request)
        if "error" in authorization:
            raise LoginRefused(str(authorization.get("error_description") or authorization["error"]), where=url)
        try:
            show(
                ShownCode(
                    authorization["user_code"],
                    authorization["verification_uri"],
                    authorization["verification_uri_complete"],
                    int(authorization["expires_in"]),
                )
            )
            code, interval = authorization["device_code"], float(authorization.get("interval", 5))
        except (KeyError, TypeError, ValueError) as error:
            raise Malformed("the server's answer has no code", where=url, hint="is it a gpubroker server?") from error
        while True:
            wait(interval)
            answer = _post_form(http, url, TOKEN, {"grant_type": GRANT, "client_id": CLIENT, "device_code": code})
            if token := answer.get("access_token"):
                return SavedLogin(url, str(token))
            match answer.get("error"):
                case "authorization_pending":
                    continue
                case "slow_down":
                    interval += _SLOW_DOWN_SECONDS
                case reason:
                    message = _REFUSED.get(str(reason), f"the server refuses the login: {reason}")
                    raise LoginRefused(message, where=url, hint=f"`gpubroker login {url}`")


def revoke_login(login: SavedLogin, *, transport: httpx.BaseTransport | None = None) -> None:
    """Revoke the login's token at the server. Idempotent. Raises `Unreachable`."""
    with http_client(login.url, _TIMEOUT, transport) as http:
        _post_form(http, login.url, REVOCATION, {"token": login.token})


def _post_form(http: httpx.Client, url: str, path: str, form: dict[str, str]) -> dict[str, Any]:
    try:
        answer = http.post(path, data=form)
    except httpx.TransportError as error:
        message = f"the server cannot be reached: {error or type(error).__name__}"
        raise Unreachable(message, where=url, hint="check the address and the network") from error
    if answer.status_code >= 500:
        raise Unreachable(f"the server answers {answer.status_code}", where=url, hint="try again in a minute")
    try:
        document = answer.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise Malformed(
            f"the server answers {answer.status_code} without a JSON document", where=url, hint="check the address"
        )
    return document
