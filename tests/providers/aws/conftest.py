"""A market of AWS's published files, and an environment in which nobody is logged in to AWS."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker.core.market.offers import Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from providers.aws.login import AwsLogin
from providers.aws.provider import Aws
from providers.aws.settings import AwsSettings
from tests.contracts.provider_contract import NOW
from tests.fakes.aws_files import Files, Row, advisor, on_demand, product, reserved, serve_files

if TYPE_CHECKING:
    from tests.fakes.aws_cloud import AwsCloud


@pytest.fixture(autouse=True)
def _nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture(scope="session")
def _server() -> Iterator[Files]:
    with serve_files() as files:
        yield files


@pytest.fixture
def files(_server: Files) -> Files:
    _server.answers.clear()
    _server.asked.clear()
    return _server


@pytest.fixture
def make(files: Files, clock: ManualClock) -> Callable[..., Aws]:
    """An AWS provider that reads the fake's files; settings by keyword. ``login``: one made before."""

    def made(login: AwsLogin | None = None, **settings: Any) -> Aws:
        known = {
            "regions": ("us-east-1",),
            "attempts": 1,
            "timeout_seconds": 60,
            "price_list_url": files.url,
            "spot_advisor_url": files.url,
        }
        return Aws(clock=clock, settings=AwsSettings(**{**known, **settings}), login=login)

    return made


def market(region: str) -> list[Row]:
    """A region's list: two machines with their terms, a CPU machine, and rows that only look like them."""
    p5, g5 = product("p5.48xlarge", region), product("g5.xlarge", region, GPU="1")
    rows = [on_demand(p5, "55.0400000000"), on_demand(g5, "1.0060000000")]
    for years, factor in ((1, 1), (3, 2)):
        rows += reserved(p5, years, "No Upfront", "40.1234560000", None)
        rows += reserved(p5, years, "Partial Upfront", "18.9012340000", str(160_000 * factor))
        rows += reserved(p5, years, "All Upfront", "0.0000000000", str(310_000 * factor))
        rows += reserved(p5, years, "No Upfront", "44.0000000000", None, "convertible")
    rows.append(on_demand(product("m7i.large", region, Instance_Family="General purpose", GPU=""), "0.1008000000"))
    rows.append(on_demand(product("p5.48xlarge", region, sku="WINDOWS", Operating_System="Windows"), "63.8720000000"))
    return rows


@pytest.fixture
def published(files: Files) -> Files:
    """The published files with a small market in them."""
    files.put_list("us-east-1", market("us-east-1"))
    files.put_advisor(advisor({"us-east-1": {"p5.48xlarge": (55, 4), "g5.xlarge": (60, 1)}}))
    return files


def rows_of(provider: Aws, query: OfferQuery | None = None) -> list[Offer | SkippedRow]:
    return list(provider.offers(query or OfferQuery()))


def offers_in(rows: list[Offer | SkippedRow]) -> list[Offer]:
    return [row for row in rows if isinstance(row, Offer)]


def skipped_in(rows: list[Offer | SkippedRow]) -> list[str]:
    return [row.reason for row in rows if isinstance(row, SkippedRow)]


@pytest.fixture
def cloud(aws_server: AwsCloud, _nobody_is_logged_in: None, monkeypatch: pytest.MonkeyPatch) -> AwsCloud:
    """AWS's services, empty; and a login to them in the environment."""
    aws_server.clear()
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws_server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
    return aws_server


@pytest.fixture
def populated(cloud: AwsCloud, published: Files) -> AwsCloud:
    """Services and files with one small market in them."""
    from tests.fakes.aws_cloud import get_products

    for region in ("us-east-1", "eu-west-1"):
        p5, g5 = product("p5.48xlarge", region), product("g5.xlarge", region, GPU="1")
        rows = market(region)
        cloud.products += get_products(
            (one, [row for row in rows if row["SKU"] == one["SKU"] and row["Operating System"] == "Linux"])
            for one in (p5, g5)
        )
        cloud.scores[region] = 7
        cloud.quotas[region] = [
            ("Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", 640.0),
            ("Running On-Demand P instances", 384.0),
            ("Running On-Demand G and VT instances", 64.0),
            ("All P4, P3 and P2 Spot Instance Requests", 0.0),
            ("All P5 Spot Instance Requests", 192.0),
            ("All G and VT Spot Instance Requests", 2.0),
        ]
    hour = NOW - timedelta(hours=1)
    for zone, price in (("a6", "21.123456"), ("b1", "20.5"), ("c2", "22")):
        cloud.add_spot("us-east-1", zone, "p5.48xlarge", price, hour)
        cloud.add_spot("us-east-1", zone, "g5.xlarge", "0.4567", hour)
    cloud.add_spot("eu-west-1", "a1", "p5.48xlarge", "30.000001", hour)
    return cloud


@pytest.fixture(scope="session")
def _login(aws_server: AwsCloud) -> AwsLogin:
    """boto3's clients take long to make: once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", aws_server.url)
        patch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
        found = AwsLogin.find(AwsSettings(attempts=1, timeout_seconds=60))
        assert found is not None
        for region in ("us-east-1", "eu-west-1"):
            for service in ("ec2", "service-quotas"):
                found.client(service, region)
        for service in ("pricing", "savingsplans", "ce"):
            found.client(service, "us-east-1")
    return found


@pytest.fixture
def login(cloud: AwsCloud, _login: AwsLogin) -> AwsLogin:
    """A login to the fake's services."""
    return _login
