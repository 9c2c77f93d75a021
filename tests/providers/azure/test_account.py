"""What a login adds to Azure's retail prices, and what is left when a part of it fails."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker.core.errors import BrokerError, LoginMissing, Malformed, Refused, Throttled, Unreachable
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.clock import ManualClock
from providers.azure.account import SpotScore, questions, rate_per_hour, scores_in
from providers.azure.provider import Azure
from tests.counts import FULL
from tests.fakes.asking import until_error
from tests.fakes.azure_retail import FakeRetailPrices
from tests.fakes.server import FakeServer, Fault, HttpAnswer
from tests.providers.azure.conftest import H100, T4, meters, offers_in, rows_of

if TYPE_CHECKING:
    from tests.fakes.azure_cloud import AzureCloud

DATA = os.environ.get("GPUBROKER_TEST_DATA")
EXAMPLE = Path(DATA or ".") / "payloads" / "azure_spot_placement_example.json"
ON_DEMAND, SPOT = ("eastus", H100, "on_demand"), ("eastus", H100, "spot")


def state(offer: Offer) -> tuple[str, str]:
    return offer.availability.value, offer.unavailable_because


# What may be had.


def test_what_is_closed_to_the_subscription_says_so(azure: Azure, cloud: AzureCloud) -> None:
    from tests.fakes.azure_cloud import closed

    cloud.skus[0]["restrictions"] = [closed("eastus")]
    cloud.skus[2]["restrictions"] = [closed("westeurope", "QuotaId")]
    found = offers_in(rows_of(azure))
    assert state(found[ON_DEMAND])[0] == state(found[SPOT])[0] == "unavailable"
    assert "NotAvailableForSubscription" in found[ON_DEMAND].unavailable_because
    assert state(found["westeurope", H100, "on_demand"])[0] == "no_quota"
    assert "QuotaId" in found["westeurope", H100, "on_demand"].unavailable_because
    assert state(found["eastus", T4, "on_demand"]) == ("unknown", "")
    assert found["eastus", H100, "reserved"].availability is Availability.UNKNOWN, "a term can be bought all the same"


def test_a_zone_that_is_closed_leaves_the_region_open(azure: Azure, cloud: AzureCloud) -> None:
    from providers.azure.account import read_skus
    from tests.fakes.azure_cloud import closed

    cloud.skus[0]["restrictions"] = [closed("eastus", "NotAvailableForSubscription", "1", "3")]
    assert state(offers_in(rows_of(azure))[ON_DEMAND]) == ("unknown", "")
    login = azure._find_login()
    assert login is not None
    assert read_skus(login, "eastus")[H100].zones == {"2"}


def test_a_restriction_elsewhere_is_none_here(azure: Azure, cloud: AzureCloud) -> None:
    from tests.fakes.azure_cloud import closed

    cloud.skus[0]["restrictions"] = [closed("westus3")]
    assert state(offers_in(rows_of(azure))[ON_DEMAND]) == ("unknown", "")


def test_what_the_region_does_not_have_is_unavailable(azure: Azure, cloud: AzureCloud) -> None:
    cloud.skus = [row for row in cloud.skus if row["locations"] != ["westeurope"]]
    found = offers_in(rows_of(azure))
    assert "not offered in this region" in found["westeurope", H100, "spot"].unavailable_because
    assert state(found[SPOT])[0] == "unknown"


@pytest.mark.parametrize("region", ["../../evil", "a'b", "x?y=1", "münchen"])
def test_what_is_no_name_of_a_region_is_not_asked_about(
    azure: Azure, prices: FakeServer, server: FakeServer, region: str
) -> None:
    odd = meters()[0].model_copy(update={"armRegionName": region})
    prices.market = FakeRetailPrices(*meters(), odd)
    found = offers_in(rows_of(azure))
    assert len(found) == 8
    assert not [request for request in server.requests if "evil" in request.path or region in str(request)]


def test_the_case_of_names_does_not_matter(azure: Azure, cloud: AzureCloud) -> None:
    cloud.skus[0]["name"] = H100.upper()
    cloud.skus[0]["family"] = "STANDARDNDSH100V5FAMILY"
    assert offers_in(rows_of(azure))[ON_DEMAND].slots == 2


# Quotas.


def test_quotas_leave_room_beside_what_runs(azure: Azure) -> None:
    found = offers_in(rows_of(azure))
    assert found[ON_DEMAND].slots == (300 - 96) // 96
    assert found[SPOT].slots == 500 // 96, "spot machines have a quota of their own, whatever the family"
    assert found["eastus", T4, "on_demand"].slots == 2


@pytest.mark.parametrize(
    ("row", "kind", "because"),
    [
        (("standardNDSH100v5Family", 210, 300), ON_DEMAND, "210 of 300 vCPUs in use"),
        (("cores", 950, 1000), ON_DEMAND, "quota 'cores'"),
        (("lowPriorityCores", 0, 3), SPOT, "0 of 3 vCPUs in use, and this machine has 96"),
        (("standardNDSH100v5Family", 0, 0), ON_DEMAND, "0 of 0"),
    ],
)
def test_no_room_in_a_quota_is_no_quota(
    azure: Azure, cloud: AzureCloud, row: tuple[str, int, int], kind: tuple[str, str, str], because: str
) -> None:
    from tests.fakes.azure_cloud import usage

    name, *_ = row
    cloud.usages["eastus"] = [one for one in cloud.usages["eastus"] if one["name"]["value"] != name] + [usage(*row)]
    found = offers_in(rows_of(azure))
    assert found[kind].availability is Availability.NO_QUOTA
    assert because in found[kind].unavailable_because
    other = SPOT if kind == ON_DEMAND else ON_DEMAND
    assert found[other].availability is Availability.UNKNOWN


# Spot.


def test_spot_offers_have_scores_and_rates(azure: Azure, cloud: AzureCloud) -> None:
    cloud.scores = {("eastus", H100): ("High", True), ("westeurope", H100): ("Low", True)}
    cloud.evictions = [
        {"id": "a", "skuName": H100.lower(), "location": "eastus", "spotEvictionRate": "5-10"},
        {"id": "b", "skuName": "standard_d2s_v4", "location": "eastus", "spotEvictionRate": "0-5"},
        {"id": "c", "skuName": H100.lower(), "location": "westeurope", "spotEvictionRate": "20+"},
    ]
    found = offers_in(rows_of(azure))
    assert found[SPOT].score == pytest.approx(5 / 6)
    assert found["westeurope", H100, "spot"].score == pytest.approx(1 / 6)
    assert found[SPOT].interruption_rate == pytest.approx(-math.log(0.9))
    assert found["westeurope", H100, "spot"].interruption_rate == pytest.approx(-math.log(0.4))
    assert found[ON_DEMAND].score is None
    assert found[ON_DEMAND].interruption_rate is None


def test_what_the_scores_say_cannot_be_had(azure: Azure, cloud: AzureCloud) -> None:
    cloud.scores = {("eastus", H100): ("RestrictedSkuNotAvailable", True), ("westeurope", H100): ("Medium", False)}
    found = offers_in(rows_of(azure))
    assert state(found[SPOT])[0] == "unavailable"
    assert "RestrictedSkuNotAvailable" in found[SPOT].unavailable_because
    assert state(found["westeurope", H100, "spot"])[0] == "no_quota"
    assert state(found[ON_DEMAND]) == ("unknown", "")


def test_trap_scores_are_asked_for_8_regions_and_5_sizes_at_most() -> None:
    from providers.azure.machines import accelerated_types

    regions = [f"region{number}" for number in range(19)]
    pools = {(region, size) for region in regions for size in accelerated_types()}
    asked = list(questions(pools))
    assert all(len(places) <= 8 and len(sizes) <= 5 for places, sizes in asked)
    assert {(place, size) for places, sizes in asked for place in places for size in sizes} == pools


def test_scores_are_remembered_for_an_hour(
    azure: Azure, cloud: AzureCloud, server: FakeServer, clock: ManualClock
) -> None:
    def asked() -> int:
        return len([request for request in server.requests if "placementScores" in request.path])

    cloud.scores = {("eastus", H100): ("High", True)}
    for _ in range(3):
        assert offers_in(rows_of(azure))[SPOT].score == pytest.approx(5 / 6)
        clock.advance(timedelta(minutes=10))
    assert asked() == 1
    clock.advance(timedelta(minutes=30))
    rows_of(azure)
    assert asked() == 2


def test_scores_need_a_role_that_a_reader_has_not(azure: Azure, cloud: AzureCloud) -> None:
    cloud.answers["placementScores"] = HttpAnswer(403, {"error": {"code": "AuthorizationFailed", "message": "no"}})
    found, error = until_error(azure)
    assert isinstance(error, Refused)
    assert "Compute Recommendations Role" in error.hint
    assert "GPUBROKER_PROVIDERS__AZURE__PLACEMENT_SCORES=false" in error.hint
    assert len(offers_in(found)) == 7


@pytest.mark.skipif(not EXAMPLE.is_file(), reason="needs GPUBROKER_TEST_DATA")
def test_the_documented_example_of_scores_is_read() -> None:
    """Its sizes have no accelerators, so they are put in place of the one there; scores are told by zone."""
    text = EXAMPLE.read_text().replace("Standard_D2_v2", H100)
    assert scores_in(json.loads(text)) == {
        ("eastus", H100): SpotScore(5 / 6, quota=True),
        ("eastus2", H100): SpotScore(None, quota=True),
    }


def test_of_zones_the_best_counts() -> None:
    rows = [
        {"sku": H100, "region": "eastus", "availabilityZone": zone, "score": score, "isQuotaAvailable": True}
        for zone, score in (("1", "Low"), ("2", "RestrictedSkuNotAvailable"), ("3", "Medium"))
    ]
    assert scores_in({"placementScores": rows}) == {("eastus", H100): SpotScore(0.5, quota=True)}


@pytest.mark.parametrize(
    ("band", "share"), [("0-5", 0.05), ("5-10", 0.1), ("10-15", 0.15), ("15-20", 0.2), ("20+", 0.6)]
)
def test_a_band_is_its_upper_edge_an_hour(band: str, share: float) -> None:
    assert rate_per_hour(band) == pytest.approx(-math.log(1 - share))


@pytest.mark.parametrize("odd", ["", "often", "5", "-1-5", "5-100", "0-0", "100+", "1e3", "5 - 10 %"])
def test_what_is_no_band_is_no_rate(odd: str) -> None:
    assert rate_per_hour(odd) is None


# What is left when a part fails.

PARTS = {
    "/skus": "resource skus",
    "/usages": "usages",
    "/placementScores": "spot placement scores",
    "/providers/Microsoft.ResourceGraph": "spot eviction rates",
    "/locations": "locations",
    "/capacityReservationGroups": "capacity reservation groups",
}


ANSWERS: list[tuple[HttpAnswer, type[BrokerError]]] = [
    (HttpAnswer(500, b"<html>oops</html>"), Unreachable),
    (HttpAnswer(429, b"", {"Retry-After": "3600"}), Throttled),
    (HttpAnswer(403, {"error": {"code": "AuthorizationFailed", "message": "may not"}}), Refused),
    (HttpAnswer(200, b"<html>maintenance</html>"), Malformed),
    (HttpAnswer(200, b""), Malformed),
    (HttpAnswer(200, ["what", "is", "this"]), Malformed),
    (HttpAnswer(401, {"error": {"code": "ExpiredAuthenticationToken", "message": "expired"}}), LoginMissing),
    (HttpAnswer(302, b"", {"Location": "https://127.0.0.1:9/elsewhere"}), Refused),
]
FAILING = [(part, *answer) for part in PARTS for answer in ANSWERS]


@pytest.mark.sampled
@pytest.mark.parametrize(("part", "answer", "kind"), FAILING if FULL else FAILING[::3])
def test_a_part_that_fails_costs_that_part_and_nothing_else(
    make: Callable[..., Azure], cloud: AzureCloud, part: str, answer: HttpAnswer, kind: type[BrokerError]
) -> None:
    cloud.scores = {("eastus", H100): ("High", True)}
    cloud.evictions = [{"id": "a", "skuName": H100.lower(), "location": "eastus", "spotEvictionRate": "5-10"}]
    cloud.answers = {part: answer} if part != "/locations" else {"5555/locations": answer}
    found, error = until_error(make())
    assert error is not None
    assert isinstance(error, kind), repr(error)
    assert PARTS[part] in str(error)
    offers = offers_in(found)
    assert len(offers) == 7, "every list price is there"
    assert all(offer.price for offer in offers.values())
    assert (offers[ON_DEMAND].slots is None) == (part in ("/skus", "/usages"))
    assert (offers[SPOT].score is None) == (part == "/placementScores")
    assert (offers[SPOT].interruption_rate is None) == (part == "/providers/Microsoft.ResourceGraph")


def test_the_price_list_failing_leaves_what_is_held(azure: Azure, cloud: AzureCloud, prices: FakeServer) -> None:
    from tests.fakes.azure_cloud import reservation

    cloud.groups, cloud.reservations = {"open": "Open"}, {"open": [reservation("open", "one", H100, 3, 1)]}
    prices.order(Fault.SERVER_ERROR)
    found, error = until_error(azure)
    assert isinstance(error, Unreachable)
    assert [row.capacity_type for row in found if isinstance(row, Offer)] == [CapacityType.RESERVED]


def test_an_odd_row_harms_no_other(azure: Azure, cloud: AzureCloud) -> None:
    def odd(body: bytes) -> bytes:
        answer: Any = json.loads(body)
        answer["value"] = [7, None, "x", {}, {"name": 5, "limit": "many"}, *answer["value"]]
        return json.dumps(answer).encode()

    cloud.mangle = {"/skus": odd, "/usages": odd, "5555/locations": odd, "capacityReservationGroups": odd}
    assert offers_in(rows_of(azure))[ON_DEMAND].slots == 2
