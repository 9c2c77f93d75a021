"""Converts exceptions of Azure's SDK to the broker's errors."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from broker.core.errors import BrokerError, LoginMissing, Malformed, Refused, Throttled, Unreachable
from providers.azure.settings import NAME, SUBSCRIPTION
from providers.http import setting, short_message

AGAIN = "run `az login` again, or check AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"

# Azure's codes for a missing resource; a proxy's 404 proves nothing.
_GONE = ("ResourceNotFound", "ResourceGroupNotFound", "NotFound")
_CLOCK = re.compile(r"not yet valid|not within its valid time|AADSTS700024|NotYetValid")
_NO_ANSWER = re.compile(
    r"Failed to (establish|resolve)|timed out|Connection (refused|reset|aborted)|CERTIFICATE_VERIFY_FAILED"
)


class NotFound(Refused):
    """The resource does not exist (any more)."""


class NotPermitted(Refused):
    """The login lacks the role for it."""


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Converts the SDK's exceptions to a `BrokerError`. ``where``: for its message."""
    from azure.core import exceptions

    try:
        yield
    except BrokerError as error:
        error.where = error.where or where
        raise
    except exceptions.ClientAuthenticationError as error:
        raise _login_error(error, where) from error
    except (exceptions.DecodeError, exceptions.DeserializationError, exceptions.SerializationError) as error:
        if isinstance(error, exceptions.IncompleteReadError):
            raise Unreachable("the answer was cut short", where=where) from error
        raise Malformed(f"the answer cannot be read: {short_message(error)}", where=where) from error
    except exceptions.HttpResponseError as error:
        raise _service_error(error, where) from error
    except (exceptions.ServiceRequestError, exceptions.ServiceResponseError) as error:
        raise _unreachable(error, where) from error
    except exceptions.AzureError as error:
        raise Refused(short_message(error), where=where) from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        # For an answer of another shape, the SDK's parsers pass on the errors of their own code.
        raise Malformed(f"the answer cannot be read: {short_message(error)}", where=where) from error


def _login_error(error: Any, where: str) -> BrokerError:
    """The error of a failed login. Only the text of azure-identity's message shows that its authority was
    unreachable."""
    reason = _identity_message(error)
    if error.response is None and _NO_ANSWER.search(reason):
        hint = f"is the network up? Custom certificates: {setting(NAME, 'ca_bundle')}"
        return Unreachable(f"the login service cannot be reached: {reason}", where=where, hint=hint)
    return _login_expired(reason, where)


def _login_expired(reason: str, where: str) -> LoginMissing:
    hint = "is this machine's clock right? (timedatectl)" if _CLOCK.search(reason) else AGAIN
    return LoginMissing(f"the login is missing or has expired: {reason}", where=where, hint=hint)


def _service_error(error: Any, where: str) -> BrokerError:
    """The broker's error for a refusal by Azure."""
    status = error.status_code or 0
    headers = error.response.headers if error.response is not None else {}
    retry_after = headers.get("Retry-After", "")
    reason = f"HTTP {status}: {short_message(error)}"
    if status == 429 or (status == 503 and retry_after):
        seconds = float(retry_after) if retry_after.isdecimal() else None
        return Throttled(f"rate limit exceeded ({reason})", after=seconds, where=where, hint="poll less often")
    if status >= 500 or status == 408:
        return Unreachable(reason, where=where, hint="Azure reports a server error; the next poll retries")
    if status == 401:
        return _login_expired(reason, where)
    if status == 403:
        return NotPermitted(
            f"not permitted ({reason})", where=where, hint="the login needs a role such as Reader there"
        )
    if "SubscriptionNotFound" in reason or "InvalidSubscriptionId" in reason:
        return LoginMissing(reason, where=where, hint=f"is {SUBSCRIPTION} right, and the login of its tenant?")
    if status == 404 and getattr(error.error, "code", None) in _GONE:
        return NotFound(reason, where=where)
    change = f"is {setting(NAME, 'management_url')} right? Redirects are not followed"
    return Refused(reason, where=where, hint=change if status < 400 else "")


def _unreachable(error: Exception, where: str) -> Unreachable:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        hint = f"a proxy or a private endpoint? Name its certificates with {setting(NAME, 'ca_bundle')}"
        return Unreachable(f"its certificate is not trusted: {short_message(error)}", where=where, hint=hint)
    hint = f"is {setting(NAME, 'management_url')} right, and the network up?"
    return Unreachable(f"cannot be reached: {short_message(error)}", where=where, hint=hint)


def _identity_message(error: Exception) -> str:
    """azure-identity's message without its constant parts: its name and a link."""
    text = str(error).partition("To mitigate this issue")[0].rpartition("Attempted credentials:")[2]
    return short_message(text.replace("\n\t", "; ").strip(" ;\n") or error)


def is_silence(error: BaseException | None) -> bool:
    """Whether the error means that there was no answer, rather than a refusal."""
    from azure.core.exceptions import ServiceRequestError, ServiceResponseError

    return isinstance(error, ServiceRequestError | ServiceResponseError)
