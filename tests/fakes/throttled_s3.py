"""A read-only S3 bucket on loopback that limits the bytes per second of each connection, as real stores do.

Objects are stored as a size: their content is one repeated block. So a checkpoint of any size takes no memory.
"""

import hashlib
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BLOCK = bytes(range(256)) * 4096  # 1 MiB
_PIECE = 1 << 18
_PAGE = 1000
_DATE = "Wed, 25 Nov 2026 12:00:00 GMT"


def content(size: int, start: int = 0) -> Iterator[bytes]:
    """The bytes of an object of that size, from ``start`` on."""
    while start < size:
        offset = start % len(BLOCK)
        piece = BLOCK[offset : offset + min(_PIECE, size - start)]
        yield piece
        start += len(piece)


def sha256(size: int) -> str:
    digest = hashlib.sha256()
    for piece in content(size):
        digest.update(piece)
    return digest.hexdigest()


class ThrottledS3:
    """``with ThrottledS3(sizes, small) as server``.

    ``sizes``: objects by key; ``small``: objects with their content. ``rate``: bytes per second and connection;
    ``delay``: seconds before each answer. ``most_at_once``: the maximum number of concurrent requests so far; ``sent``:
    bytes of content; ``changed``: keys whose first byte is wrong.
    """

    def __init__(self, sizes: dict[str, int], small: dict[str, bytes], rate: float, delay: float = 0.0) -> None:
        self.sizes, self.small, self.rate, self.delay = sizes, small, rate, delay
        self.most_at_once = self.sent = self._under_way = 0
        self.changed: set[str] = set()
        self.asked: list[str] = []
        self._listed: tuple[str, dict[str, int | None], list[str]] = ("", {}, [])
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that a machine needs to read ``s3://runs/…`` here."""
        keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "us-east-1"}
        return {**keys, "AWS_ENDPOINT_URL": self.url, "AWS_ALLOW_HTTP": "true"}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class ThrottledHandler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 2**16

            def do_GET(self) -> None:
                with fake._lock:
                    fake._under_way += 1
                    fake.most_at_once = max(fake.most_at_once, fake._under_way)
                try:
                    fake._answer(self)
                except OSError:  # the client has closed the connection
                    self.close_connection = True
                finally:
                    with fake._lock:
                        fake._under_way -= 1

            do_HEAD = do_GET

            def do_PUT(self) -> None:
                key = unquote(urlsplit(self.path).path).removeprefix("/runs/")
                fake.small[key] = self.rfile.read(int(self.headers["Content-Length"]))
                fake._send(self, 200, 0, {"ETag": '"put"'})

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        return ThrottledHandler

    def _answer(self, http: BaseHTTPRequestHandler) -> None:
        if self.delay:
            time.sleep(self.delay)  # the delay of a distant store
        parts = urlsplit(http.path)
        key = unquote(parts.path).removeprefix("/runs").removeprefix("/")
        if not key:
            self._list(http, {name: values[0] for name, values in parse_qs(parts.query).items()})
            return
        size = self.sizes.get(key, len(self.small.get(key, b"")))
        if key not in self.sizes and key not in self.small:
            self._send(http, 404, 0, {})
            return
        self.asked.append(key)
        first, last, status = 0, size - 1, 200
        if asked := http.headers.get("Range"):
            begin, _, end = asked.removeprefix("bytes=").partition("-")
            first, last, status = int(begin), min(int(end or last), last), 206
        told = {"ETag": f'"{size}"', "Last-Modified": _DATE, "Content-Range": f"bytes {first}-{last}/{size}"}
        self._send(http, status, last - first + 1, told)
        if http.command == "HEAD":
            return
        pieces = iter([self.small[key][first : last + 1]]) if key in self.small else content(last + 1, first)
        began, sent = time.monotonic(), 0
        for piece in pieces:
            http.wfile.write(b"\xff" + piece[1:] if key in self.changed and not first + sent else piece)
            sent += len(piece)
            ahead = sent / self.rate - (time.monotonic() - began)
            if ahead > 0:
                time.sleep(ahead)
        self.sent += sent

    def _list(self, http: BaseHTTPRequestHandler, asked: dict[str, str]) -> None:
        prefix, delimiter, after = (asked.get(name, "") for name in ("prefix", "delimiter", "continuation-token"))
        every = self.sizes | {key: len(value) for key, value in self.small.items()}
        if not (after and prefix == self._listed[0]):  # a later page continues the same list
            seen: dict[str, int | None] = {}
            for key, size in every.items():
                if key.startswith(prefix):
                    folder, deeper, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
                    seen |= {prefix + folder + delimiter: None} if deeper else {key: size}
            self._listed = prefix, seen, sorted(seen)
        _, found, keys = self._listed
        begin = bisect_right(keys, after) if after else 0
        page, more = keys[begin : begin + _PAGE], len(keys) > begin + _PAGE
        rows = [
            f"<Contents><Key>{escape(key)}</Key><Size>{found[key]}</Size><ETag>x</ETag>"
            "<LastModified>2026-11-25T12:00:00.000Z</LastModified></Contents>"
            if found[key] is not None
            else f"<CommonPrefixes><Prefix>{escape(key)}</Prefix></CommonPrefixes>"
            for key in page
        ]
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        text = (
            f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{''.join(rows)}</ListBucketResult>"
        )
        body = text.encode()
        self._send(http, 200, len(body), {"Content-Type": "application/xml"})
        http.wfile.write(body)

    def _send(self, http: BaseHTTPRequestHandler, status: int, length: int, headers: dict[str, str]) -> None:
        http.send_response(status)
        for name, value in {"Content-Length": str(length), **headers}.items():
            http.send_header(name, value)
        http.end_headers()
