"""Converts exceptions of Google's SDK and its libraries; reads a page that the SDK cannot read row by row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from broker.core.errors import (
    BrokerError,
    InvalidInput,
    LoginMissing,
    Malformed,
    QuotaExceeded,
    Refused,
    Throttled,
    Unreachable,
)
from broker.core.market.offers import SkippedRow
from broker.core.values.clock import Clock
from providers.gcp.login import LOGIN_HINT
from providers.gcp.settings import NAME
from providers.http import retry_after, setting, short_message
from providers.rows import short

if TYPE_CHECKING:
    import requests

_THROTTLED = {"rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED"}
_DISABLED = {"accessNotConfigured", "SERVICE_DISABLED"}
_QUOTA = {"quotaExceeded", "QUOTA_EXCEEDED"}
_NETWORK = f"is the network up, and are {setting(NAME, 'compute_url')} and {setting(NAME, 'billing_url')} right?"


def unreadable() -> tuple[type[Exception], ...]:
    """The exceptions of Google's parsers: their own error, and those that they pass on unchanged."""
    from google.protobuf.json_format import Error

    return Error, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError


def row_by_row(body: bytes, client: str, answer: str, key: str, scoped: bool, unread: list[SkippedRow]) -> Any:
    """The answer without the rows that cannot be read; those are added to ``unread``. ``answer``: the name of the
    SDK's message. Raises one of `unreadable` when nothing of it makes sense."""
    document = json.loads(body)
    if not isinstance(document, dict):
        raise ValueError(f"not a JSON object: {short(document)}")
    page = _message(client, answer)
    if scoped:
        scopes: Any = {}
        for scope, inner in _scopes(document.get("items"), unread):
            scoped_list = page.DESCRIPTOR.fields_by_name["items"].message_type.fields_by_name["value"]
            row_type = _message_type(scoped_list.message_type.fields_by_camelcase_name[key])
            scopes[scope] = {key: list(_readable_rows(inner.get(key), row_type, unread))}
        fields = {"items": scopes}
    else:
        fields = {
            key: list(
                _readable_rows(document.get(key), _message_type(page.DESCRIPTOR.fields_by_camelcase_name[key]), unread)
            )
        }
    _parse_into({**fields, "nextPageToken": document.get("nextPageToken")}, page)
    return page


def _message(client: str, answer: str) -> Any:
    types = import_module(f"google.cloud.{'billing_v1' if client == 'CloudCatalogClient' else 'compute_v1'}.types")
    wrapper = getattr(types, answer)
    return wrapper.pb(wrapper())


def _scopes(items: object, unread: list[SkippedRow]) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(items, dict):
        if items is not None:
            raise ValueError(f"no places in the answer: {short(items)}")
        return
    for scope, inner in items.items():
        if isinstance(inner, dict):
            yield scope, inner
        else:
            unread.append(SkippedRow("malformed_row", f"{short(scope)}: {short(inner)}"))


def _readable_rows(rows: object, row_type: Any, unread: list[SkippedRow]) -> Iterator[dict[str, Any]]:
    if rows is None:
        return
    if not isinstance(rows, list):
        unread.append(SkippedRow("malformed_row", f"not a list of rows: {short(rows)}"))
        return
    for row in rows:
        try:
            if not isinstance(row, dict):
                raise ValueError(f"not a JSON object: {short(row)}")
            _parse_into(row, row_type())
        except unreadable() as error:
            unread.append(SkippedRow("malformed_row", " ".join(str(error).split())[:200] or type(error).__name__))
        else:
            yield row


def _parse_into(document: dict[str, Any], message: Any) -> None:
    from google.protobuf import json_format

    json_format.ParseDict(document, message, ignore_unknown_fields=True)


def _message_type(field: Any) -> Any:
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(field.message_type)


class NotFound(Refused):
    """The resource or the service's method does not exist."""


class AlreadyExists(Refused):
    """A resource with that name exists already."""


class BadRequest(Refused):
    """The service rejects the request itself (400)."""


@contextmanager
def translate_errors(where: str, answers: list[requests.Response], clock: Clock) -> Iterator[None]:
    """Converts every exception to a `BrokerError`. ``answers``: holds the last HTTP answer, if there was one."""
    import requests
    from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError
    from google.auth.exceptions import GoogleAuthError, TransportError

    try:
        yield
    except BrokerError:
        raise
    except requests.Timeout as error:
        raise Unreachable("no answer in time", where=where, hint=_NETWORK) from error
    except requests.TooManyRedirects as error:
        raise Refused("redirected; redirects are not followed", where=where, hint=_NETWORK) from error
    except (requests.exceptions.InvalidURL, requests.exceptions.MissingSchema) as error:
        raise InvalidInput(f"not a valid URL: {short_message(error)}", where=where, hint=_NETWORK) from error
    except (requests.RequestException, TransportError) as error:
        raise Unreachable(f"cannot be reached: {short_message(error)}", where=where, hint=_NETWORK) from error
    except GoogleAuthError as error:
        raise LoginMissing(
            f"the login is not accepted: {short_message(error)}", where=where, hint=LOGIN_HINT
        ) from error
    except GoogleAPICallError as error:
        answer = answers[0] if answers else None
        raise _service_error(error.code or 0, _service_message(error), _reasons(error), answer, where, clock) from error
    except GoogleAPIError as error:
        raise Unreachable(short_message(error), where=where, hint=_NETWORK) from error
    except OSError as error:  # a CA bundle that cannot be read, a socket that broke in an unusual place
        raise Unreachable(f"cannot be reached: {short_message(error)}", where=where, hint=_NETWORK) from error
    except unreadable() as error:
        if answers and answers[0].status_code >= 400:  # an error that the SDK cannot read
            answer = answers[0]
            raise _service_error(answer.status_code, answer.reason or "", set(), answer, where, clock) from error
        raise Malformed(f"the answer cannot be read: {short_message(error)}", where=where) from error


def _service_error(
    status: int, detail: str, reasons: set[str], answer: requests.Response | None, where: str, clock: Clock
) -> BrokerError:
    """A service's refusal, by its status and the reasons it names."""
    message = f"HTTP {status}: {detail}" if detail else f"HTTP {status}"
    retry_seconds = retry_after(answer.headers.get("Retry-After"), clock.now()) if answer is not None else None
    if status == 429 or reasons & _THROTTLED or (status == 503 and retry_seconds is not None):
        return Throttled(f"rate limit exceeded ({message})", after=retry_seconds, where=where, hint="poll less often")
    if status >= 500 or status == 408:
        return Unreachable(message, where=where, hint="Google Cloud reports a server error; the next poll retries")
    if status == 401 or (status == 403 and not reasons):  # a 403 of Google's own says why
        return LoginMissing(f"the login is wrong or has expired ({message})", where=where, hint=LOGIN_HINT)
    if reasons & _DISABLED:
        hint = "enable it: gcloud services enable compute.googleapis.com cloudbilling.googleapis.com"
        return Refused(f"the API is not enabled in the project ({message})", where=where, hint=hint)
    if reasons & _QUOTA:
        return QuotaExceeded(
            message, where=where, hint="request a higher quota on the Quotas page of the Cloud console"
        )
    if status == 403:
        return Refused(
            f"not permitted ({message})",
            where=where,
            hint="the login needs the role Compute Viewer, and to buy, Compute Admin",
        )
    if status == 404:
        return NotFound(message, where=where, hint=f"is the project right? {setting(NAME, 'project')}")
    if status == 409 and "alreadyExists" in reasons:
        return AlreadyExists(message, where=where)
    if status == 400:
        return BadRequest(message, where=where)
    return Refused(message, where=where)


def _service_message(error: Any) -> str:
    # The SDK prefixes the service's message with method and URL.
    return short_message(str(error.message).partition(": ")[2] or error.message or error)


def _reasons(error: Any) -> set[str]:
    """The service's error reasons: in the old form (``errors``) and the new one (``ErrorInfo``)."""
    legacy = [entry.get("reason") for entry in error.errors or () if isinstance(entry, dict)]
    return {reason for reason in (*legacy, error.reason) if isinstance(reason, str) and reason}
