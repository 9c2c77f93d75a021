"""A login to Azure, and calls with it.

A login is a subscription (AZURE_SUBSCRIPTION_ID or the setting) and what azure-identity finds: variables of a service
principal, workload identity, `az login` and similar. The search for one needs no network; the identity of an Azure
machine counts only with the setting ``managed_identity``. Keys and tokens stay in azure-identity: nothing here keeps or
prints one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.core.errors import InvalidInput, LoginMissing, Malformed, OutcomeUnknown, Unreachable
from broker.core.values.clock import Clock
from providers.azure.errors import is_silence, translate_errors
from providers.azure.settings import NAME, SUBSCRIPTION, AzureSettings
from providers.http import redacted_url, setting

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential
from providers.azure.settings import AUTHORITY

_LOG_IN = "run `az login`, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"
LOGIN_HINT = f"set {SUBSCRIPTION}, and {_LOG_IN}"

_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_MAX_PAGES = 500
_MAX_UNANSWERED = 3  # unanswered calls in a row after which a poll makes no more: each would wait for its timeout
_SIGNS = ("AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_PASSWORD")
_HOSTED = ("IDENTITY_ENDPOINT", "MSI_ENDPOINT")  # set if Azure runs the process: an identity is available at once
_TOOL_FILES = ("azureProfile.json", "AzureRmContext.json")


def authority(environ: Mapping[str, str] = os.environ) -> str:
    """azure-identity's authority."""
    return redacted_url(environ.get(AUTHORITY) or "https://login.microsoftonline.com")


def subscription_of(settings: AzureSettings, environ: Mapping[str, str] = os.environ) -> str:
    """The configured subscription; empty without one."""
    return settings.subscription_id or environ.get(SUBSCRIPTION, "").strip()


def login_source(settings: AzureSettings, environ: Mapping[str, str] = os.environ) -> str:
    """The source of a possible login of azure-identity: the name of a variable, a file or a setting; empty without one.
    No network; reads no key.
    """
    if settings.managed_identity:
        return "the setting managed_identity"
    for variable in (*_SIGNS, *_HOSTED):
        if environ.get(variable):
            return variable
    folders = (environ.get("AZURE_CONFIG_DIR") or "~/.azure", "~/.Azure")
    for folder in folders:
        for file in _TOOL_FILES:
            if (path := Path(folder).expanduser() / file).is_file():
                return str(path)
    return ""


def has_sdk() -> bool:
    """Whether Azure's SDK is installed."""
    try:
        return all(find_spec(module) is not None for module in ("azure.mgmt.compute", "azure.identity"))
    except ModuleNotFoundError:  # the package `azure` is missing
        return False


class AzureLogin:
    """The client of one subscription; safe to share between threads. ``sign``: the login's source."""

    def __init__(self, token: TokenCredential, subscription: str, settings: AzureSettings, clock: Clock) -> None:
        """Makes no connection. Raises `InvalidInput` for a missing CA bundle."""
        from providers.azure.pipeline import CachedCredential, client, scope

        if settings.ca_bundle is not None and not settings.ca_bundle.is_file():
            raise InvalidInput("no such file", where=str(settings.ca_bundle), hint=setting(NAME, "ca_bundle"))
        self.subscription = subscription
        self.sign: tuple[str, str] = ("", "")
        self._token = CachedCredential(token)
        self._scope = scope(settings)
        self._client = client(self._token, subscription, settings, clock)
        self._unanswered = 0

    @classmethod
    def find(cls, settings: AzureSettings, clock: Clock) -> AzureLogin | None:
        """The login found, or None: no subscription named, or no SDK.

        Raises `LoginMissing` if a subscription is named and no login to it is usable, and `Unreachable` if that cannot
        be determined.
        """
        subscription, sign = subscription_of(settings), login_source(settings)
        if not subscription or not has_sdk():
            return None
        if not _ID.fullmatch(subscription):
            reason = f"{SUBSCRIPTION} is not the id of a subscription"
            raise LoginMissing(reason, where=NAME, hint="`az account show --query id` prints it")
        if not sign:
            raise LoginMissing(f"{SUBSCRIPTION} is set, but there is no login to Azure", where=NAME, hint=_LOG_IN)
        from providers.azure.pipeline import credential

        is_hosted = settings.managed_identity or any(os.environ.get(variable) for variable in _HOSTED)
        with translate_errors(f"{NAME}: {sign}"):
            login = cls(credential(settings, managed_identity=is_hosted), subscription, settings, clock)
        login.sign = (subscription, sign)
        login.check()
        return login

    def check(self) -> None:
        """Get a token, to detect an unusable login before many calls fail. Raises `LoginMissing` or `Unreachable`."""
        with translate_errors(f"{NAME}: login"):
            self._token.get_token(self._scope)

    def begin(self) -> None:
        """Call before each poll: unresponsive endpoints are tried again."""
        self._unanswered = 0

    def call(self, where: str, ask: Callable[[Any], Any]) -> Any:
        """The result of ``ask`` on the SDK's client. ``where``: for errors. Raises `Throttled`, `Unreachable`,
        `LoginMissing`, `Refused` or `Malformed`.
        """
        with self._translate_errors(f"{NAME}/{where}"):
            return ask(self._client)

    def call_once(self, where: str, ask: Callable[[Any], Any]) -> Any:
        """`call` for a request that must not take effect twice; ``ask`` passes ``retry_total=0``. Raises
        `OutcomeUnknown` if it may have taken effect, and the errors of `call` if it has not."""
        with _mark_unknown_outcome():
            return self.call(where, ask)

    def rows(self, where: str, ask: Callable[[Any], Any]) -> Iterator[Mapping[str, Any]]:
        """The rows of all pages of a list of the SDK, with Azure's JSON field names; invalid rows are left out. Raises
        as `call`, and `Malformed` if a link to a page repeats."""
        pages = self.call(where, ask).by_page()
        seen: set[str] = set()
        for _ in range(_MAX_PAGES):
            page: Iterable[Any] | None = self.call(where, lambda _: _next_page(pages))
            if page is None:
                return
            yield from (row for row in page if isinstance(row, Mapping))
            next_link = pages.continuation_token
            if next_link in seen:
                break
            if next_link:
                seen.add(next_link)
        raise Malformed("endless pages: a page link was repeated", where=f"{NAME}/{where}")

    def plain_rows(self, where: str, path: str, *, version: str) -> Iterator[Mapping[str, Any]]:
        """`rows` without the SDK's models: building them takes half a second per megabyte.
        Raises what `rows` raises."""
        seen: set[str] = set()
        for _ in range(_MAX_PAGES):
            answer = self.request(where, "GET", path, version=version)
            page = answer.get("value") if isinstance(answer, Mapping) else None
            if not isinstance(page, list):
                raise Malformed("no rows in the answer", where=f"{NAME}/{where}")
            yield from (row for row in page if isinstance(row, Mapping))
            next_link = answer.get("nextLink")
            if not isinstance(next_link, str) or not next_link:
                return
            if next_link in seen:
                break
            seen.add(next_link)
            path = next_link
        raise Malformed("endless pages: a page link was repeated", where=f"{NAME}/{where}")

    def request(self, where: str, method: str, path: str, body: object = None, *, version: str) -> Any:
        """The JSON answer to a request to Azure Resource Manager, with numbers as int and Decimal; for calls without a
        method in the SDK. ``path``: as documented, or a link to a next page. Raises what `call` raises."""
        from azure.core.exceptions import HttpResponseError
        from azure.core.rest import HttpRequest

        with self._translate_errors(f"{NAME}/{where}"):
            params = {} if "api-version=" in path else {"api-version": version}
            response = self._client.send_request(HttpRequest(method, path, json=body, params=params))
            if response.status_code != 200:
                raise HttpResponseError(response=response)
            return json.loads(response.text(), parse_float=Decimal)

    def request_once(self, where: str, method: str, path: str, body: object, *, version: str) -> Any:
        """`asked` for a request that must not take effect twice: it is sent once. None without a body in the answer.
        Raises as `call_once`."""
        from azure.core.exceptions import HttpResponseError
        from azure.core.rest import HttpRequest

        with _mark_unknown_outcome(), self._translate_errors(f"{NAME}/{where}"):
            request = HttpRequest(method, path, json=body, params={"api-version": version})
            response = self._client.send_request(request, retry_total=0)
            if response.status_code not in (200, 201, 202):
                raise HttpResponseError(response=response)
            text = response.text()
            return json.loads(text, parse_float=Decimal) if text.strip() else None

    @contextmanager
    def _translate_errors(self, where: str) -> Iterator[None]:
        """Counts unanswered calls of all threads; the count may be off by a few, which is harmless."""
        if self._unanswered >= _MAX_UNANSWERED:
            raise Unreachable("not queried, because earlier calls got no answer", where=where)
        try:
            with translate_errors(where):
                yield
        except Unreachable as error:
            self._unanswered += is_silence(error.__cause__)
            raise
        self._unanswered = 0


@contextmanager
def _mark_unknown_outcome() -> Iterator[None]:
    from azure.core.exceptions import ServiceRequestError

    try:
        yield
    except (Unreachable, Malformed) as error:
        if isinstance(error.__cause__, ServiceRequestError):
            raise  # it was never sent
        raise OutcomeUnknown(error.message, where=error.where) from error


def _next_page(pages: Iterator[Iterable[Any]]) -> list[Any] | None:
    page = next(pages, None)
    return None if page is None else list(page)
