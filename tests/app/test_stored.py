"""Where checkpoints lie, from the URL of the run folders and the environment."""

from __future__ import annotations

import pytest

from broker.app.stored import stored


@pytest.mark.parametrize(
    ("url", "location", "environment", "place", "per_gb_month"),
    [
        ("file:///home/ann/runs", None, {}, None, None),
        ("s3://runs/team", None, {"AWS_REGION": "eu-west-1"}, "aws/eu-west-1", "$0.0245"),
        ("s3://runs/team", None, {"AWS_DEFAULT_REGION": "us-east-1"}, "aws/us-east-1", "$0.023"),
        ("s3://runs/team", None, {}, None, "$0.023"),
        ("s3://runs/team", None, {"AWS_REGION": "x", "AWS_ENDPOINT_URL": "http://minio:9000"}, None, None),
        ("gs://runs/team", None, {"AWS_REGION": "us-east-1"}, None, "$0.023"),
        ("gs://runs/team", "gcp/us-central1", {}, "gcp/us-central1", "$0.02"),
        ("az://runs/team", None, {}, None, "$0.0184"),
        ("s3://runs/team", "minio/attic", {"AWS_ENDPOINT_URL": "http://minio:9000"}, "minio/attic", None),
    ],
)
def test_the_place_and_its_price(
    url: str, location: str | None, environment: dict[str, str], place: str | None, per_gb_month: str | None
) -> None:
    found, rate = stored(url, location, environment)
    assert found == place
    assert (str(rate.per_gb_month) if rate else None) == per_gb_month
