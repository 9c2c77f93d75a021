"""JSON over HTTP for providers without an SDK: timeouts, retries, rate limits, and the broker's errors.

httpx is used in this file only. Numbers arrive as int and Decimal, never as float.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import urlencode, urlsplit

from pydantic import AfterValidator, Field, SecretStr

from broker.core.errors import (
    BrokerError,
    HostUnknown,
    InvalidInput,
    LoginMissing,
    Malformed,
    OutcomeUnknown,
    Refused,
    RetryLater,
    Throttled,
    Unreachable,
)
from broker.core.values.clock import Clock
from providers.conditional import ConditionalRead
from providers.registry import ProviderSettings

if TYPE_CHECKING:
    import ssl

    import httpx
    import tenacity

NO_NETWORK = "is the network up? `gpubroker doctor --verbose` lists every address and the setting that changes it"
_MAX_ANSWER = 64 * 2**20  # bytes; the largest known page has about 2 MB
_LONGEST_WAIT = 60.0  # s; if the server asks for more, the next poll tries again
_WHOLE_ANSWER = 6  # multiple of the timeout after which a slow answer counts as none
# Headers that say how long to wait; Azure's price list has its own.
_WAITS = ("Retry-After", "x-ms-ratelimit-retailprices-retry-after")
_TOO_MANY = 429  # HTTP's status "Too Many Requests"
_MAX_MESSAGE = 300  # characters of a service's message
_LOGIN_IN_URL = re.compile(r"://[^/\s\"']*@")
_QUERY_IN_URL = re.compile(r"(/[^\s\"'?]*)\?[^\s\"')]+")


def _require_http(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected a URL such as https://prices.example.com")
    return url.rstrip("/")


Url = Annotated[str, AfterValidator(_require_http)]


class HttpSettings(ProviderSettings):
    """``ca_bundle``: certificates (PEM) to trust instead of the usual ones, for proxies and private endpoints.
    ``timeout_seconds``: for connecting, and for each pause of the server. ``attempts``: total tries per call."""

    ca_bundle: Path | None = None
    timeout_seconds: float = Field(default=20.0, gt=0, le=600)
    attempts: int = Field(default=4, ge=1, le=10)


def setting(provider: str, key: str) -> str:
    """The environment variable that sets ``key`` of a provider."""
    return f"GPUBROKER_PROVIDERS__{provider.upper()}__{key.upper()}"


def endpoint(provider: str, key: str, url: str) -> Mapping[str, str]:
    """An endpoint for `describe_setup`: its URL without a login, and its setting."""
    return {"url": redacted_url(url), "setting": setting(provider, key), "tls": setting(provider, "ca_bundle")}


def redacted_url(url: str) -> str:
    """The URL without user, password and query."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def without_logins(message: object) -> str:
    """An SDK's error message without user, password and query of its URLs."""
    return _QUERY_IN_URL.sub(r"\1", _LOGIN_IN_URL.sub("://", str(message)))


def short_message(message: object) -> str:
    """An SDK's message, or its exception's, in one printable line without logins, of 300 characters at most.

    An exception without text is told by its class.
    """
    return _single_line(without_logins(message)) or type(message).__name__


def _single_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:_MAX_MESSAGE]


def usable_key(secret: SecretStr | str | None) -> str | None:
    """The key, or None if it is missing or has characters that cannot be sent (line ends, spaces)."""
    text = secret.get_secret_value() if isinstance(secret, SecretStr) else secret or ""
    text = text.strip()
    return text if text and text.isascii() and text.isprintable() and " " not in text else None


class Api:
    """Calls to one HTTP API for the length of one poll; use it in a ``with`` statement.

    Calls are retried on timeouts, refused connections, 5xx and 429, with exponential back-off and jitter, and after
    the time that the server asks for; waiting is the ``clock``'s. ``login_hint``: what to do about a missing or expired
    login; without it a 401 is a refusal like any other. ``url_key``: the setting that holds ``base_url``.
    ``per_second``: the number of calls per second that the server allows.
    """

    def __init__(
        self,
        provider: str,
        base_url: str,
        settings: HttpSettings,
        clock: Clock,
        *,
        login_hint: str = "",
        url_key: str = "base_url",
        per_second: float | None = None,
    ) -> None:
        self._provider = provider
        self._base = base_url
        self._settings = settings
        self._clock = clock
        self._login_hint = login_hint
        self._url_setting = setting(provider, url_key)
        self._gap = 1 / per_second if per_second else 0.0
        self._last: datetime | None = None
        self._status = 0  # headers of the last answer
        self._secrets: set[str] = set()
        self._client: httpx.Client | None = None

    def __enter__(self) -> Self:
        """Raises `InvalidInput` for a CA bundle that cannot be used."""
        import httpx

        settings = self._settings
        self._client = httpx.Client(
            verify=trust(self._base, settings.ca_bundle, setting(self._provider, "ca_bundle")),
            timeout=settings.timeout_seconds,
            headers={"Accept": "application/json", "User-Agent": "gpubroker"},
        )
        return self

    def __exit__(self, *exc: object) -> None:
        if self._client is not None:
            self._client.close()

    def get(
        self, path: str, *, params: Mapping[str, str] | None = None, token: str | None = None, header: str = ""
    ) -> Any:
        """The JSON answer to a GET. ``token``: sent as a bearer token, or unchanged in ``header``.

        Raises `Throttled`, `Unreachable`, `LoginMissing`, `Refused`, `Malformed`, or `InvalidInput` for a URL that
        cannot be asked; read-only, so repeating is safe.
        """
        return self._call("GET", path, params=params, headers=self._bearer(token, header))

    def document(self, path: str, *, params: Mapping[str, str] | None = None) -> Any:
        """The JSON of a public document. The server does not send it again if it is unchanged since an earlier poll.
        Raises what `get` raises."""
        address = f"{redacted_url(_join(self._base, path))}{'?' * bool(params)}{urlencode(params or {})}"
        reads = ConditionalRead(address)
        return self._call("GET", path, params=params, headers=reads.headers, reads=reads)

    def text(self, path: str) -> bytes:
        """The text of a public document that is not JSON; otherwise as `document`."""
        reads = ConditionalRead(redacted_url(_join(self._base, path)))
        return bytes(
            self._call("GET", path, headers={**reads.headers, "Accept": "*/*"}, reads=reads, parse=lambda body, _: body)
        )

    def post(self, path: str, body: object, *, token: str | None = None, secret: str | None = None) -> Any:
        """The JSON answer to a POST of ``body`` as JSON; for read-only calls. ``secret``: the part of the body that
        must not be shown. Raises what `get` raises."""
        self._secrets |= {secret} if secret else set()
        return self._call("POST", path, json=body, headers=self._bearer(token))

    def post_once(self, path: str, body: object, *, token: str, key: str) -> Any:
        """The JSON answer to a POST of ``body`` that must not take effect twice: it is sent once, with ``key`` as
        Idempotency-Key. Raises `OutcomeUnknown` if it may have taken effect, else what `get` raises."""
        return self._once_only("POST", path, json=body, headers={**self._bearer(token), "Idempotency-Key": key})

    def delete_once(self, path: str, *, token: str) -> Any:
        """The JSON answer to a DELETE, which is sent once. Raises as `post_once`."""
        return self._once_only("DELETE", path, headers=self._bearer(token))

    def _once_only(self, method: str, path: str, **request: Any) -> Any:
        import httpx

        self._status = 0
        try:
            return self._once(method, path, request)
        except HostUnknown:
            raise
        except (RetryLater, Malformed) as error:
            if isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout) or self._status == _TOO_MANY:
                raise  # not sent, or not processed. A 503 proves neither, even one with Retry-After
            raise OutcomeUnknown(error.message, where=error.where) from error

    def _bearer(self, token: str | None, header: str = "") -> Mapping[str, str]:
        if token is None:
            return {}
        self._secrets.add(token)
        return {header: token} if header else {"Authorization": f"Bearer {token}"}

    def _call(
        self, method: str, path: str, reads: ConditionalRead | None = None, parse: _Parse | None = None, **request: Any
    ) -> Any:
        return retrying(self._settings, self._clock)(self._once, method, path, request, reads, parse)

    def _once(
        self,
        method: str,
        path: str,
        request: Mapping[str, Any],
        reads: ConditionalRead | None = None,
        parse: _Parse | None = None,
    ) -> Any:
        assert self._client is not None, "use Api in a with statement"
        self._keep_distance()
        url = _join(self._base, path)
        where = f"{self._provider}: {redacted_url(url)}"
        with (
            translate_errors(self._provider, url, self._url_setting, self._settings, self._login_hint),
            self._client.stream(method, url, **request) as answer,
        ):
            body = self._read(answer, where)
            self._status = answer.status_code
            cached = reads.unchanged(answer.status_code) if reads else None
            if cached is None and not answer.is_success:
                raise self._refusal(answer, body, where)
        document = (parse or _json)(body if cached is None else cached, where)
        if reads and cached is None and answer.status_code == 200:
            reads.keep(answer.headers, body)
        return document

    def _keep_distance(self) -> None:
        if self._gap and self._last is not None:
            remaining = self._gap - (self._clock.now() - self._last).total_seconds()
            if remaining > 0:
                self._clock.sleep(remaining)
        self._last = self._clock.now()

    def _read(self, answer: httpx.Response, where: str) -> bytes:
        """The body, limited in size and time."""
        ends = time.monotonic() + _WHOLE_ANSWER * self._settings.timeout_seconds
        body = bytearray()
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > _MAX_ANSWER:
                raise Malformed(f"an answer of more than {_MAX_ANSWER >> 20} MiB", where=where)
            if time.monotonic() > ends:
                raise Unreachable("the response is too slow", where=where)
        return bytes(body)

    def _refusal(self, answer: httpx.Response, body: bytes, where: str) -> BrokerError:
        status = answer.status_code
        status_line = f"HTTP {status} {answer.reason_phrase}".strip()
        now = self._clock.now()
        waits = [wait for name in _WAITS if (wait := retry_after(answer.headers.get(name), now)) is not None]
        retry_seconds = max(waits, default=None)
        if error := status_error(status, status_line, where, retry_seconds, self._login_hint):
            return error
        text = body[:2000].decode("utf-8", "replace")
        for secret in self._secrets:  # some services echo the secret in the refusal
            text = text.replace(secret, "***")
        detail = f": {shown_text}" if (shown_text := _single_line(text)) else ""
        hint = f"is {self._url_setting} right? Redirects are not followed" if status < 400 else ""
        return Refused(status_line + detail, where=where, hint=hint)


@contextmanager
def translate_errors(
    provider: str, url: str, url_setting: str, settings: HttpSettings, login_hint: str = ""
) -> Iterator[None]:
    """Converts httpx's exceptions about a request of ``url`` to the broker's errors."""
    import httpx

    where, change = f"{provider}: {redacted_url(url)}", f"is {url_setting} right, and the network up?"
    try:
        yield
    except httpx.TimeoutException as error:
        raise Unreachable(f"no answer within {settings.timeout_seconds:g} s", where=where, hint=change) from error
    except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise InvalidInput(f"not a valid URL: {error}", where=where, hint=change) from error
    except httpx.LocalProtocolError:
        # The message contains the invalid header, and so the key: it is not passed on.
        what = "the request is not valid HTTP: a header has invalid characters"
        raise InvalidInput(what, where=where, hint=login_hint) from None
    except httpx.DecodingError as error:
        raise Malformed(f"the response cannot be decompressed: {error}", where=where) from error
    except httpx.HTTPError as error:
        reason = str(error) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            change = f"a proxy or a private endpoint? Set {setting(provider, 'ca_bundle')} to its CA"
            raise Unreachable(f"its certificate is not trusted: {reason}", where=where, hint=change) from error
        if without_address(error):
            raise HostUnknown(f"no address for {urlsplit(url).hostname}", where=where, hint=NO_NETWORK) from error
        raise Unreachable(f"cannot be reached: {reason}", where=where, hint=change) from error


def status_error(
    status: int, message: str, where: str, after: float | None = None, login_hint: str = ""
) -> BrokerError | None:
    """The error for a status that means the same everywhere: too many requests, a server's fault, and with a
    ``login_hint`` an unusable login. ``after``: seconds that the server asks to wait."""
    if status == _TOO_MANY or (status == 503 and after is not None):
        return Throttled(f"{message}: rate limit exceeded", after=after, where=where, hint="poll less often")
    if status >= 500 or status == 408:
        return Unreachable(message, where=where, hint="the provider reports a server error; the next poll retries")
    if status in (401, 403) and login_hint:
        return LoginMissing(f"{message}: the login is wrong or has expired", where=where, hint=login_hint)
    return None


def retrying(settings: HttpSettings, clock: Clock) -> tenacity.Retrying:
    """Repeats a function that raises `RetryLater`, at most ``attempts`` times in all, after a pause on the ``clock``:
    exponential with jitter, and at least as long as the server asks for. Does not repeat if the server asks for more
    than a minute, or if its name has no address."""
    from tenacity import Retrying, retry_if_exception

    return Retrying(
        retry=retry_if_exception(worth_retrying),
        stop=lambda state: state.attempt_number >= settings.attempts or _requested_wait(state) > _LONGEST_WAIT,
        wait=_pause,
        sleep=clock.sleep,
        reraise=True,
    )


def worth_retrying(error: BaseException) -> bool:
    """Whether the request may succeed a little later. It will not if the host's name has no address."""
    return isinstance(error, RetryLater) and not isinstance(error, HostUnknown)


def without_address(error: BaseException | None) -> bool:
    """Whether the name of the host could not be resolved."""
    while error is not None:
        if isinstance(error, socket.gaierror):
            return True
        error = error.__cause__ or error.__context__
    return False


def _join(base: str, path: str) -> str:
    """``path`` under ``base``, which may already end with the start of the path (``…/v1`` and ``/v1/prices``)."""
    parts, base_path = path.split("/")[1:], urlsplit(base).path
    for number in range(len(parts), 0, -1):
        if base_path.endswith("/" + "/".join(parts[:number])):
            return "/".join([base, *parts[number:]])
    return base + path


def _pause(state: tenacity.RetryCallState) -> float:
    """Seconds until the next try."""
    from tenacity import wait_exponential, wait_random

    backoff = wait_exponential(multiplier=0.5, max=30) + wait_random(0, 0.5)
    return max(float(backoff(state)), _requested_wait(state))


def _requested_wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    return float(getattr(error, "after", None) or 0.0)


def retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds, from a Retry-After header: a number, or an HTTP date."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value[:9])
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds())


def trust(url: str, bundle: Path | None, variable: str) -> ssl.SSLContext | bool:
    """The certificates for httpx; True: httpx's own. Raises `InvalidInput` for a file without certificates."""
    import ssl

    if bundle is None:
        # Plain HTTP needs no certificates, and loading them takes longer than a local request.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.startswith("http:") else True
    try:
        return ssl.create_default_context(cafile=str(bundle))
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"cannot read certificates: {error}", where=str(bundle), hint=variable) from error


_Parse = Callable[[bytes, str], Any]


def _json(body: bytes, where: str) -> Any:
    try:
        return json.loads(body, parse_float=_exact, parse_constant=Decimal)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        actual = "nothing" if not body.strip() else f"something else ({error})"
        raise Malformed(f"expected JSON, got {actual}", where=where) from error


def _exact(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent beyond all bounds
        return Decimal("NaN")
