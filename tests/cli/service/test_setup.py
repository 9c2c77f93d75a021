"""`gpubroker setup aws` on moto and the fakes of AWS; what is the same for every cloud; `plan` and `doctor`."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import typer
from rich.console import Console

from broker.agent import aws as aws_tools
from broker.app import clouds
from broker.app.market import polling
from broker.cli.terminal import Terminal
from tests.cli.conftest import Gpubroker
from tests.fakes import checked_skypilot
from tests.fakes.aws_files import Files, advisor, on_demand, product, serve_files

if TYPE_CHECKING:
    from tests.fakes.aws_cloud import AwsCloud

KEYS = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "not-a-secret"}


@pytest.fixture(scope="module")
def _files() -> Iterator[Files]:
    with serve_files() as files:
        yield files


@pytest.fixture
def aws(
    aws_server: AwsCloud, _files: Files, skypilot: Callable[[str], None], home: Path, monkeypatch: pytest.MonkeyPatch
) -> AwsCloud:
    """An account with a small market, a login to it in the variables, and nothing else."""
    from tests.fakes.aws_cloud import get_products

    aws_server.clear()
    aws_tools._aws_session.cache_clear()
    boto3.client("s3", endpoint_url=aws_server.url, region_name="us-east-1", **_keys())  # boto3 is slow the first time
    for variable in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    nowhere = {"AWS_CONFIG_FILE": "none", "AWS_SHARED_CREDENTIALS_FILE": "none", "AWS_ENDPOINT_URL": aws_server.url}
    for name, value in {**KEYS, **nowhere, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "eu-west-1"}.items():
        monkeypatch.setenv(name, value)
    settings = f'regions = ["eu-west-1"]\nattempts = 1\nspot_advisor_url = "{_files.url}"\n'
    (home.parent / "gpubroker.toml").write_text(f"[providers.aws]\n{settings}", encoding="utf-8")
    machine = product("g5.xlarge", "eu-west-1", GPU="1")
    aws_server.products = get_products([(machine, [on_demand(machine, "1.0060000000")])])
    aws_server.quotas["eu-west-1"] = [("Running On-Demand G and VT instances", 64.0)]
    _files.put_advisor(advisor({"eu-west-1": {"g5.xlarge": (60, 1)}}))
    skypilot("aws")
    return aws_server


def _keys() -> dict[str, str]:
    return {name.lower(): value for name, value in KEYS.items()}


def s3(cloud: AwsCloud, region: str = "eu-west-1") -> Any:
    return boto3.client("s3", endpoint_url=cloud.url, region_name=region, **_keys())


def buckets(cloud: AwsCloud) -> list[str]:
    return [one["Name"] for one in s3(cloud).list_buckets()["Buckets"]]


def lines(done: Any, area: str) -> list[str]:
    """The messages about one area, with their marks."""
    return [line for line in done.out.splitlines() if line[2:].startswith(area)]


def stored(home: Path) -> list[str]:
    with sqlite3.connect(home / "gpubroker.db") as store:
        return list(store.iterdump())


def test_from_a_login_to_a_first_job(gpubroker: Gpubroker, aws: AwsCloud, home: Path) -> None:
    done = gpubroker(
        "setup", "aws", "--create-bucket", "first-runs", "--budget", "30", "--run", "--yes", "--json",
    )  # fmt: skip
    assert done.code == 0, done.out + done.err
    assert done.json["ready"]
    found = {one["area"]: one for one in done.json["findings"]}
    assert set(found) == {"extra", "program", "login", "engine", "bucket", "settings", "prices", "budget", "job"}
    client = s3(aws)
    assert client.get_bucket_location(Bucket="first-runs")["LocationConstraint"] == "eu-west-1"
    assert all(client.get_public_access_block(Bucket="first-runs")["PublicAccessBlockConfiguration"].values())
    (rule,) = client.get_bucket_encryption(Bucket="first-runs")["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    (cleaning,) = client.get_bucket_lifecycle_configuration(Bucket="first-runs")["Rules"]
    assert cleaning["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
    assert "Status" not in client.get_bucket_versioning(Bucket="first-runs")
    settings = (home.parent / "config" / "gpubroker" / "gpubroker.toml").read_text()
    assert settings == 'runs = "s3://first-runs/gpubroker"\nruns_location = "aws/eu-west-1"\n'
    written = client.list_objects_v2(Bucket="first-runs").get("Contents", [])
    assert not [one["Key"] for one in written if "probe" in one["Key"]]
    (job,) = gpubroker("jobs", "list", "--json").json["jobs"]
    assert (job["id"], job["name"]) == (found["job"]["facts"]["job"], "setup-aws")
    assert gpubroker("budget", "--json").json["budgets"][0]["limit"] == "30.00"

    polled = len(aws.calls("GetProducts"))
    again = gpubroker("setup", "aws", "--create-bucket", "first-runs", "--yes")
    assert again.code == 0, again.out + again.err
    assert lines(again, "bucket")[0] == "✓ bucket s3://first-runs/gpubroker exists, unchanged"
    assert lines(again, "budget")[0].startswith("✓ budget policy version 1 by ")
    assert not lines(again, "settings")
    assert len(aws.calls("GetProducts")) == polled
    assert len(gpubroker("policy", "show", "--versions", "--json").json["versions"]) == 1
    assert len(gpubroker("jobs", "list", "--json").json["jobs"]) == 1, "submitted only with --run"


def test_a_dry_run_changes_nothing(gpubroker: Gpubroker, aws: AwsCloud, home: Path) -> None:
    s3(aws).create_bucket(Bucket="mine", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    before, asked = stored(home), len(aws.asked)
    done = gpubroker("setup", "aws", "--dry-run", "--create-bucket", "dry-runs", "--budget", "30", "--run", "--yes")
    assert done.code == 0
    assert "· bucket would make the bucket dry-runs" in done.out
    assert "Nothing was changed" in done.out
    assert (stored(home), len(aws.asked)) == (before, asked)
    assert "dry-runs" not in buckets(aws)
    assert not (home.parent / "config").exists()
    assert not (home.parent / "gpubroker-policy.yaml").exists()


def test_where_no_job_starts_a_dry_run_promises_none_nor_does_the_walk_end_with_one(gpubroker: Gpubroker) -> None:
    def steps(*options: str) -> list[str]:
        return [one["area"] for one in gpubroker("setup", "vast", *options, "--json").json["findings"]]

    assert steps("--dry-run")[:2] == steps()[:2] == ["login", "engine"]
    assert "job" not in steps("--dry-run")
    assert "prices only" in gpubroker("setup", "vast", "--dry-run").out


def test_a_dry_run_of_a_cloud_names_the_engine(gpubroker: Gpubroker, aws: AwsCloud) -> None:
    done = gpubroker("setup", "aws", "--dry-run", "--create-bucket", "dry-runs", "--budget", "30")
    assert "· login would try the login and its rights, without changing anything" in done.out
    assert "· engine would ask skypilot, or start it" in done.out


def test_all_that_is_missing_is_listed_at_once(
    gpubroker: Gpubroker, aws: AwsCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setattr(clouds, "is_installed", lambda module: module != "sky")
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "rsync" else f"/usr/bin/{name}")
    done = gpubroker("setup", "aws", "--dry-run")
    assert done.code == 2
    *_, extra, program, login, bucket, then = done.out.splitlines()
    assert extra.startswith(f"  1. extra: {sys.executable} -m pip install ")
    assert "[skypilot]'" in extra
    assert program == "  2. program: install rsync"
    assert login.startswith("  3. login: run `aws configure` or `aws sso login`")
    assert bucket.startswith("  4. bucket: gpubroker setup aws --create-bucket NAME, or export GPUBROKER_RUNS=s3://")
    assert then == "Then again: gpubroker setup aws"


@pytest.mark.parametrize(
    ("operation", "code", "told"),
    [
        ("GetCallerIdentity", "ExpiredToken", "aws sso login"),
        ("GetCallerIdentity", "InvalidClientTokenId", "aws configure"),
        (("DescribeInstances", "eu-west-1"), "AuthFailure", "the account may not use the region eu-west-1"),
        ("DescribeSpotInstanceRequests", "UnauthorizedOperation", "describespotinstancerequests"),
    ],
)
def test_a_login_that_cannot_be_used_says_why(
    gpubroker: Gpubroker, aws: AwsCloud, operation: Any, code: str, told: str
) -> None:
    from tests.fakes.aws_cloud import AwsFault

    aws.faults[operation] = [AwsFault(code, 403, "as AWS puts it")]
    done = gpubroker("setup", "aws")
    assert done.code == 2
    (failed,) = [index for index, line in enumerate(done.out.splitlines()) if line.startswith("✗ login")]
    assert told in "\n".join(done.out.splitlines()[failed : failed + 2])


def test_a_bucket_that_cannot_be_had(gpubroker: Gpubroker, aws: AwsCloud, home: Path) -> None:
    from tests.fakes.aws_cloud import AwsFault

    aws.faults["HeadBucket"] = [AwsFault("403", 403, "Forbidden")]
    for name, told in {"theirs": "belongs to another account", "Not_A_Name": "is not a name for a bucket"}.items():
        done = gpubroker("setup", "aws", "--create-bucket", name, "--yes")
        assert done.code == 2
        assert told in done.out
    assert not (home.parent / "config").exists()


def test_a_bucket_in_another_region_is_used_as_it_is(gpubroker: Gpubroker, aws: AwsCloud, home: Path) -> None:
    s3(aws, "us-east-1").create_bucket(Bucket="virginia")
    done = gpubroker("setup", "aws", "--create-bucket", "virginia", "--yes")
    assert "✓ bucket s3://virginia/gpubroker exists, unchanged" in done.out
    assert 'runs_location = "aws/us-east-1"' in (home.parent / "config" / "gpubroker" / "gpubroker.toml").read_text()
    assert done.code == 0, done.out


def test_a_bucket_that_is_not_set_up_is_not_left_behind(gpubroker: Gpubroker, aws: AwsCloud) -> None:
    from tests.fakes.aws_cloud import AwsFault

    aws.faults["PutBucketEncryption"] = [AwsFault("AccessDenied", 403, "no")]
    done = gpubroker("setup", "aws", "--create-bucket", "half-made", "--yes")
    assert done.code == 2
    assert "the login needs the IAM permission for s3:putbucketencryption" in done.out
    assert "half-made" not in buckets(aws)


def test_rights_in_the_bucket_are_tried(gpubroker: Gpubroker, aws: AwsCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.fakes.aws_cloud import AwsFault

    s3(aws).create_bucket(Bucket="read-only", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    monkeypatch.setenv("GPUBROKER_RUNS", "s3://read-only/gpubroker")
    aws.faults["PutObject"] = [AwsFault("AccessDenied", 403, "no")]
    done = gpubroker("setup", "aws", "--yes")
    assert done.code == 2
    assert "✗ bucket cannot write to s3://read-only/gpubroker" in done.out
    elsewhere = gpubroker("setup", "aws", "--create-bucket", "another", "--yes")
    assert "run folders are set to be in s3://read-only/gpubroker" in elsewhere.out
    assert "another" not in buckets(aws)


def test_keys_that_aws_configure_wrote_reach_the_bucket(
    gpubroker: Gpubroker, aws: AwsCloud, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home.parent / "credentials"
    file.write_text("[default]\n" + "".join(f"{name} = {value}\n" for name, value in _keys().items()))
    for name in KEYS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    done = gpubroker("setup", "aws", "--create-bucket", "by-file", "--yes")
    assert done.code == 0, done.out
    assert f"✓ login found {file}" in done.out
    assert "✓ bucket an object in s3://by-file/gpubroker was written, read and deleted" in done.out


def test_a_quota_of_zero_names_the_page(gpubroker: Gpubroker, aws: AwsCloud) -> None:
    aws.quotas["eu-west-1"] = [("Running On-Demand G and VT instances", 0.0)]
    done = gpubroker("setup", "aws", "--create-bucket", "no-quota", "--yes")
    assert done.code == 2
    (told,) = lines(done, "quota")
    assert "the account's quotas allow no GPU machine (quota 'Running On-Demand G and VT instances': 0 vCPUs" in told
    assert "ask for more: https://console.aws.amazon.com/servicequotas/home/services/ec2/quotas" in done.out
    assert not lines(done, "job"), "no trial job is offered that cannot start"


def test_skypilot_that_may_not_use_the_cloud(gpubroker: Gpubroker, aws: AwsCloud) -> None:
    checked_skypilot.enabled.clear()
    done = gpubroker("setup", "aws")
    assert "✗ engine SkyPilot's API server may not start machines of aws" in done.out
    assert "fix: sky check aws" in done.out


def test_without_a_terminal_nothing_is_asked_and_nothing_made(
    gpubroker: Gpubroker, aws: AwsCloud, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typer, "prompt", lambda *_, **__: pytest.fail("asked"))
    had = buckets(aws)
    done = gpubroker("setup", "aws")
    assert done.code == 2
    assert "gpubroker setup aws --create-bucket NAME" in done.out
    assert "gpubroker setup aws --budget '$20'" in done.out
    assert buckets(aws) == had
    assert gpubroker("policy", "show", "--versions", "--json").json["versions"] == []
    yes = gpubroker("setup", "aws", "--yes")
    assert yes.code == 2, "it makes no bucket"
    assert buckets(aws) == had


def test_questions(gpubroker: Gpubroker, aws: AwsCloud, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Terminal, "asks", property(lambda terminal: True))
    typed = iter(["asked-runs", "$5"])
    monkeypatch.setattr(typer, "prompt", lambda *_, **__: next(typed))
    said: list[str] = []

    def confirm(question: str, **more: object) -> bool:
        said.append(question)
        return len(said) == 1

    monkeypatch.setattr(typer, "confirm", confirm)
    done = gpubroker("setup", "aws")
    assert done.code == 0, done.out
    assert said == ["Apply this policy?", "Submit this job?"]
    assert "amount: $5.00" in (home.parent / "gpubroker-policy.yaml").read_text()
    assert "✓ job no trial job was submitted" in done.out
    assert gpubroker("jobs", "list", "--json").json["jobs"] == []


def test_ctrl_c_between_steps_says_what_stays(
    gpubroker: Gpubroker, aws: AwsCloud, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(polling, "poll_now", pressed)
        done = gpubroker("setup", "aws", "--create-bucket", "stopped-runs", "--yes")
    assert done.code == 130
    assert "✓ bucket made s3://stopped-runs/gpubroker in aws/eu-west-1 (undo: aws s3 rb s3://stopped-runs)" in done.out
    assert "Stopped. What is marked ✓ is done and stays; `gpubroker setup aws` continues." in done.err
    assert gpubroker("policy", "show", "--versions", "--json").json["versions"] == []
    again = gpubroker("setup", "aws", "--yes")
    assert again.code == 0, again.out


def test_a_terminal_shows_what_is_waited_for_and_a_pipe_does_not(
    gpubroker: Gpubroker, aws: AwsCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = gpubroker("setup", "aws", "--create-bucket", "waited-for", "--budget", "5", "--yes")
    assert (piped.code, piped.err) == (0, "")
    screen = StringIO()
    monkeypatch.setattr(Terminal, "err", Console(file=screen, force_terminal=True, width=100))
    shown = gpubroker("setup", "aws", "--create-bucket", "waited-for", "--yes")
    assert shown.code == 0
    waits = ("trying the login", "asking the engine", "making the bucket", "trying the bucket", "planning a trial job")
    assert [wait for wait in waits if wait not in screen.getvalue()] == []
    assert [wait for wait in waits if wait in piped.out + shown.out] == []


def test_an_unknown_cloud(gpubroker: Gpubroker) -> None:
    done = gpubroker("setup", "awss")
    assert done.code == 2
    assert "did you mean 'aws'?" in done.err


def test_plan_and_doctor_list_all_that_is_missing(
    gpubroker: Gpubroker, aws: AwsCloud, write: Callable[[str, str], Path]
) -> None:
    gpubroker("prices", "poll", "--provider", "aws")
    job = write("hello.yaml", "run: nvidia-smi\nresources: {infra: aws, accelerators: 'A10G:1'}\nmax_duration: 10m\n")
    done = gpubroker("plan", job)
    assert done.code in (3, 4)
    start = done.out.splitlines().index("missing for jobs on aws:")
    bucket, budget, walk = done.out.splitlines()[start + 1 : start + 4]
    assert bucket.endswith("export GPUBROKER_RUNS=s3://BUCKET/gpubroker")
    assert budget == "  no budget: nothing that costs money starts: gpubroker policy apply FILES"
    assert walk == "  or: gpubroker setup aws"
    assert [one["area"] for one in gpubroker("plan", job, "--json").json["missing"]] == ["bucket", "budget"]
    (found,) = [one for one in gpubroker("doctor", "--json").json["findings"] if one["area"] == "cloud"]
    assert found["facts"] == {"cloud": "aws", "missing": ["bucket", "budget"]}
    assert found["fix"].endswith("or: gpubroker setup aws")
