"""A login to Azure, and calls with it; the exceptions of Azure's SDK end here.

A login is a subscription (AZURE_SUBSCRIPTION_ID or the setting) and what azure-identity finds: variables of a service
principal, workload identity, `az login` and its like. Whether there may be one is seen without asking anybody; the
identity of an Azure machine counts only with the setting ``managed_identity``. Keys and tokens are azure-identity's
business: nothing here keeps or prints one.
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

from broker.core.clock import Clock
from broker.core.errors import BrokerError, InvalidInput, LoginMissing, Malformed, Refused, Throttled, Unreachable
from providers.azure.settings import NAME, AzureSettings
from providers.http import setting

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

SUBSCRIPTION = "AZURE_SUBSCRIPTION_ID"
_LOG_IN = "run `az login`, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"
HOW = f"set {SUBSCRIPTION}, and {_LOG_IN}"
AGAIN = "run `az login` again, or look at AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"
EXTRA = "pip install 'gpubroker[azure]'"

_MOST_PAGES = 500
_SHOWN = 300  # characters of what Azure said
_ENOUGH = 3  # calls in a row without an answer: the others of the same poll would wait for as long, one by one
_SIGNS = ("AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_PASSWORD")
_HOSTED = ("IDENTITY_ENDPOINT", "MSI_ENDPOINT")  # set where Azure runs the process: an identity is there at once
_NO_ANSWER = re.compile(
    r"Failed to (establish|resolve)|timed out|Connection (refused|reset|aborted)|CERTIFICATE_VERIFY_FAILED"
)
_LEFT_BY_TOOLS = ("azureProfile.json", "AzureRmContext.json")


def subscription_of(settings: AzureSettings, environ: Mapping[str, str] = os.environ) -> str:
    """The subscription that is named; empty where none is."""
    return settings.subscription_id or environ.get(SUBSCRIPTION, "").strip()


def sign_of_login(settings: AzureSettings, environ: Mapping[str, str] = os.environ) -> str:
    """Where azure-identity may find a login: the name of a variable, a file or a setting; empty where there is none.
    Contacts nobody and reads no key."""
    if settings.managed_identity:
        return "the setting managed_identity"
    for variable in (*_SIGNS, *_HOSTED):
        if environ.get(variable):
            return variable
    folders = (environ.get("AZURE_CONFIG_DIR") or "~/.azure", "~/.Azure")
    for folder in folders:
        for file in _LEFT_BY_TOOLS:
            if (found := Path(folder).expanduser() / file).is_file():
                return str(found)
    return ""


def has_sdk() -> bool:
    """Whether Azure's SDK is installed."""
    try:
        return all(find_spec(module) is not None for module in ("azure.mgmt.compute", "azure.identity"))
    except ModuleNotFoundError:  # of `azure` itself
        return False


class Login:
    """The client of one subscription; safe to share between threads. ``sign``: what it was found by."""

    def __init__(self, token: TokenCredential, subscription: str, settings: AzureSettings, clock: Clock) -> None:
        """Contacts nobody. Raises `InvalidInput` for a CA bundle that is not there."""
        from providers.azure.pipeline import Remembered, client, scope

        if settings.ca_bundle is not None and not settings.ca_bundle.is_file():
            raise InvalidInput("no such file", where=str(settings.ca_bundle), hint=setting(NAME, "ca_bundle"))
        self.subscription = subscription
        self.sign: tuple[str, str] = ("", "")
        self._token = Remembered(token)
        self._scope = scope(settings)
        self._client = client(self._token, subscription, settings, clock)
        self._unanswered = 0

    @classmethod
    def find(cls, settings: AzureSettings, clock: Clock) -> Login | None:
        """The login there is, or None: no subscription named, or no SDK.

        Raises `LoginMissing` where a subscription is named and no login to it can be used, `Unreachable` where that
        cannot be found out.
        """
        subscription, sign = subscription_of(settings), sign_of_login(settings)
        if not subscription or not has_sdk():
            return None
        if not sign:
            raise LoginMissing(f"{SUBSCRIPTION} is set, but nobody is logged in to Azure", where=NAME, hint=_LOG_IN)
        from providers.azure.pipeline import credential

        hosted = settings.managed_identity or any(os.environ.get(variable) for variable in _HOSTED)
        with _translated(f"{NAME}: {sign}"):
            found = cls(credential(settings, managed_identity=hosted), subscription, settings, clock)
        found.sign = (subscription, sign)
        found.check()
        return found

    def check(self) -> None:
        """Get a token, so that a login that cannot be used is known before many calls fail by it. Raises
        `LoginMissing` or `Unreachable`."""
        with _translated(f"{NAME}: login"):
            self._token.get_token(self._scope)

    def begin(self) -> None:
        """To be said before each poll: what did not answer in the last one is asked again."""
        self._unanswered = 0

    def call(self, where: str, ask: Callable[[Any], Any]) -> Any:
        """What ``ask`` makes of the SDK's client. ``where``: for errors. Raises `Throttled`, `Unreachable`,
        `LoginMissing`, `Refused` or `Malformed`."""
        with self._asking(f"{NAME}/{where}"):
            return ask(self._client)

    def rows(self, where: str, ask: Callable[[Any], Any]) -> Iterator[Mapping[str, Any]]:
        """The rows of every page of a list of the SDK, as Azure's JSON names their fields; what is no row is left out.
        Raises what `call` raises, and `Malformed` when a link to a page comes again."""
        pages = self.call(where, ask).by_page()
        seen: set[str] = set()
        for _ in range(_MOST_PAGES):
            page: Iterable[Any] | None = self.call(where, lambda _: _list_or_none(pages))
            if page is None:
                return
            yield from (row for row in page if isinstance(row, Mapping))
            following = pages.continuation_token
            if following in seen:
                break
            if following:
                seen.add(following)
        raise Malformed("pages without an end: a link came again", where=f"{NAME}/{where}")

    def plain_rows(self, where: str, path: str, *, version: str) -> Iterator[Mapping[str, Any]]:
        """The same as `rows`, without the SDK's models: making them of a long list takes half a second a megabyte.
        Raises what `rows` raises."""
        seen: set[str] = set()
        for _ in range(_MOST_PAGES):
            answer = self.asked(where, "GET", path, version=version)
            page = answer.get("value") if isinstance(answer, Mapping) else None
            if not isinstance(page, list):
                raise Malformed("no rows in the answer", where=f"{NAME}/{where}")
            yield from (row for row in page if isinstance(row, Mapping))
            following = answer.get("nextLink")
            if not isinstance(following, str) or not following:
                return
            if following in seen:
                break
            seen.add(following)
            path = following
        raise Malformed("pages without an end: a link came again", where=f"{NAME}/{where}")

    def asked(self, where: str, method: str, path: str, body: object = None, *, version: str) -> Any:
        """The JSON that a request to Azure Resource Manager brings, with numbers as int and Decimal; for what the SDK
        has no method for. ``path``: as documented, or a link to a next page. Raises what `call` raises."""
        from azure.core.exceptions import HttpResponseError
        from azure.core.rest import HttpRequest

        with self._asking(f"{NAME}/{where}"):
            params = {} if "api-version=" in path else {"api-version": version}
            response = self._client.send_request(HttpRequest(method, path, json=body, params=params))
            if response.status_code != 200:
                raise HttpResponseError(response=response)
            return json.loads(response.text(), parse_float=Decimal)

    @contextmanager
    def _asking(self, where: str) -> Iterator[None]:
        """Calls in threads count together; that they may miscount by a few does no harm."""
        if self._unanswered >= _ENOUGH:
            raise Unreachable("not asked, because the calls before got no answer", where=where)
        try:
            with _translated(where):
                yield
        except Unreachable as error:
            self._unanswered += _is_silence(error.__cause__)
            raise
        self._unanswered = 0


def _is_silence(error: BaseException | None) -> bool:
    from azure.core.exceptions import ServiceRequestError, ServiceResponseError

    return isinstance(error, ServiceRequestError | ServiceResponseError)


def _list_or_none(pages: Iterator[Iterable[Any]]) -> list[Any] | None:
    page = next(pages, None)
    return None if page is None else list(page)


@contextmanager
def _translated(where: str) -> Iterator[None]:
    from azure.core import exceptions as said

    try:
        yield
    except BrokerError as error:
        error.where = error.where or where
        raise
    except said.ClientAuthenticationError as error:
        raise _of_login(error, where) from error
    except (said.DecodeError, said.DeserializationError, said.SerializationError) as error:
        if isinstance(error, said.IncompleteReadError):
            raise Unreachable("the answer was cut short", where=where) from error
        raise Malformed(f"the answer cannot be read: {_short(error)}", where=where) from error
    except said.HttpResponseError as error:
        raise _of_service(error, where) from error
    except (said.ServiceRequestError, said.ServiceResponseError) as error:
        raise _unreachable(error, where) from error
    except said.AzureError as error:
        raise Refused(_short(error), where=where) from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        # The SDK's readers let the errors of their own code through, where an answer has another shape.
        raise Malformed(f"the answer cannot be read: {_short(error)}", where=where) from error


def _of_login(error: Any, where: str) -> BrokerError:
    """What to do about a login that failed. That its authority could not be reached, azure-identity says in its text
    alone."""
    why = _why(error)
    if error.response is None and _NO_ANSWER.search(why):
        hint = f"is the network up? Certificates of one's own: {setting(NAME, 'ca_bundle')}"
        return Unreachable(f"where one logs in cannot be reached: {why}", where=where, hint=hint)
    return LoginMissing(f"the login is missing or has expired: {why}", where=where, hint=AGAIN)


def _of_service(error: Any, where: str) -> BrokerError:
    """Azure's own refusal, in our words."""
    status = error.status_code or 0
    headers = error.response.headers if error.response is not None else {}
    after = headers.get("Retry-After", "")
    said = f"HTTP {status}: {_short(error)}"
    if status == 429 or (status == 503 and after):
        seconds = float(after) if after.isdecimal() else None
        return Throttled(f"asked for fewer requests ({said})", after=seconds, where=where, hint="poll less often")
    if status >= 500 or status == 408:
        return Unreachable(said, where=where, hint="Azure has trouble; the next poll asks again")
    if status == 401:
        return LoginMissing(f"the login is missing or has expired: {said}", where=where, hint=AGAIN)
    if status == 403:
        return Refused(f"not permitted ({said})", where=where, hint="the login needs a role such as Reader there")
    if "SubscriptionNotFound" in said or "InvalidSubscriptionId" in said:
        return LoginMissing(said, where=where, hint=f"is {SUBSCRIPTION} right, and the login of its tenant?")
    change = f"is {setting(NAME, 'management_url')} right? Redirects are not followed"
    return Refused(said, where=where, hint=change if status < 400 else "")


def _unreachable(error: Exception, where: str) -> Unreachable:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        hint = f"a proxy or a private endpoint? Name its certificates with {setting(NAME, 'ca_bundle')}"
        return Unreachable(f"its certificate is not trusted: {_short(error)}", where=where, hint=hint)
    hint = f"is {setting(NAME, 'management_url')} right, and the network up?"
    return Unreachable(f"cannot be reached: {_short(error)}", where=where, hint=hint)


def _why(error: Exception) -> str:
    """What azure-identity says without what it says every time: its own name before, and a link behind."""
    said = str(error).partition("To mitigate this issue")[0].rpartition("Attempted credentials:")[2]
    return _short(Exception(said.replace("\n\t", "; ").strip(" ;\n")))


def _short(error: Exception) -> str:
    text = " ".join("".join(char if char.isprintable() else " " for char in str(error)).split())
    return (text or type(error).__name__)[:_SHOWN]
