"""Where checkpoints lie, from the URL of the run folders and the environment, and how many are kept."""

import pytest
from pydantic import ValidationError

from broker.app.jobs.job_sources import checkpoints
from broker.app.jobs.submit import submit
from broker.app.market.market import store_location_and_rate
from broker.app.wiring import Broker
from broker.core.job.file import parse_job
from broker.settings import Settings, environment_of
from tests.actors import ANN


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
    found, rate = store_location_and_rate(url, location, environment)
    assert found == place
    assert (str(rate.per_gb_month) if rate else None) == per_gb_month


def test_a_place_is_a_provider_and_a_region() -> None:
    assert Settings(runs_location="gcp/us-central1").runs_location == "gcp/us-central1"
    assert environment_of(Settings(runs_location="minio/attic"))["GPUBROKER_RUNS_LOCATION"] == "minio/attic"
    for nonsense in ("gcp", "us-central1", "gcp/us/central", ""):
        with pytest.raises(ValidationError, match="expected provider/region"):
            Settings(runs_location=nonsense)


@pytest.mark.parametrize(("keep", "number"), [(1, 2), (2, 2), (5, 5)])
def test_the_number_told_is_that_of_the_checkpoints_that_stay(broker: Broker, keep: int, number: int) -> None:
    text = f"name: j\nrun: 'true'\ncheckpoint: {{every: 1m, keep: {keep}}}\nmax_duration: 1h\n"
    view = submit(broker, parse_job(text, file="job.yaml", now=broker.clock.now()), by=ANN)
    assert checkpoints(broker, view).keep == number
