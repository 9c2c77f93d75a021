"""Vast.ai's marketplace."""

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from broker.core.errors import BrokerError, LoginMissing, Malformed, Unreachable
from broker.core.market.offers import Availability, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.vast import Vast, VastSettings
from tests.contracts.http_faults import HttpFaults
from tests.contracts.provider_contract import NOW, ProviderContract
from tests.fakes.asking import until_error
from tests.fakes.mutate import JsonAnswers
from tests.fakes.server import FakeServer, Fault, HttpAnswer, Market
from tests.fakes.vast import VastListing, VastMarket

PLAIN = VastListing(id=11684738)
H100S = VastListing(
    id=20,
    gpu_name="H100 SXM",
    num_gpus=8,
    gpu_ram=81559,
    bw_nvlink=Decimal("450.5"),
    dph_total=Decimal("16.0123456"),
    min_bid=Decimal("9.6"),
    discount_rate=Decimal("0.4"),
    discounted_dph_total=Decimal("9.6123454"),
    geolocation="Norway",
)
A100_40, A100_80 = (VastListing(id=n, gpu_name="A100 PCIE", gpu_ram=ram) for n, ram in ((30, 40960), (31, 81920)))
TAKEN = VastListing(id=40, rented=True)
ODD = [
    VastListing(id=50, gpu_name="Voodoo2"),
    VastListing(id=51, dph_total=None, min_bid=None),
    VastListing(id=52, dph_total=Decimal("0"), min_bid=Decimal("-1")),
]


def vast(url: str, clock: ManualClock, **settings: Any) -> Vast:
    return Vast(clock=clock, settings=VastSettings(base_url=url, **settings), environment={})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(VastMarket(PLAIN, H100S, A100_40, A100_80, TAKEN, *ODD)) as running:
        yield running


class TestVastIsAProvider(ProviderContract):
    plugin = "vast"

    @pytest.fixture
    def provider(self, clock: ManualClock, server: FakeServer) -> Vast:
        return vast(server.url, clock)


class TestFaultsOfVast(HttpFaults):
    def market(self) -> Market:
        return VastMarket(PLAIN, H100S)

    def make(self, url: str, clock: ManualClock, **settings: Any) -> Vast:
        return vast(url, clock, **settings)


def rows(server: FakeServer, **settings: Any) -> list[Offer | SkippedRow]:
    return list(vast(server.url, ManualClock(NOW), **settings).offers(OfferQuery()))


def offers(server: FakeServer, **settings: Any) -> dict[tuple[str | None, str], Offer]:
    found = [row for row in rows(server, **settings) if isinstance(row, Offer)]
    return {(offer.zone, offer.capacity_type.value): offer for offer in found}


def test_prices_are_exact_to_the_micro_dollar(server: FakeServer) -> None:
    found = offers(server)
    assert found["offer-11684738", "on_demand"].price == Money(246676)
    assert found["offer-11684738", "spot"].price == Money.usd("0.2")
    assert found["offer-20", "on_demand"].price == Money(16012346)
    assert found["offer-20", "on_demand"].price_per_gpu == Money(2001543)
    assert found["offer-20", "spot"].price == Money.usd("9.6")


def test_what_prepaying_makes_of_it_is_a_commitment(server: FakeServer) -> None:
    found = offers(server)
    prepaid = found["offer-20", "reserved"]
    assert (prepaid.price, prepaid.term_months, prepaid.engine) == (Money(9612345), 1, None)
    assert ("offer-11684738", "reserved") not in found


def test_a_listing_is_what_the_host_has(server: FakeServer) -> None:
    one, eight = offers(server)["offer-11684738", "on_demand"], offers(server)["offer-20", "on_demand"]
    assert (one.region, one.instance_type, one.machine) == ("CN", "1x-RTX_4090-96-257572", "RTX4090:1")
    assert (one.cpus, one.memory_gib, one.interconnect, one.slots) == (24, 62.9, None, 1)
    assert (eight.region, eight.interconnect, eight.score) == ("Norway", Interconnect.NVLINK, 0.9700835)


def test_memory_tells_one_a100_from_the_other(server: FakeServer) -> None:
    found = offers(server)
    assert found["offer-30", "on_demand"].accelerator == "A100"
    assert found["offer-31", "on_demand"].accelerator == "A100-80GB"


def test_what_is_rented_is_kept_with_its_reason(server: FakeServer) -> None:
    taken = offers(server)["offer-40", "on_demand"]
    assert (taken.availability, taken.unavailable_because) == (Availability.UNAVAILABLE, "rented by another user")


def test_rows_without_a_valid_price_are_counted_and_never_offers(server: FakeServer) -> None:
    skipped = Counter(row.reason for row in rows(server) if isinstance(row, SkippedRow))
    assert skipped == {"unknown_accelerator": 3, "no_price": 3, "invalid_price": 3}


def test_unverified_hosts_are_not_asked_for_and_not_to_be_had_when_they_come_all_the_same() -> None:
    doubtful = VastListing(id=1, verification="unverified")
    with FakeServer(VastMarket(PLAIN, doubtful)) as server:
        assert {zone for zone, _ in offers(server)} == {"offer-11684738"}
        allowed = offers(server, verified_only=False)["offer-1", "on_demand"]
        assert allowed.availability is Availability.AVAILABLE
    with FakeServer(lambda _: HttpAnswer(200, {"offers": [doubtful.model_dump()]})) as server:
        assert "VERIFIED_ONLY" in offers(server)["offer-1", "on_demand"].unavailable_because


def test_a_row_is_what_it_says_and_not_what_was_asked_for() -> None:
    """A service that ignores filters: bids come as answers to every question, and are spot nevertheless."""
    bid = PLAIN.model_copy(update={"is_bid": True}).model_dump()
    with FakeServer(lambda _: HttpAnswer(200, {"offers": [bid]})) as server:
        found = rows(server)
    assert [(o.capacity_type, o.price) for o in found if isinstance(o, Offer)] == [
        (CapacityType.SPOT, Money.usd("0.2"))
    ]


def test_a_price_that_may_be_a_bid_is_not_taken_for_on_demand() -> None:
    row = PLAIN.model_dump()
    del row["is_bid"]

    def market(request: Any) -> HttpAnswer:
        return HttpAnswer(200, {"offers": [row] if request.body["type"] == "bid" else []})

    with FakeServer(market) as server:
        reasons = {row.reason for row in rows(server) if isinstance(row, SkippedRow)}
        assert reasons == {"malformed_row", "page_repeated"}  # this server has one page, whatever is asked
        assert offers(server) == {}


@pytest.mark.parametrize("number", [63, 64, 65, 200])
def test_pages_are_followed_to_the_end(number: int) -> None:
    with FakeServer(VastMarket(*(VastListing(id=n) for n in range(1, number + 1)))) as server:
        found = offers(server)
    assert len(found) == 2 * number


def test_a_page_that_comes_again_is_the_last_and_is_told() -> None:
    with FakeServer(VastMarket(*(VastListing(id=n) for n in range(1, 100)), stuck=True)) as server:
        found = rows(server)
    assert [row.reason for row in found if isinstance(row, SkippedRow)] == ["page_repeated"] * 3
    assert len([row for row in found if isinstance(row, Offer)]) == 2 * 64


@pytest.mark.parametrize(
    ("fault", "error"),
    [(Fault.WRONG_TYPE, Malformed), (Fault.NOT_JSON, Malformed), (Fault.SERVER_ERROR, Unreachable)],
)
def test_a_later_answer_that_fails_leaves_the_earlier_ones(
    server: FakeServer, fault: Fault, error: type[BrokerError]
) -> None:
    provider = vast(server.url, ManualClock(NOW), attempts=1)
    found, raised = until_error(provider, after_first=lambda: server.order(fault))
    assert type(raised) is error
    assert any(isinstance(row, Offer) for row in found)


def test_a_key_is_sent_where_there_is_one_and_a_wrong_one_is_named(server: FakeServer) -> None:
    rows(server, api_key="k-123")
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer k-123"}
    server.order(Fault.EXPIRED_LOGIN)
    with pytest.raises(LoginMissing) as caught:
        rows(server, api_key="k-123")
    assert "VAST_API_KEY" in caught.value.hint
    assert "k-123" not in f"{caught.value} {caught.value.hint}"


def answers() -> JsonAnswers:
    listings = [PLAIN, H100S, A100_40, A100_80, PLAIN.model_copy(update={"id": 7, "is_bid": True})]
    return JsonAnswers(
        vast,
        VastMarket(),
        "/api/v0/bundles/",
        {"offers": [listing.model_dump() for listing in listings]},
        lambda body: body["offers"],
        fair=r"discounted_dph_total\.(deleted|= (None|\d|Decimal))",
    )
