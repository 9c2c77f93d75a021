"""Planted secrets of every kind, while everything that could let one slip is at work: a service on PostgreSQL, run
folders in S3, providers and notifications that fail, a job that runs. Nothing that is kept, printed or answered has
one in it."""

import secrets
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.engine import make_url

from tests.program import GPUBROKER, environment, eventually, run
from tests.system.object_stores import BUCKET, ObjectStore, s3

pytestmark = pytest.mark.system

JOB = """\
name: {name}
resources: {{cpus: 1}}
secrets: [TOKEN]
run: |
  echo this is {name}
  test -n "$TOKEN" && touch {seen}
  while [ ! -e {go} ]; do sleep 0.1; done
  mkdir -p "$GPUBROKER_CHECKPOINT_DIR" && echo saved > "$GPUBROKER_CHECKPOINT_DIR/step_1"
max_duration: 10m
"""


@pytest.fixture
def bucket() -> Iterator[ObjectStore]:
    with s3() as store:
        yield store


def planted(bucket: ObjectStore, database: str) -> tuple[dict[str, str], dict[str, str]]:
    """The environment with every kind of secret, and the secrets by what they are."""
    port = closed_port()
    kinds = (
        "job", "database", "notification user", "notification path", "token in a URL", "login in a URL", "lambda",
        "vast", "page", "azure",
    )  # fmt: skip
    secret = {kind: f"hunter2{secrets.token_hex(16)}" for kind in kinds}
    url = make_url(database).set(password=secret["database"])
    nowhere = f"http://someone:{secret['login in a URL']}@127.0.0.1:{port}/?sig={secret['token in a URL']}"
    desk = f"json://me:{secret['notification user']}@127.0.0.1:{port}/{secret['notification path']}"
    variables = {
        **bucket.first,
        "GPUBROKER_STORE": url.render_as_string(hide_password=False),
        "GPUBROKER_RUNS": bucket.url,
        "GPUBROKER_NOTIFY__DESK": desk,
        "GPUBROKER_PROVIDERS__RUNPOD__BASE_URL": nowhere,
        "GPUBROKER_PROVIDERS__VAST__BASE_URL": nowhere,
        "GPUBROKER_PROVIDERS__LAMBDA__BASE_URL": f"http://127.0.0.1:{port}",
        "GPUBROKER_SERVE__TOKEN": secret["page"],
        "LAMBDA_API_KEY": secret["lambda"],
        "VAST_API_KEY": secret["vast"],
        "AZURE_CLIENT_SECRET": secret["azure"],
        "TOKEN": secret["job"],
    }
    secret["object store"] = bucket.first["AWS_SECRET_ACCESS_KEY"]
    return variables, secret


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def found_in(where: str, content: bytes, secret: Mapping[str, str]) -> list[str]:
    return [f"{kind} in {where}" for kind, value in secret.items() if value.encode() in content]


def in_files(folder: Path, secret: Mapping[str, str]) -> list[str]:
    found = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file():
                found += found_in(str(path), path.read_bytes(), secret)
    return found


def in_processes(secret: Mapping[str, str]) -> list[str]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            found += found_in(f"the arguments of {process.name()}", "\0".join(process.cmdline()).encode(), secret)
    return found


def in_database(url: str, secret: Mapping[str, str]) -> list[str]:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    found = []
    with engine.connect() as connection:
        for table in inspect(connection).get_table_names():
            for row in connection.execute(text(f'SELECT * FROM "{table}"')):
                found += found_in(f"table {table}", repr(tuple(row)).encode(), secret)
    engine.dispose()
    return found


def in_bucket(bucket: ObjectStore, secret: Mapping[str, str]) -> list[str]:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=bucket.endpoint,
        region_name="us-east-1",
        aws_access_key_id=bucket.first["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=bucket.first["AWS_SECRET_ACCESS_KEY"],
    )
    names = [row["Key"] for row in client.list_objects_v2(Bucket=BUCKET).get("Contents", [])]
    found = []
    for name in names:
        with suppress(client.exceptions.NoSuchKey):
            found += found_in(f"object {name}", client.get_object(Bucket=BUCKET, Key=name)["Body"].read(), secret)
    return found


def answers(listen: str, token: str) -> bytes:
    """All that the service answers, with and without its token."""
    said = b""
    for path in ("/healthz", "/metrics", "/", "/nothing?token=x"):
        for headers in ({"Authorization": f"Bearer {token}"}, {}):
            request = urllib.request.Request(f"http://{listen}{path}", headers=headers)
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    said += str(answer.headers).encode() + answer.read()
            except urllib.error.HTTPError as refused:
                said += str(refused.headers).encode() + refused.read()
    return said


def test_no_secret_is_kept_printed_or_answered(
    tmp_path: Path, bucket: ObjectStore, new_postgres: Callable[[], str]
) -> None:
    database = new_postgres()
    variables, secret = planted(bucket, database)
    home, go, seen = tmp_path / "home", tmp_path / "go", tmp_path / "seen"
    home.mkdir(mode=0o700)
    job = tmp_path / "job.yaml"
    # No secret: its job's name turns up wherever a secret could, or this test does not look where it should.
    name = f"canary-{secrets.token_hex(4)}"
    canary = {"the canary": name}
    job.write_text(JOB.format(name=name, seen=seen, go=go))
    said: list[str] = []

    def command(*words: str, code: int | None = 0) -> Any:
        done = run(*words, home=home, timeout=120, env=variables)
        said.extend([done.stdout, done.stderr])
        assert code is None or done.returncode == code, done.stderr
        return done

    listen = f"127.0.0.1:{closed_port()}"
    asked = [word for name in ("runpod", "vast", "lambda", "owned") for word in ("--provider", name)]
    words = [*GPUBROKER, "serve", *asked, "--listen", listen]
    with (home / "serve.log").open("w") as log:
        service = subprocess.Popen(words, env=environment(home, **variables), cwd=tmp_path, stdout=log, stderr=log)
    try:
        eventually(lambda: "reconciling jobs" in (home / "serve.log").read_text(), "the service leads")
        command("submit", str(job), "--yes", "--detach")
        eventually(seen.exists, "the command runs and has its secret")
        command("prices", "watch", "add", "below=99", "--gpu", "H100", "--name", "cheap", code=None)
        command("notices", "desk", "--test", code=None)
        for question in (
            ("prices", "poll", "-p", "vast", "--json"), ("prices", "status"),
            ("doctor", "--verbose"), ("doctor", "--json"), ("doctor", "--sweep", "--json"), ("plan", str(job)),
            ("status", name, "--json"), ("logs", name), ("report", "billed", "--json"),
        ):  # fmt: skip
            command(*question, code=None)
        assert in_processes(canary)
        alive = in_processes(secret) + found_in("an answer", answers(listen, secret["page"]), secret)
        go.touch()
        eventually(lambda: "succeeded" in command("status", name, "--json").stdout, "the job has ended")
    finally:
        service.terminate()
        service.wait(240)
    printed = "".join(said).encode()
    assert all((in_database(database, canary), in_bucket(bucket, canary), in_files(home, canary)))
    assert found_in("what commands printed", printed, canary)
    assert b"reach" in printed or b"refused" in printed, "something failed whose address holds a secret"
    found = alive + in_database(database, secret) + in_bucket(bucket, secret) + in_files(home, secret)
    found += found_in("what commands printed", printed, secret)
    assert found == []
