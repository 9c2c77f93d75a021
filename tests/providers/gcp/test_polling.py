"""Pages to the end, odd rows, and what else an answer can do to a poll."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from broker.core.errors import GiveUp, Malformed, Refused, Throttled, Unreachable
from broker.core.market.offers import Offer, SkippedRow
from providers.gcp.provider import Gcp
from tests.fakes.asking import until_error
from tests.fakes.gcp_cloud import GcpCloud, fits, refusal
from tests.fakes.gcp_rows import IOWA, machine_type, put_machines, sku
from tests.fakes.server import FakeServer, Fault
from tests.providers.gcp.conftest import offers_of, rows_of, skipped_by

Make = Callable[..., Gcp]
ZONE = f"{IOWA}-a"


def test_every_list_is_followed_to_its_end(make: Make, market: GcpCloud) -> None:
    whole = offers_of(make())
    market.page = 2
    assert offers_of(make()) == whole


def test_an_empty_page_is_not_the_end(make: Make, market: GcpCloud) -> None:
    whole = offers_of(make())
    market.page, market.gap = 4, True
    assert offers_of(make()) == whole


def test_a_repeated_page_token_is_no_endless_loop(make: Make, market: GcpCloud) -> None:
    market.page, market.stuck = 10, True
    found, error = until_error(make())
    assert type(error) is Malformed
    assert "page token was repeated" in str(error)
    assert sum(called == "cloudbilling.services.skus.list" for called, *_ in market.log) == 2
    assert [row for row in found if isinstance(row, Offer)]


def test_a_catalogue_without_prices_is_no_success(make: Make, market: GcpCloud) -> None:
    market.skus = [sku("Network Internet Egress from Americas to Americas", "0.12")]
    with pytest.raises(Malformed, match="no parts"):
        rows_of(make())


def test_skus_of_the_wrong_type_are_skipped_and_the_rest_arrives(make: Make, market: GcpCloud) -> None:
    odd: list[Any] = [
        None, 5, "text", [], {"name": 7}, {"description": ["a"]}, {"description": {}},
        {"serviceRegions": "us-central1"}, {"category": []}, {"pricingInfo": {"a": 1}},
        {"pricingInfo": [{"effectiveTime": "yesterday"}]},
        {"pricingInfo": [{"pricingExpression": {"tieredRates": [{"unitPrice": {"units": "1.5", "nanos": "x"}}]}}]},
        {"pricingInfo": [{"pricingExpression": {"tieredRates": [{"unitPrice": {"nanos": 10**12}}]}}]},
    ]  # fmt: skip
    market.lenient = True
    whole, before = offers_of(make()), len(skipped_by(make()))
    market.skus[2:2] = odd
    assert offers_of(make()) == whole
    assert [row.reason for row in skipped_by(make())].count("malformed_row") == before + len(odd)


def test_machines_of_the_wrong_type_are_skipped_and_the_rest_arrives(make: Make, market: GcpCloud) -> None:
    odd: list[Any] = [
        5, "text", [1], {"name": 7}, {"name": "a2-highgpu-1g", "guestCpus": "many"},
        {"name": "g2-x", "accelerators": {}}, {"name": "g2-standard-4", "memoryMb": 1e40},
        {"name": "g2-y", "accelerators": [{"guestAcceleratorCount": -1}]},
    ]  # fmt: skip
    market.lenient = True
    whole = offers_of(make())
    market.machine_types[ZONE][1:1] = odd
    assert offers_of(make()) == whole
    assert [row.reason for row in skipped_by(make())].count("malformed_row") >= len(odd)


def test_a_place_that_makes_no_sense_is_skipped(make: Make, market: GcpCloud) -> None:
    whole = offers_of(make())
    put_machines(market, "somewhere", machine_type("g2-standard-4", "somewhere", 4, "16", "nvidia-l4", 1))
    assert offers_of(make()) == whole
    assert "malformed_row" in [row.reason for row in skipped_by(make())]


def test_regions_and_queries_save_calls_but_lose_nothing(make: Make, market: GcpCloud) -> None:
    whole = offers_of(make())
    assert set(offers_of(make(regions="us-*"))) == {pool for pool in whole if "us-central1" in pool}
    assert offers_of(make(regions=("europe-*",))) == {}


def test_only_cpu_machines_are_left_out_by_the_server(make: Make, market: GcpCloud) -> None:
    """What the filter leaves out must be nothing that could have an accelerator."""
    offers_of(make())
    (query, *_) = [query for called, _, query, _ in market.log if called == "compute.machineTypes.aggregatedList"]
    for name in (
        "n1-standard-8",
        "a2-highgpu-1g",
        "a3-megagpu-8g",
        "a4x-highgpu-4g",
        "g2-standard-4",
        "g4-standard-48",
    ):
        assert fits({"name": name}, query), name
    assert not fits({"name": "e2-standard-4"}, query)


@pytest.mark.parametrize(("fault", "error"), [
    (Fault.SERVER_ERROR, Unreachable), (Fault.BUSY, Throttled), (Fault.TRUNCATED, Unreachable),
    (Fault.DISCONNECTED, Unreachable), (Fault.NOT_JSON, Malformed), (Fault.WRONG_TYPE, Malformed),
    (Fault.EMPTY_BODY, Malformed), (Fault.REDIRECT, Refused),
])  # fmt: skip
def test_a_fault_among_the_machines_is_told_and_the_prices_do_not_leak(
    make: Make, market: GcpCloud, server: FakeServer, fault: Fault, error: type[Exception]
) -> None:
    provider = make()
    market.before = lambda called: server.order(fault) if called == "cloudbilling.services.skus.list" else None
    found, said = until_error(provider)
    assert type(said) is error
    assert said is not None
    assert "MachineTypes.aggregated_list" in str(said)
    assert not [row for row in found if isinstance(row, Offer)]


@pytest.mark.parametrize(("limit", "value", "error"), [
    ("_MAX_ANSWER", 1000, Malformed), ("_WHOLE_ANSWER", -1, Unreachable),
])  # fmt: skip
def test_an_answer_without_end_is_given_up(
    make: Make, market: GcpCloud, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, error: type[Exception]
) -> None:
    monkeypatch.setattr(f"providers.gcp.login.{limit}", value)
    _, said = until_error(make())
    assert type(said) is error
    assert said is not None
    assert "CloudCatalog.list_skus" in str(said)


def test_several_may_ask_at_once(make: Make, market: GcpCloud) -> None:
    whole = offers_of(make())
    market.skus.insert(2, {"description": ["odd"]})  # so that pages are read again, each by its own thread
    market.lenient = True
    provider = make()
    with ThreadPoolExecutor(4) as threads:
        assert all(found == whole for found in threads.map(lambda _: offers_of(provider), range(8)))


def test_a_zone_that_google_could_not_ask_is_told(make: Make, market: GcpCloud) -> None:
    market.unreachable = ["us-east4-b"]
    assert [row for row in skipped_by(make()) if row == SkippedRow(
        "unreachable_place", "us-east4-b: Google could not query this scope"
    )]  # fmt: skip


def test_an_endpoint_without_the_extras_still_gives_prices(make: Make, market: GcpCloud) -> None:
    whole = offers_of(make())
    for called in ("compute.regions.list", "compute.projects.get", "compute.reservations.aggregatedList"):
        market.refuse[called] = refusal(404, "notFound", "no such method")
    assert offers_of(make()) == whole


def test_a_project_that_does_not_exist_is_told(make: Make, market: GcpCloud) -> None:
    market.refuse["compute.machineTypes.aggregatedList"] = refusal(404, "notFound", "The resource was not found")
    _, error = until_error(make())
    assert isinstance(error, GiveUp)
    assert "GPUBROKER_PROVIDERS__GCP__PROJECT" in error.hint
