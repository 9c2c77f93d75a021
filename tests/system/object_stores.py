"""Object stores as processes on loopback, each with the logins of two machines; and a line to them that can stall."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Self

import pytest

from tests.agent.node import eventually
from tests.fakes.gcs import GcsBucket

_PATIENCE = 60.0
BUCKET = "runs"


@dataclass(frozen=True)
class ObjectStore:
    """``url``: of the run folders. ``endpoint``: where it answers. ``first``, ``second``: what machines of two clouds
    have in their environment, each with a login of its own; ``stranger`` has one that is none."""

    url: str
    endpoint: str
    first: dict[str, str]
    second: dict[str, str]
    stranger: dict[str, str]

    def through(self, line: StallingLine) -> dict[str, str]:
        """The first machine's environment, with the store at the other end of that line."""
        return {name: value.replace(self.endpoint, line.url) for name, value in self.first.items()}


@contextmanager
def s3() -> Iterator[ObjectStore]:
    """moto's S3, which asks for signatures by keys that its IAM gave out."""
    pytest.importorskip("moto", reason="moto is not installed (the extra `dev`)")
    import boto3

    port = _free_port()
    endpoint = f"http://127.0.0.1:{port}"
    server = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _running(server, port, {}):
        known = {"endpoint_url": endpoint, "region_name": "us-east-1"}
        root = {**known, "aws_access_key_id": "root", "aws_secret_access_key": "root"}
        boto3.client("s3", **root).create_bucket(Bucket=BUCKET)
        iam = boto3.client("iam", **root)
        logins = []
        statement = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
        for user in ("on-aws", "on-google"):
            iam.create_user(UserName=user)
            document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
            iam.put_user_policy(UserName=user, PolicyName=BUCKET, PolicyDocument=document)
            key = iam.create_access_key(UserName=user)["AccessKey"]
            logins.append((key["AccessKeyId"], key["SecretAccessKey"]))
        _ask(
            "POST", f"{endpoint}/moto-api/reset-auth", {"Content-Type": "text/plain"}, b"0"
        )  # from now on all is asked
        first, second, stranger = (
            {
                "AWS_ACCESS_KEY_ID": name,
                "AWS_SECRET_ACCESS_KEY": secret,
                "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ALLOW_HTTP": "true",
            }
            for name, secret in (*logins, (logins[0][0], "guessed"))
        )
        yield ObjectStore(f"s3://{BUCKET}/team", endpoint, first, second, stranger)


@contextmanager
def azure(certificates: Path | None = None) -> Iterator[ObjectStore]:
    """Azurite, with the two keys that a storage account has. ``certificates``: a folder, for TLS and for tokens; the
    ``ca.pem`` in it signs the server's."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite is not installed: npm install azurite, and its node_modules/.bin on the PATH")
    port = _free_port()
    endpoint = f"{'http' if certificates is None else 'https'}://127.0.0.1:{port}"
    keys = [b64encode(letter * 64).decode() for letter in (b"1", b"2", b"3")]
    options = ["--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    if certificates is not None:
        options += ["--oauth", "basic", *_certificate(certificates)]
    command = [program, *options, "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with _running(command, port, {"AZURITE_ACCOUNTS": f"team:{keys[0]}:{keys[1]}"}):
        _make_container(endpoint, "team", keys[0])
        first, second, stranger = (
            {
                "AZURE_STORAGE_ACCOUNT_NAME": "team",
                "AZURE_STORAGE_ACCOUNT_KEY": key,
                "AZURE_STORAGE_ENDPOINT": f"{endpoint}/team",
                "AZURE_ALLOW_HTTP": "true",
            }
            for key in keys
        )
        yield ObjectStore(f"az://{BUCKET}/team", endpoint, first, second, stranger)


def _certificate(folder: Path) -> list[str]:
    """Of this machine, by a root that is made for it."""
    import trustme

    root = trustme.CA()
    root.cert_pem.write_to_path(str(folder / "ca.pem"))
    own = root.issue_cert("127.0.0.1")
    own.private_key_pem.write_to_path(str(folder / "key.pem"))
    own.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    return ["--cert", str(folder / "cert.pem"), "--key", str(folder / "key.pem")]


def _make_container(endpoint: str, account: str, key: str) -> None:
    """Azure's shared-key signature over an empty PUT, as its documentation spells it out."""
    date, version = format_datetime(datetime.now(UTC), usegmt=True), "2021-08-06"
    dated, what = [f"x-ms-date:{date}", f"x-ms-version:{version}"], f"/{account}/{account}/{BUCKET}\nrestype:container"
    signed = "\n".join(["PUT", *([""] * 11), *dated, what])
    signature = b64encode(hmac.new(b64decode(key), signed.encode(), hashlib.sha256).digest()).decode()
    headers = {"x-ms-date": date, "x-ms-version": version, "Authorization": f"SharedKey {account}:{signature}"}
    _ask("PUT", f"{endpoint}/{account}/{BUCKET}?restype=container", {**headers, "Content-Length": "0"}, None)


@contextmanager
def google() -> Iterator[ObjectStore]:
    """Our own Cloud Storage, which goes by its discovery document."""
    with GcsBucket(BUCKET, "on-google", "on-aws", page=3) as bucket:
        first, second, stranger = (
            {"GOOGLE_BASE_URL": bucket.url, "GOOGLE_BEARER_TOKEN": token, "GOOGLE_ALLOW_HTTP": "true"}
            for token in ("on-google", "on-aws", "guessed")
        )
        yield ObjectStore(f"gs://{BUCKET}/team", bucket.url, first, second, stranger)


class StallingLine:
    """A TCP line to a server. After `stall_after` so many bytes more pass upwards, and then none at all."""

    def __init__(self, endpoint: str) -> None:
        self._host, _, port = endpoint.removeprefix("http://").partition(":")
        self._port = int(port)
        self._lock = threading.Lock()
        self._left: int | None = None
        self._closing = threading.Event()
        self.stalled = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def stall_after(self, count: int) -> None:
        with self._lock:
            self._left = count

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        for end in (self._listener, *self._ends):
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((self._host, self._port))
                self._ends += [near, far]
                for source, sink, upwards in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._pump, args=(source, sink, upwards), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, upwards: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if upwards and not self._may_pass(len(data)):
                    self.stalled.set()
                    self._closing.wait()
                    return
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _may_pass(self, count: int) -> bool:
        with self._lock:
            if self._left is None:
                return True
            self._left -= count
            return self._left >= 0


@contextmanager
def _running(command: list[str], port: int, variables: dict[str, str]) -> Iterator[None]:
    """A server that is up once its port answers, and ends with the block."""
    process = subprocess.Popen(
        command, env={**os.environ, **variables}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        eventually(lambda: process.poll() is not None or _answers(port), f"{command[0]} answers", _PATIENCE)
        assert process.poll() is None, f"{command} did not start"
        yield
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _ask(method: str, url: str, headers: dict[str, str], body: bytes | None) -> None:
    request = urllib.request.Request(url, data=body, headers=headers, method=method)
    unseen = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # of a server that was started a moment ago
    unseen.check_hostname, unseen.verify_mode = False, ssl.CERT_NONE
    with urllib.request.urlopen(request, timeout=_PATIENCE, context=unseen) as answer:
        assert answer.status < 300
