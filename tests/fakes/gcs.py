"""Cloud Storage on loopback: a bucket with the XML API, which obstore uses, and the JSON API of the discovery document.

Each object is a resource of the document that Google ships with google-api-python-client: its metadata are checked
against the schema ``Object``, and each request corresponds to a method of the document that must have the request's
parameters, including preconditions on generations. The same objects are available by the JSON API, ``objects.get`` and
``objects.list``. Every write creates a new generation; generation 0 means "no object". Lists have pages of ``page``.
Only bearer tokens in ``tokens`` are accepted, and those in ``bounds`` within their boundary; ``writers``: the token
that wrote each object.
"""

import hashlib
import json
import re
import threading
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.fakes.gcp_cloud import DiscoveryDocument
from tests.fakes.gcs_bounds import Boundary

Json = dict[str, Any]
_GENERATION = "x-goog-if-generation-match"
_FIRST_GENERATION = 1_700_000_000_000_000  # like Google's: microseconds


@cache
def _document() -> DiscoveryDocument:
    return DiscoveryDocument("storage.v1.json")


class GcsRefusal(Exception):
    """An error as the answer: the status and its code."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


@dataclass(frozen=True)
class GcsObject:
    """One object: its bytes, and its metadata in the form of the document's resource."""

    data: bytes
    resource: Json

    @property
    def generation(self) -> str:
        return str(self.resource["generation"])

    def headers(self) -> dict[str, str]:
        updated = datetime.fromisoformat(self.resource["updated"])
        return {
            "ETag": f'"{self.resource["etag"]}"',
            "Last-Modified": format_datetime(updated, usegmt=True),
            "x-goog-generation": self.generation,
            "x-goog-metageneration": str(self.resource["metageneration"]),
        }


@dataclass
class _Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Asked:
    method: str
    name: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    token: str


class GcsBucket:
    """``with GcsBucket("runs", "token") as bucket``: ``bucket.url`` is its URL."""

    def __init__(self, name: str, *tokens: str, page: int = 1000) -> None:
        self.name, self.tokens, self.page = name, set(tokens), page
        self.bounds: Mapping[str, Boundary] = {}
        self.objects: dict[str, GcsObject] = {}
        self.made: Json = {}
        self.writers: dict[str, str] = {}
        self._uploads: dict[str, tuple[str, dict[int, bytes]]] = {}
        self._generations = count(_FIRST_GENERATION)
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> _Answer:
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        token = headers.get("authorization", "").removeprefix("Bearer ")
        json_api = parts.path.startswith("/storage/v1/")
        try:
            bounds = self.bounds.get(token)
            if token not in self.tokens and bounds is None:
                raise GcsRefusal(401, "AuthenticationRequired")
            with self._lock:
                if json_api and bounds is None:
                    return self._json(method, parts.path, query, body)
                bucket, _, name = unquote(parts.path).lstrip("/").partition("/")
                if bucket != self.name:
                    raise GcsRefusal(404, "NoSuchBucket")
                listed = method == "GET" and not name
                about = ("LIST", query.get("prefix", "")) if listed else (method, name)
                if bounds is not None and not bounds.allows(self.name, *about):
                    raise GcsRefusal(403, "AccessDenied")
                return self._xml(_Asked(method, name, query, headers, body, token))
        except GcsRefusal as error:
            if json_api:
                reason = {"PreconditionFailed": "conditionNotMet", "NoSuchKey": "notFound"}.get(error.code, error.code)
                told = {"code": error.status, "message": error.code, "errors": [{"reason": reason}]}
                return _Answer(error.status, json.dumps({"error": told}).encode())
            return _Answer(error.status, f"<Error><Code>{error.code}</Code></Error>".encode())

    # --- the JSON API, as the document has it -------------------------------------------------------------------------

    def _json(self, verb: str, path: str, query: dict[str, str], body: bytes = b"") -> _Answer:
        routed = _document().route(verb, path)
        if routed is None:
            raise GcsRefusal(404, "notFound")
        method, found = routed
        _document().check_query(method, query)
        if method["id"] in ("storage.buckets.insert", "storage.buckets.get"):
            return self._bucket(method, json.loads(body) if body else {"name": found["bucket"]})
        if method["id"] == "storage.objects.get":
            kept = self._existing(unquote(found["object"]), query)
            if query.get("alt") == "media":
                return _Answer(200, kept.data, kept.headers())
            answer = kept.resource
        elif method["id"] == "storage.objects.list":
            names = [name for name in sorted(self.objects) if name.startswith(query.get("prefix", ""))]
            answer = {"kind": "storage#objects", "items": [self.objects[name].resource for name in names]}
        else:
            raise GcsRefusal(501, "notImplemented")
        _document().check(method["response"], answer)
        return _Answer(200, json.dumps(answer).encode())

    def _bucket(self, method: Json, asked: Json) -> _Answer:
        """A server without a name becomes the bucket that is made; every other name is somebody else's."""
        _document().check({"$ref": "Bucket"}, asked)
        makes = method["id"].endswith("insert")
        if makes and not self.name:
            self.name, self.made = asked["name"], asked
        elif asked["name"] != self.name or makes:
            raise GcsRefusal(409 if makes else 403, "conflict" if makes else "forbidden")
        return _Answer(200, json.dumps(self.made).encode())

    # --- the XML API, each request as a method of the document --------------------------------------------------------

    def _xml(self, asked: _Asked) -> _Answer:
        match asked.method, asked.query:
            case "GET", _ if not asked.name:
                return self._list(asked.query)
            case "GET" | "HEAD", _:
                return self._get(asked)
            case "POST", {"uploads": _}:
                upload = f"upload-{next(self._generations)}"
                self._uploads[upload] = asked.name, {}
                return _Answer(body=f"<R><UploadId>{upload}</UploadId></R>".encode())
            case "PUT", {"uploadId": upload, "partNumber": number}:
                self._open(upload, asked.name)[int(number)] = asked.body
                return _Answer(headers={"ETag": f'"{hashlib.md5(asked.body).hexdigest()}"'})
            case "POST", {"uploadId": upload}:
                parts = self._open(upload, asked.name)
                numbers = [int(one.text or 0) for one in ElementTree.fromstring(asked.body).iter() if _is_number(one)]
                if not numbers or any(number not in parts for number in numbers):
                    raise GcsRefusal(400, "InvalidPart")
                kept = self._put(asked, b"".join(parts[number] for number in numbers))
                del self._uploads[upload]
                etag = escape(kept.headers()["ETag"])
                return _Answer(body=f"<R><ETag>{etag}</ETag></R>".encode(), headers=kept.headers())
            case "DELETE", {"uploadId": upload}:
                self._uploads.pop(upload, None)
                return _Answer(204)
            case "PUT", _:
                return _Answer(headers=self._put(asked, asked.body).headers())
            case "DELETE", _:
                self._means("DELETE", asked)
                self._existing(asked.name, self._preconditions(asked))
                del self.objects[asked.name]
                return _Answer(204)
        raise GcsRefusal(405, "MethodNotAllowed")

    def _open(self, upload: str, name: str) -> dict[int, bytes]:
        known, parts = self._uploads.get(upload, ("", {}))
        if known != name:
            raise GcsRefusal(404, "NoSuchUpload")
        return parts

    def _preconditions(self, asked: _Asked) -> dict[str, str]:
        wanted = asked.headers.get(_GENERATION)
        return {} if wanted is None else {"ifGenerationMatch": wanted}

    def _means(self, verb: str, asked: _Asked) -> None:
        """Check that the document has such a request: the method, with the preconditions as its parameters."""
        path = f"/storage/v1/b/{self.name}/o" + ("" if verb == "POST" else f"/{quote(asked.name, safe='')}")
        routed = _document().route(verb, path)
        assert routed is not None, (verb, path)
        _document().check_query(routed[0], self._preconditions(asked))

    def _existing(self, name: str, conditions: dict[str, str]) -> GcsObject:
        kept = self.objects.get(name)
        self._check(kept, conditions)
        if kept is None:
            raise GcsRefusal(404, "NoSuchKey")
        return kept

    def _check(self, kept: GcsObject | None, conditions: dict[str, str]) -> None:
        wanted = conditions.get("ifGenerationMatch")
        if wanted is not None and wanted != (kept.generation if kept else "0"):
            raise GcsRefusal(412, "PreconditionFailed")

    def _get(self, asked: _Asked) -> _Answer:
        self._means("GET", asked)
        kept = self._existing(asked.name, self._preconditions(asked))
        ranged = re.fullmatch(r"bytes=(\d+)-(\d*)", asked.headers.get("range", ""))
        if ranged is None:
            return _Answer(200, kept.data, kept.headers())
        first, last = int(ranged[1]), int(ranged[2] or len(kept.data) - 1)
        piece = kept.data[first : last + 1]
        told = f"bytes {first}-{first + len(piece) - 1}/{len(kept.data)}"
        return _Answer(206, piece, {**kept.headers(), "Content-Range": told})

    def _put(self, asked: _Asked, data: bytes) -> GcsObject:
        self._means("POST", asked)
        self._check(self.objects.get(asked.name), self._preconditions(asked))
        now = datetime.now(UTC).isoformat()
        generation = str(next(self._generations))
        resource = {
            "kind": "storage#object",
            "id": f"{self.name}/{asked.name}/{generation}",
            "bucket": self.name,
            "name": asked.name,
            "generation": generation,
            "metageneration": "1",
            "size": str(len(data)),
            "md5Hash": b64encode(hashlib.md5(data).digest()).decode(),
            "etag": hashlib.md5(f"{generation}".encode()).hexdigest(),
            "timeCreated": now,
            "updated": now,
            "storageClass": "STANDARD",
        }
        _document().check({"$ref": "Object"}, resource)
        self.objects[asked.name] = kept = GcsObject(data, resource)
        self.writers[asked.name] = asked.token
        return kept

    def _list(self, query: dict[str, str]) -> _Answer:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        rows: dict[str, str] = {}
        for name, kept in sorted(self.objects.items()):
            if not name.startswith(prefix):
                continue
            below = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
            if below[1]:
                folder = prefix + below[0] + delimiter
                rows[folder] = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            else:
                rows[name] = (
                    f"<Contents><Key>{escape(name)}</Key><Size>{len(kept.data)}</Size>"
                    f"<LastModified>{kept.resource['updated']}</LastModified>"
                    f"<ETag>{escape(kept.headers()['ETag'])}</ETag></Contents>"
                )
        left = [name for name in sorted(rows) if name > after]
        shown = left[: self.page]
        more = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if len(left) > len(shown) else ""
        listed = f"<ListBucketResult>{''.join(rows[name] for name in shown)}{more}</ListBucketResult>"
        return _Answer(200, listed.encode(), {"Content-Type": "application/xml"})


def _is_number(element: ElementTree.Element) -> bool:
    return element.tag.rpartition("}")[2] == "PartNumber"


def _handler(bucket: GcsBucket) -> type[BaseHTTPRequestHandler]:
    class GcsHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 2**16

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {key.lower(): value for key, value in self.headers.items()}
            answer = bucket.answer(self.command, self.path, headers, body)
            try:
                self.send_response(answer.status)
                for key, value in answer.headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)
                self.wfile.flush()
            except OSError:
                self.close_connection = True  # the client has closed the connection

        do_HEAD = do_POST = do_PUT = do_DELETE = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: tests inspect the bucket."""

    return GcsHandler
