"""AWS's lists of prices as files: CSV of hundreds of megabytes, parsed while they arrive.

If the server reports a file unchanged since an earlier poll, nothing is downloaded: that poll's rows hold, as of now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from broker.core.errors import BrokerError, HostUnknown, InvalidInput, Malformed, Refused, Throttled, Unreachable
from broker.core.market.offers import Offer, SkippedRow
from broker.core.values.clock import Clock
from providers.aws.products import NOT_YET
from providers.aws.settings import NAME, AwsSettings
from providers.conditional import ConditionalRead, dump_rows, load_rows
from providers.http import NO_NETWORK, redacted_url, setting, trust, without_address, worth_retrying
from providers.rows import OfferRows

if TYPE_CHECKING:
    import ssl

_SLOWEST = 100  # multiple of the timeout after which a download is given up
_LONGEST_LINE = 1 << 20  # bytes; the longest known line has about 3 kB


class ListReader(Protocol):
    """Parses one list and keeps the relevant lines."""

    def line(self, raw: bytes) -> None: ...

    def check(self, where: str) -> None:
        """Raises `Malformed` if the file was not such a list."""

    def rows(self, now: datetime) -> Iterator[Offer | SkippedRow]: ...


class ListFiles:
    """Reads such files. ``url_key``: the setting with their address."""

    def __init__(self, settings: AwsSettings, clock: Clock, url_key: str) -> None:
        self._settings = settings
        self._clock = clock
        self._url_key = url_key

    def read(self, url: str, reader: Callable[[], ListReader]) -> OfferRows:
        """The reader's result for the file. Raises `RetryLater`, `Refused` (403: no such region, or no list of it) and
        `Malformed`; rows received before a broken connection are yielded first.
        """
        from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

        rows: list[Offer | SkippedRow] = []
        retrying = Retrying(
            retry=retry_if_exception(worth_retrying),
            stop=stop_after_attempt(self._settings.attempts),
            wait=wait_exponential_jitter(initial=1, max=30),
            sleep=self._clock.sleep,
            reraise=True,
        )
        failure: BrokerError | None = None
        try:
            retrying(self._read, url, reader, rows)
        except BrokerError as error:
            failure = error
        yield from rows  # includes the rows that arrived before the failure
        if failure is not None:
            raise failure

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        """The TLS context, made once: loading the certificates takes longer than a request."""
        import httpx

        verify = trust(getattr(self._settings, self._url_key), self._settings.ca_bundle, setting(NAME, "ca_bundle"))
        return httpx.create_ssl_context() if isinstance(verify, bool) else verify

    def _read(self, url: str, make_reader: Callable[[], ListReader], rows: list[Offer | SkippedRow]) -> None:
        rows.clear()
        now = self._clock.now()
        download = _Download(self._settings, url, self._url_key, self._trust)
        reader = make_reader()
        try:
            for line in download.lines():
                reader.line(line)
            if download.unchanged is not None:
                rows.extend(load_rows(download.unchanged, now))
                return
            reader.check(download.where)
        finally:
            rows.extend(reader.rows(now))
        if not any(isinstance(row, SkippedRow) and row.reason == NOT_YET for row in rows):
            download.keep(dump_rows(rows))  # its content does not depend on the day


class _Download:
    """One list over HTTP, line by line."""

    def __init__(self, settings: AwsSettings, url: str, url_key: str, trust: ssl.SSLContext) -> None:
        self._settings = settings
        self._trust = trust
        self._url = url
        self._url_setting = setting(NAME, url_key)
        self._reads = ConditionalRead(redacted_url(self._url))
        self._headers: Mapping[str, str] = {}
        self.where = f"{NAME}: {redacted_url(self._url)}"
        self.unchanged: bytes | None = None

    def keep(self, content: bytes) -> None:
        """Keep the rows of the whole list for later polls."""
        self._reads.keep(self._headers, content)

    def lines(self) -> Iterator[bytes]:
        import httpx

        change = f"is {self._url_setting} right, and the network up?"
        headers = {"User-Agent": "gpubroker", "Accept-Encoding": "gzip", **self._reads.headers}
        try:
            with (
                httpx.Client(verify=self._trust, timeout=self._settings.timeout_seconds, headers=headers) as client,
                client.stream("GET", self._url) as answer,
            ):
                self.unchanged = self._reads.unchanged(answer.status_code)
                if self.unchanged is not None:
                    return
                if answer.status_code != 200:
                    raise self._refusal(answer.status_code, change)
                self._headers = answer.headers
                yield from self._split(answer.iter_bytes())
        except httpx.TimeoutException as error:
            seconds = self._settings.timeout_seconds
            raise Unreachable(f"no data for {seconds:g} s", where=self.where, hint=change) from error
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise InvalidInput(f"not a valid URL: {error}", where=self.where, hint=change) from error
        except httpx.DecodingError as error:
            raise Malformed(f"the response cannot be decompressed: {error}", where=self.where) from error
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            if without_address(error):
                host = urlsplit(self._url).hostname
                raise HostUnknown(f"no address for {host}", where=self.where, hint=NO_NETWORK) from error
            raise Unreachable(f"broken off or not reached: {reason}", where=self.where, hint=change) from error

    def _split(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        ends = time.monotonic() + _SLOWEST * self._settings.timeout_seconds
        rest = b""
        for piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
            if len(rest) > _LONGEST_LINE:
                raise Malformed(f"a line of more than {_LONGEST_LINE >> 20} MiB", where=self.where)
            if time.monotonic() > ends:
                raise Unreachable("the list is downloading too slowly", where=self.where)
        if rest:
            yield rest

    def _refusal(self, status: int, change: str) -> BrokerError:
        reason = f"HTTP {status}"
        if status == 429:
            return Throttled(f"{reason}: rate limit exceeded", where=self.where, hint="poll less often")
        if status >= 500 or status == 408:
            return Unreachable(reason, where=self.where, hint="AWS reports a server error; the next poll retries")
        return Refused(reason, where=self.where, hint=f"is there such a region? {change}")


def check_header(columns: Collection[str], required: Iterable[str], list_name: str, where: str) -> None:
    """Raises `Malformed` if a list lacks one of the ``required`` columns, so that it is not ``list_name`` is
    expected."""
    missing = [name for name in required if name not in columns]
    if missing:
        actual = f"without the column {missing[0]!r}" if columns else "that starts with no header line"
        raise Malformed(f"expected AWS's {list_name} as CSV, got something {actual}", where=where)
