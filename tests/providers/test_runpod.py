"""RunPod's prices and stock."""

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from broker.core.errors import Malformed, Refused
from broker.core.market.offers import Availability, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.pricebook import Pricebook
from providers.runpod import Runpod, RunpodSettings
from tests.contracts.http_faults import HttpFaults
from tests.contracts.provider_contract import NOW, ProviderContract
from tests.fakes.mutate import JsonAnswers
from tests.fakes.runpod import GpuType, LowestPrice, RunpodMarket
from tests.fakes.server import FakeServer, HttpAnswer, HttpRequest, Market

H100 = GpuType(
    id="NVIDIA H100 80GB HBM3",
    displayName="H100 SXM",
    memoryInGb=80,
    maxGpuCount=8,
    maxGpuCountSecureCloud=8,
    maxGpuCountCommunityCloud=2,
    secureCloud=True,
    communityCloud=True,
    securePrice=Decimal("2.99"),
    communityPrice=Decimal("2.69"),
    secureSpotPrice=Decimal("1.75"),
    oneMonthPrice=Decimal("2.54"),
    threeMonthPrice=Decimal("2.45"),
    sixMonthPrice=Decimal("2.327891"),
    in_secure=LowestPrice(
        minimumBidPrice=Decimal("1.5"),
        uninterruptablePrice=Decimal("2.99"),
        minVcpu=20,
        minMemory=125,
        stockStatus="High",
        availableGpuCounts=[1, 2, 4],
    ),
    in_community=LowestPrice(minimumBidPrice=Decimal("1.25"), uninterruptablePrice=Decimal("2.69"), stockStatus=None),
)
RTX4090 = GpuType(
    id="NVIDIA GeForce RTX 4090",
    displayName="RTX 4090",
    memoryInGb=24,
    maxGpuCount=1,
    secureCloud=False,
    communityCloud=True,
    communityPrice=Decimal("0.34"),
    in_community=LowestPrice(
        minimumBidPrice=Decimal("0.2"), uninterruptablePrice=Decimal("0.34"), stockStatus="Low", availableGpuCounts=[1]
    ),
)
UNKNOWN = GpuType(id="unknown", displayName="unknown", memoryInGb=0, securePrice=Decimal(1), secureCloud=True)
UNPRICED = GpuType(id="NVIDIA RTX A5000", displayName="RTX A5000", memoryInGb=24, secureCloud=True, maxGpuCount=8)


def runpod(url: str, clock: ManualClock, **settings: Any) -> Runpod:
    return Runpod(clock=clock, settings=RunpodSettings(base_url=url, **settings))


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(RunpodMarket(H100, RTX4090, UNKNOWN, UNPRICED)) as running:
        yield running


class TestRunpodIsAProvider(ProviderContract):
    plugin = "runpod"

    @pytest.fixture
    def provider(self, clock: ManualClock, server: FakeServer) -> Runpod:
        return runpod(server.url, clock)


class TestFaultsOfRunpod(HttpFaults):
    def market(self) -> Market:
        return RunpodMarket(H100, RTX4090)

    def make(self, url: str, clock: ManualClock, **settings: Any) -> Runpod:
        return runpod(url, clock, **settings)


def rows(server: FakeServer) -> list[Offer | SkippedRow]:
    return list(runpod(server.url, ManualClock(NOW)).offers(OfferQuery()))


def offers(server: FakeServer) -> dict[tuple[str, str, str, int | None], Offer]:
    found = [row for row in rows(server) if isinstance(row, Offer)]
    return {(o.region, o.instance_type, o.capacity_type.value, o.term_months): o for o in found}


def told(*gpu_types: dict[str, Any]) -> list[Offer | SkippedRow]:
    """What an answer of these rows becomes, whatever was asked."""
    with FakeServer(lambda _: HttpAnswer(200, {"data": {"gpuTypes": list(gpu_types)}})) as server:
        return rows(server)


def test_prices_are_exact_and_per_machine(server: FakeServer) -> None:
    found = offers(server)
    assert found["secure", "1x_H100-SXM_SECURE", "on_demand", None].price == Money.usd("2.99")
    assert found["secure", "8x_H100-SXM_SECURE", "on_demand", None].price == Money.usd("23.92")
    assert found["secure", "8x_H100-SXM_SECURE", "reserved", 6].price == Money.usd("18.623128")
    assert found["community", "1x_RTX4090_COMMUNITY", "on_demand", None].price == Money.usd("0.34")


def test_spot_is_the_lowest_bid_of_its_own_cloud(server: FakeServer) -> None:
    found = offers(server)
    assert found["secure", "2x_H100-SXM_SECURE", "spot", None].price == Money.usd("3")
    assert found["community", "2x_H100-SXM_COMMUNITY", "spot", None].price == Money.usd("2.5")


def test_savings_plans_are_commitments_that_nothing_runs_on_yet(server: FakeServer) -> None:
    terms = [o for o in offers(server).values() if o.capacity_type is CapacityType.RESERVED]
    assert {o.term_months for o in terms} == {1, 3, 6}
    assert {o.region for o in terms} == {"secure"}
    assert {o.engine for o in terms} == {None}


def test_skypilot_runs_the_secure_cloud_only(server: FakeServer) -> None:
    running = {o.region for o in offers(server).values() if o.engine}
    assert running == {"secure"}


def test_no_more_gpus_than_a_pod_may_have(server: FakeServer) -> None:
    counts = {(o.region, o.accelerator): 0 for o in offers(server).values()}
    for offer in offers(server).values():
        counts[offer.region, offer.accelerator] = max(counts[offer.region, offer.accelerator], offer.count)
    assert counts == {("secure", "H100"): 8, ("community", "H100"): 2, ("community", "RTX4090"): 1}


def test_stock_decides_what_is_available(server: FakeServer) -> None:
    found = offers(server)
    one, eight = (found["secure", f"{n}x_H100-SXM_SECURE", "on_demand", None] for n in (1, 8))
    assert (one.availability, one.score) == (Availability.AVAILABLE, 0.9)
    assert eight.availability is Availability.UNAVAILABLE
    assert "8 GPUs" in eight.unavailable_because
    gone = found["community", "1x_H100-SXM_COMMUNITY", "on_demand", None]
    assert gone.availability is Availability.UNAVAILABLE
    assert (one.cpus, one.memory_gib, eight.interconnect) == (20, 125, Interconnect.NVLINK)


def test_what_cannot_be_an_offer_is_counted(server: FakeServer) -> None:
    skipped = Counter(row.reason for row in rows(server) if isinstance(row, SkippedRow))
    assert skipped == {"unknown_accelerator": 1, "no_price": 1}


def test_one_price_that_makes_no_sense_leaves_the_others() -> None:
    found = told(
        {
            "id": "NVIDIA L4", "displayName": "L4", "memoryInGb": 24, "maxGpuCount": 8, "secureCloud": True,
            "securePrice": 0, "communityPrice": Decimal("0.3"), "communityCloud": True, "oneMonthPrice": -1,
            "secureSpotPrice": Decimal("1e9"), "communitySpotPrice": True,
            "secure": None, "community": None,
        }
    )  # fmt: skip
    assert {row.price_per_gpu for row in found if isinstance(row, Offer)} == {Money.usd("0.3")}
    skipped = Counter(row.reason for row in found if isinstance(row, SkippedRow))
    assert skipped == {"invalid_price": 3, "absurd_price": 1, "incomplete_row": 1}


def test_one_lowest_price_over_both_clouds_belongs_to_the_cloud_whose_price_it_repeats() -> None:
    """As older queries ask: lowestPrice without an alias."""
    row = {
        "id": "NVIDIA L4", "displayName": "L4", "memoryInGb": 24, "maxGpuCount": 1, "secureCloud": True,
        "communityCloud": True, "securePrice": Decimal("0.43"), "communityPrice": Decimal("0.39"),
        "lowestPrice": {
            "minimumBidPrice": Decimal("0.21"), "uninterruptablePrice": Decimal("0.39"), "stockStatus": "Medium",
        },
    }  # fmt: skip
    spot = [o for o in told(row) if isinstance(o, Offer) and o.capacity_type is CapacityType.SPOT]
    assert [(o.region, o.price, o.score) for o in spot] == [("community", Money.usd("0.21"), 0.6)]
    row["lowestPrice"] = {"minimumBidPrice": Decimal("0.22"), "uninterruptablePrice": Decimal("0.43")}
    spot = [o for o in told(row) if isinstance(o, Offer) and o.capacity_type is CapacityType.SPOT]
    assert [(o.region, o.price) for o in spot] == [("secure", Money.usd("0.22"))]


def test_a_row_twice_is_one_offer_and_another_price_for_it_is_counted() -> None:
    row = {"id": "NVIDIA L4", "displayName": "L4", "memoryInGb": 24, "maxGpuCount": 1, "securePrice": Decimal("0.43")}
    found = told(row, row, {**row, "securePrice": Decimal("0.5")})
    assert [o.price for o in found if isinstance(o, Offer)] == [Money.usd("0.43")]
    reasons = Counter(s.reason for s in found if isinstance(s, SkippedRow))
    assert reasons == {"conflicting_duplicate": 1, "incomplete_row": 3}


def test_a_query_that_fails_says_what_runpod_said() -> None:
    answer = HttpAnswer(200, {"errors": [{"message": "Cannot query field 'x'"}], "data": None})
    with FakeServer(lambda _: answer) as server, pytest.raises(Malformed, match="Cannot query field"):
        rows(server)


@pytest.mark.parametrize(
    ("gone", "still_there"),
    [
        ("oneMonthPrice", {("on_demand", None), ("spot", None), ("reserved", 3), ("reserved", 6)}),
        ("minimumBidPrice", {("on_demand", None), ("spot", None), ("reserved", 1), ("reserved", 3), ("reserved", 6)}),
        ("securePrice", {("spot", None), ("reserved", 1), ("reserved", 3), ("reserved", 6)}),
    ],
)
def test_a_field_that_runpod_no_longer_knows_is_left_out_and_counted(
    gone: str, still_there: set[tuple[str, int | None]]
) -> None:
    with FakeServer(RunpodMarket(H100, gone=(gone,))) as server:
        found = rows(server)
        assert len(server.requests) == 2
    secure = {(o.capacity_type.value, o.term_months) for o in found if isinstance(o, Offer) and o.region == "secure"}
    assert secure == still_there
    skipped = [row for row in found if isinstance(row, SkippedRow)]
    more = [("no_price", False)] if gone == "securePrice" else []
    assert [(row.reason, gone in row.detail) for row in skipped] == [("not_told", True), *more]


def test_every_optional_field_gone_at_once_still_leaves_what_is_told() -> None:
    gone = ("availableGpuCounts", "maxGpuCountSecureCloud", "threeMonthPrice", "secureSpotPrice", "secureCloud")
    with FakeServer(RunpodMarket(H100, gone=gone)) as server:
        found = rows(server)
    assert {row.detail.rpartition(" ")[2] for row in found if isinstance(row, SkippedRow)} == set(gone)
    priced = {o.instance_type: o.price for o in found if isinstance(o, Offer) and o.capacity_type == "on_demand"}
    assert priced["8x_H100-SXM_SECURE"] == Money.usd("23.92")


def test_a_query_refused_for_another_reason_is_asked_again_in_its_smallest_form() -> None:
    market = RunpodMarket(H100, RTX4090)

    def picky(request: HttpRequest) -> HttpAnswer:
        if "secureCloud:" in request.body["query"]:
            return HttpAnswer(
                400, {"errors": [{"message": 'Unknown argument "secureCloud" on "GpuType.lowestPrice".'}]}
            )
        return market(request)

    with FakeServer(picky) as server:
        found = rows(server)
        assert len(server.requests) == 2
    assert {o.region for o in found if isinstance(o, Offer)} == {"secure", "community"}
    assert {row.reason for row in found if isinstance(row, SkippedRow)} == {"not_told"}


def test_what_is_refused_in_every_form_is_raised_as_it_was_first_refused() -> None:
    refused = HttpAnswer(400, {"errors": [{"message": 'Cannot query field "gpuTypes" on type "Query".'}]})
    with FakeServer(lambda _: refused) as server, pytest.raises(Refused, match="gpuTypes"):
        rows(server)
    assert len(server.requests) == 2


def test_the_price_book_and_the_live_rows_are_of_the_same_pools() -> None:
    """Otherwise a list price of last month would stand beside today's. Names as RunPod's own: id, displayName."""
    cards = [
        ("NVIDIA H100 80GB HBM3", "H100 SXM", 80), ("NVIDIA H100 PCIe", "H100 PCIe", 80),
        ("NVIDIA H100 NVL", "H100 NVL", 94), ("NVIDIA A100 80GB PCIe", "A100 PCIe", 80),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM", 80), ("NVIDIA H200", "H200 SXM", 141), ("NVIDIA B200", "B200", 180),
        ("NVIDIA B300 SXM6 AC", "B300", 288), ("NVIDIA L40S", "L40S", 48), ("NVIDIA GeForce RTX 4090", "RTX 4090", 24),
    ]  # fmt: skip
    both = {"securePrice": Decimal(1), "communityPrice": Decimal(1), "maxGpuCount": 1}
    named = [{"id": id, "displayName": shown, "memoryInGb": memory, **both} for id, shown, memory in cards]
    live = {row.pool for row in told(*named) if isinstance(row, Offer)}
    book = Pricebook(clock=ManualClock(NOW)).offers(OfferQuery())
    listed = {row.pool for row in book if isinstance(row, Offer) and row.provider == "runpod"}
    assert listed
    assert listed <= live


def answer_of(*gpu_types: GpuType) -> Any:
    with FakeServer(RunpodMarket(*gpu_types)) as server:
        rows(server)
        return RunpodMarket(*gpu_types)(server.requests[0]).body


def answers() -> JsonAnswers:
    gpus = {"L40S": "NVIDIA L40S", "A100 PCIe": "NVIDIA A100 80GB PCIe", "B200": "NVIDIA B200"}
    more = [H100.model_copy(update={"id": full, "displayName": shown}) for shown, full in gpus.items()]
    return JsonAnswers(
        runpod,
        RunpodMarket(),
        "/graphql",
        answer_of(H100, RTX4090, *more),
        lambda body: body["data"]["gpuTypes"],
        fair=r"(secure|community)Cloud\.= False|Price\.= None|maxGpuCount\w*\.= [01]$|(secure|community)\.= None",
        # Where RunPod tells of no lowest price, its list price of spot counts.
        prices=r"(?i)price|bid|row \d+: (= |$)|(secure|community)\.= None",
    )
