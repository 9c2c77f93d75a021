"""The egress table: complete, dated, and matched in order."""

from datetime import date

import pytest

from broker.core.job.jobs import Data, Job
from broker.core.values.money import Money
from broker.placement.pricing.data_cost import DEFAULT_GIB, data_bytes, egress_rate, egress_rates


@pytest.mark.parametrize(
    ("origin", "destination", "per_gb"),
    [
        ("aws/us-east-1", "aws/us-east-1", "0"),
        ("aws/us-east-1", "aws/us-east-2", "0.01"),
        ("aws/us-east-1", "aws/eu-west-1", "0.02"),
        ("aws/sa-east-1", "aws/us-east-1", "0.138"),
        ("aws/us-east-1", "gcp/us-central1", "0.09"),
        ("gcp/us-central1", "gcp/us-east4", "0.02"),
        ("gcp/us-central1", "gcp/asia-east1", "0.08"),
        ("gcp/us-central1", "aws/us-east-1", "0.12"),
        ("owned/local", "aws/us-east-1", "0"),
        ("an unknown place", "aws/us-east-1", "0.147"),
        ("an unknown place", "vultr/ewr", "0.12"),
        ("an unknown place", "owned/local", "0"),
    ],
)
def test_known_rates(origin: str, destination: str, per_gb: str) -> None:
    assert egress_rate(origin, destination).per_gb == Money.usd(per_gb)


def test_an_unknown_provider_is_never_free() -> None:
    found = egress_rate("nobody/nowhere", "aws/us-east-1")
    assert found.per_gb > Money.ZERO
    assert "assumption" in found.source


def test_data_of_unknown_size_fills_the_disks_of_all_machines() -> None:
    job = Job(name="j", run="x", num_nodes=3, data=Data(location="aws/us-east-1"))
    assert data_bytes(job) == 3 * DEFAULT_GIB * 2**30


def test_every_row_is_dated_sourced_and_reachable() -> None:
    seen: set[tuple[str, str]] = set()
    for rate in egress_rates():
        assert rate.source
        assert date(2024, 1, 1) <= rate.as_of
        assert Money.ZERO <= rate.per_gb < Money.usd("1")
        assert (rate.origin, rate.destination) not in seen
        seen.add((rate.origin, rate.destination))
    assert (egress_rates()[-1].origin, egress_rates()[-1].destination) == ("*", "*")
