"""The engine's adapter with the real SkyPilot where something of it is missing: what the caller is told to do next."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import pytest

from tests.slurm_cluster import free_ports

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_spec("sky") is None, reason="SkyPilot is not installed (the extra `skypilot`)"),
]

# Launches, and prints the class of the error with its bases, its message and its hint.
LAUNCH = """
import json
from broker.core.errors import BrokerError
from broker.engines.skypilot.sdk import Sdk
wanted = {"infra": "aws/us-east-1", "instance_type": "m6i.large"}
try:
    print(json.dumps(["launched", Sdk().launch({"name": "x", "run": "true", "resources": wanted}, "x-1"), ""]))
except BrokerError as error:
    print(json.dumps([[kind.__name__ for kind in type(error).__mro__], error.message, error.hint]))
"""
# What a client is told when the server's database is locked, and when it has no catalogue: the errors are made by the
# libraries themselves, and go the way of SkyPilot's own from its server to its client.
SERVERS = """
import json, sqlite3, sqlalchemy, requests
from sky.exceptions import deserialize_exception, serialize_exception
from broker.engines.skypilot.sdk import to_broker_error
def locked():
    engine = sqlalchemy.create_engine("sqlite:///state.db", connect_args={"timeout": 0.1})
    other = sqlite3.connect("state.db")
    other.execute("create table clusters(name)")
    other.commit()
    other.execute("begin exclusive")
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("insert into clusters values (1)"))
def no_catalogue():
    from sky.catalog import common
    common.read_catalog("aws/vms.csv")["InstanceType"]
told = []
for fail in (locked, no_catalogue):
    try:
        fail()
    except Exception as error:
        found = to_broker_error(deserialize_exception(serialize_exception(error)))
        told.append([[kind.__name__ for kind in type(found).__mro__], found.message, found.hint])
print(json.dumps(told))
"""


def said(program: str, home: Path, endpoint: str = "") -> list[list[str]]:
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    environment |= {"SKYPILOT_API_SERVER_ENDPOINT": endpoint} if endpoint else {}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=200,
        cwd=home,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    print(done.stdout)
    answer: list[list[str]] = json.loads(done.stdout.splitlines()[-1])
    return answer


@contextmanager
def server(version: str) -> Iterator[str]:
    """The address of what answers as a server of that version of SkyPilot does, before it is asked for anything."""

    class OldVersionHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            about = {
                "status": "healthy",
                "api_version": "1",
                "version": version,
                "commit": "0",
                "version_on_disk": version,
            }
            body = json.dumps(about).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), OldVersionHandler) as listening:
        Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


def test_a_server_that_is_down_is_asked_again(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    kinds, _, hint = said(LAUNCH, tmp_path, f"http://127.0.0.1:{port}")
    assert "RetryLater" in kinds
    assert "SKYPILOT_API_SERVER_ENDPOINT" in hint


def test_a_server_of_another_version_takes_a_person(tmp_path: Path) -> None:
    with server("0.5.0") as url:
        kinds, message, hint = said(LAUNCH, tmp_path, url)
    assert "AskAPerson" in kinds
    assert "0.5.0" in message
    assert "version" in hint


def test_a_locked_database_and_a_missing_catalogue_are_asked_again_and_say_what_to_do(tmp_path: Path) -> None:
    locked, missing = said(SERVERS, tmp_path)
    for (kinds, message, hint), word in ((locked, "database"), (missing, "~/.sky/catalogs")):
        assert "RetryLater" in kinds, message
        assert word in hint, (message, hint)
