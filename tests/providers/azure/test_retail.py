"""Azure's retail prices. Each trap of the price list has a test of its own."""

import json
import os
import tomllib
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from broker.core.errors import Malformed, Refused
from broker.core.market.accelerators import lookup
from broker.core.market.offers import Availability, CapacityType, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.azure.provider import Azure
from providers.azure.settings import AzureSettings
from tests.contracts.http_faults import HttpFaults
from tests.contracts.provider_contract import NOW, ProviderContract
from tests.fakes.asking import until_error
from tests.fakes.azure_retail import FakeRetailPrices, RetailItem, SavingsPlan
from tests.fakes.mutate import JsonAnswers
from tests.fakes.server import FakeServer, Fault, HttpAnswer, HttpRequest, Market

DATA = os.environ.get("GPUBROKER_TEST_DATA")
SAMPLE = Path(DATA or ".") / "payloads" / "azure_retail_full_shape_consumption_and_reservation.json"

H100 = RetailItem(
    armSkuName="Standard_ND96isr_H100_v5",
    retailPrice=Decimal("98.32"),
    productName="Virtual Machines NDsr H100 v5 Series",
    meterName="ND96isrH100v5",
    skuName="ND96isrH100v5",
    savingsPlan=[
        SavingsPlan(unitPrice=Decimal("54.076"), retailPrice=Decimal("54.076"), term="3 Years"),
        SavingsPlan(unitPrice=Decimal("73.74"), retailPrice=Decimal("73.74"), term="1 Year"),
    ],
)


def changed(meter: RetailItem = H100, **fields: Any) -> RetailItem:
    return RetailItem(**(meter.model_dump() | {"savingsPlan": None} | fields))


SPOT = changed(meterName="ND96isrH100v5 Spot", skuName="ND96isrH100v5 Spot", retailPrice=Decimal("18.169536"))
ONE_YEAR = changed(type="Reservation", reservationTerm="1 Year", retailPrice=Decimal("551155.0"))
THREE_YEARS = changed(type="Reservation", reservationTerm="3 Years", retailPrice=Decimal("1136960.0"))
WINDOWS = changed(productName="Virtual Machines NDsr H100 v5 Series Windows", retailPrice=Decimal("102.736"))
T4 = changed(
    armSkuName="Standard_NC4as_T4_v3", productName="Virtual Machines NCasT4_v3 Series", meterName="NC4as T4 v3",
    skuName="NC4as T4 v3", retailPrice=Decimal("0.526"), armRegionName="westeurope",
)  # fmt: skip


def azure(url: str, clock: ManualClock, **settings: Any) -> Azure:
    return Azure(clock=clock, settings=AzureSettings(retail_prices_url=f"{url}/api/retail/prices", **settings))


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(FakeRetailPrices(WINDOWS, H100, SPOT, ONE_YEAR, THREE_YEARS, T4)) as running:
        yield running


class TestAzureIsAProvider(ProviderContract):
    plugin = "azure"

    @pytest.fixture
    def provider(self, clock: ManualClock, server: FakeServer) -> Azure:
        return azure(server.url, clock)


class TestFaultsOfAzure(HttpFaults):
    def market(self) -> Market:
        return FakeRetailPrices(H100, T4, page=1)

    def make(self, url: str, clock: ManualClock, **settings: Any) -> Azure:
        return azure(url, clock, **settings)


def rows(server: FakeServer) -> list[Offer | SkippedRow]:
    return list(azure(server.url, ManualClock(NOW)).offers(OfferQuery()))


def told(*meters: RetailItem | dict[str, Any]) -> tuple[list[Offer], Counter[str]]:
    """What an answer of these rows becomes, whatever was asked."""
    items = [meter.item() if isinstance(meter, RetailItem) else meter for meter in meters]
    with FakeServer(lambda _: HttpAnswer(200, {"Items": items, "NextPageLink": None})) as server:
        found = rows(server)
    skipped = Counter(row.reason for row in found if isinstance(row, SkippedRow))
    return [row for row in found if isinstance(row, Offer)], skipped


def test_prices_are_exact_and_say_what_they_are(server: FakeServer) -> None:
    found = {
        (row.instance_type, row.capacity_type.value, row.term_months, row.source): row.price
        for row in rows(server)
        if isinstance(row, Offer)
    }
    h100 = "Standard_ND96isr_H100_v5"
    assert found == {
        (h100, "on_demand", None, "azure-retail"): Money.usd("98.32"),
        (h100, "spot", None, "azure-retail"): Money.usd("18.169536"),
        (h100, "reserved", 12, "azure-retail"): Money.usd("62.917237"),
        (h100, "reserved", 36, "azure-retail"): Money.usd("43.263318"),
        (h100, "reserved", 12, "azure-savings-plan"): Money.usd("73.74"),
        (h100, "reserved", 36, "azure-savings-plan"): Money.usd("54.076"),
        ("Standard_NC4as_T4_v3", "on_demand", None, "azure-retail"): Money.usd("0.526"),
    }


def test_trap_linux_and_windows_share_the_meter_name(server: FakeServer) -> None:
    """The Windows row comes first, and would win if only the product's name were not looked at."""
    assert Counter(row.reason for row in rows(server) if isinstance(row, SkippedRow)) == {"other_product": 1}
    offers, skipped = told(changed(productName="Virtual Machines NCCadsv5 Srs Win"), changed(productName="A Series"))
    assert (len(offers), skipped) == (1, {"other_product": 1})


def test_trap_a_reservation_is_priced_for_its_whole_term_though_it_says_one_hour() -> None:
    offers, _ = told(ONE_YEAR)
    assert [(o.price, o.term_months, o.engine) for o in offers] == [(Money(62917237), 12, None)]


def test_trap_low_priority_is_not_spot() -> None:
    low = changed(meterName="ND96isrH100v5 Low Priority", skuName="ND96isrH100v5 Low Priority")
    assert told(low) == ([], {"low_priority": 1})


def test_trap_spot_may_be_marked_in_the_meter_alone() -> None:
    offers, _ = told(changed(meterName="ND96isrH100v5 Spot"))
    assert [offer.capacity_type for offer in offers] == [CapacityType.SPOT]


def test_trap_a_price_of_zero_is_not_on_sale_yet() -> None:
    assert told(changed(retailPrice=Decimal("0.0"))) == ([], {"invalid_price": 1})


def test_trap_sizes_that_are_retired_stay_in_the_list() -> None:
    v100 = changed(armSkuName="Standard_ND40rs_v2", productName="Virtual Machines NDrSv2 Series", meterName="ND40rs v2")
    [offer] = told(v100)[0]
    assert (offer.machine, offer.price) == ("V100-32GB:8", Money.usd("98.32"))
    assert (offer.availability, offer.unavailable_because) == (
        Availability.UNAVAILABLE, "Azure retired this size in 2025",
    )  # fmt: skip


def test_trap_of_two_meters_the_primary_one_counts_whichever_comes_first() -> None:
    other = changed(retailPrice=Decimal("120"), isPrimaryMeterRegion=False, meterId="other")
    for rows_in_order in ((other, H100), (H100, other)):
        offers, skipped = told(*rows_in_order)
        assert [offer.price for offer in offers if offer.term_months is None] == [Money.usd("98.32")]
        assert skipped == {"conflicting_duplicate": 1}
    assert [offer.price for offer in told(other)[0]] == [Money.usd(120)], "one that stands alone is a price"


def test_trap_of_two_prices_in_force_the_newer_counts() -> None:
    newer = changed(retailPrice=Decimal("90"), effectiveStartDate="2026-11-01T00:00:00Z")
    for rows_in_order in ((changed(), newer), (newer, changed())):
        assert [offer.price for offer in told(*rows_in_order)[0]] == [Money.usd(90)]


def test_trap_savings_plans_come_only_with_the_preview_of_2023(server: FakeServer) -> None:
    found = [row for row in rows(server) if isinstance(row, Offer) and row.source == "azure-savings-plan"]
    assert len(found) == 2
    assert {request.query["api-version"] for request in server.requests} == {"2023-01-01-preview"}


def test_trap_a_row_is_what_it_says_and_not_what_was_asked_for() -> None:
    """The service is asked for GPU machines; what else it sends is not taken for one."""
    cpu = changed(armSkuName="Standard_D8_v4", productName="Virtual Machines Dv4 Series", meterName="D8 v4")
    [offer] = told(cpu)[0]
    assert (offer.machine, offer.count) == ("cpu", 0)


def test_trap_filter_values_are_case_sensitive(server: FakeServer) -> None:
    rows(server)
    assert "serviceName eq 'Virtual Machines'" in server.requests[0].query["$filter"]
    assert server.requests[0].query["api-version"] == "2023-01-01-preview"


def test_of_parts_of_cards_only_those_that_skypilot_knows_are_launched() -> None:
    names = ("Standard_NV6ads_A10_v5", "Standard_NV4as_v4")
    offers, skipped = told(*(changed(armSkuName=name) for name in names), T4)
    assert not skipped
    assert [(offer.machine, offer.engine) for offer in offers] == [
        ("A10-1of6:1", "skypilot"), ("MI25-1of8:1", None), ("T4:1", "skypilot"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"currencyCode": "EUR"}, "foreign_currency"),
        ({"unitOfMeasure": "1 Month"}, "unexpected_unit"),
        ({"tierMinimumUnits": Decimal(100)}, "tiered_price"),
        ({"effectiveStartDate": "2026-12-01T00:00:00Z"}, "not_in_force"),
        ({"effectiveEndDate": "2026-01-01T00:00:00Z"}, "not_in_force"),
        ({"type": "DevTestConsumption"}, "dev_test_price"),
        ({"type": "Rebate"}, "malformed_row"),
        ({"type": "Reservation", "reservationTerm": "2 Fortnights"}, "malformed_row"),
        ({"armSkuName": "Standard_NC132ds_xl_RTXPRO6000BSE_v6"}, "unknown_machine"),
        ({"armSkuName": ""}, "malformed_row"),
        ({"armRegionName": ""}, "malformed_row"),
        ({"productName": "NDsr Dedicated Host"}, "other_product"),
        ({"retailPrice": Decimal("-1")}, "invalid_price"),
        ({"retailPrice": Decimal("1e9")}, "absurd_price"),
    ],
)
def test_what_is_no_price_of_a_machine_is_counted(fields: dict[str, Any], reason: str) -> None:
    offers, skipped = told(changed(**fields), T4)
    assert [offer.instance_type for offer in offers] == ["Standard_NC4as_T4_v3"]
    assert skipped == {reason: 1}


def test_a_savings_plan_that_makes_no_sense_leaves_the_rest() -> None:
    row = H100.item() | {"savingsPlan": [{"term": "1 Year", "retailPrice": 0}, {"term": "3 Year", "unitPrice": 54}, 7]}
    offers, skipped = told(row)
    assert [(o.term_months, o.price) for o in offers] == [(None, Money.usd("98.32")), (36, Money.usd(54))]
    assert skipped == {"invalid_price": 1, "malformed_row": 1}


def test_the_case_of_names_does_not_matter() -> None:
    offers, _ = told(changed(armSkuName="standard_nd96isr_h100_V5", armRegionName="WestUS3"))
    assert [(o.machine, o.region) for o in offers] == [("H100:8", "westus3")]


@pytest.mark.parametrize("page", [1, 2, 4, 5])
def test_trap_pages_go_on_behind_the_next_page_link_at_the_address_that_was_set(page: int) -> None:
    meters = [changed(armRegionName=f"region{n}") for n in range(5)]
    with FakeServer(FakeRetailPrices(*meters, page=page)) as server:
        assert {row.region for row in rows(server) if isinstance(row, Offer)} == {f"region{n}" for n in range(5)}


def test_the_setting_may_be_the_host_alone(server: FakeServer) -> None:
    provider = Azure(clock=ManualClock(NOW), settings=AzureSettings(retail_prices_url=server.url))
    assert len(list(provider.offers(OfferQuery()))) == len(rows(server))
    assert provider.describe_setup()["endpoints"]["retail prices"]["url"] == f"{server.url}/api/retail/prices"


def test_a_link_to_the_address_that_is_set_may_name_another_path() -> None:
    pages = {"/list": "/more/2", "/more/2": "/more/3?x=1", "/more/3": None}

    def answer(request: HttpRequest) -> HttpAnswer:
        link = pages[request.path]
        region = changed(armRegionName=request.path.replace("/", ""))
        return HttpAnswer(200, {"Items": [region.item()], "NextPageLink": link and f"{pages_of.url}{link}"})

    with FakeServer(answer) as pages_of:
        settings = AzureSettings(retail_prices_url=f"{pages_of.url}/list", attempts=1)
        found = [*Azure(clock=ManualClock(NOW), settings=settings).offers(OfferQuery())]
    assert sorted(row.region for row in found if isinstance(row, Offer)) == ["list", "more2", "more3"]


@pytest.mark.parametrize("link", [7, "", None, [], "https://[", "https://prices.azure.com/api/retail/prices", "next"])
def test_a_link_that_leads_nowhere_is_told(link: Any) -> None:
    with FakeServer(lambda _: HttpAnswer(200, {"Items": [H100.item()], "NextPageLink": link})) as server:
        found, error = until_error(azure(server.url, ManualClock(NOW)))
    assert len(found) == 3
    assert isinstance(error, Malformed) == bool(link or link == [])


def test_an_empty_page_is_not_the_end() -> None:
    meters = [changed(armRegionName=f"region{n}") for n in range(4)]
    with FakeServer(FakeRetailPrices(*meters, page=2, gap=True)) as server:
        assert len(rows(server)) == 4
        assert len(server.requests) == 3


def test_a_page_that_comes_again_ends_with_an_error_and_what_came_before_stays() -> None:
    with FakeServer(FakeRetailPrices(H100, T4, page=1, stuck=True)) as server:
        found, error = until_error(azure(server.url, ManualClock(NOW)))
        assert isinstance(error, Malformed)
        assert len(server.requests) == 2
    assert len([row for row in found if isinstance(row, Offer)]) == 4


@pytest.mark.parametrize("fault", [Fault.WRONG_TYPE, Fault.NOT_JSON, Fault.EMPTY_BODY])
def test_an_answer_of_another_shape_is_malformed(server: FakeServer, fault: Fault) -> None:
    server.order(fault)
    with pytest.raises(Malformed):
        rows(server)


def test_a_401_is_a_refusal_and_names_the_setting(server: FakeServer) -> None:
    server.order(Fault.REDIRECT)
    with pytest.raises(Refused) as caught:
        rows(server)
    assert "GPUBROKER_PROVIDERS__AZURE__RETAIL_PRICES_URL" in caught.value.hint


def test_the_table_names_cards_that_are_known_and_counts_that_make_sense() -> None:
    table = tomllib.loads(files("providers.azure").joinpath("machines.toml").read_text("utf-8"))
    for machine, row in table["machines"].items():
        assert lookup(row["gpu"]).name == row["gpu"], machine
        assert row["n"] in (1, 2, 4, 8), machine
        assert 2020 < row.get("retired", 2023) <= NOW.year, machine
        assert row.get("gib", 9999) > row["vcpus"], machine
        assert ("link" in row) == (row["n"] > 1 and row["gpu"] != "MI300X"), machine


@pytest.mark.skipif(not SAMPLE.is_file(), reason="needs GPUBROKER_TEST_DATA")
def test_the_recorded_answer_is_read_exactly() -> None:
    """A page as archived: a CPU machine on demand and reserved. Its prices are the page's, to the micro-dollar."""
    page = json.loads(SAMPLE.read_text(), parse_float=Decimal)
    expected = Counter(
        (
            item["armSkuName"],
            int(item["reservationTerm"][0]) * 12 if "reservationTerm" in item else None,
            Money.usd(item["retailPrice"] / (int(item.get("reservationTerm", "0")[0]) * 8760 or 1)),
        )
        for item in page["Items"]
    )
    with FakeServer(lambda _: HttpAnswer(200, SAMPLE.read_bytes())) as server:
        found = rows(server)
    assert Counter((o.instance_type, o.term_months, o.price) for o in found if isinstance(o, Offer)) == expected
    assert {(o.accelerator, o.count, o.cpus) for o in found if isinstance(o, Offer)} == {(None, 0, 8)}


def answers() -> JsonAnswers:
    regions = [changed(armRegionName=name) for name in ("japaneast", "westus3")]
    items = [meter.item() for meter in (H100, SPOT, ONE_YEAR, T4, *regions)]
    return JsonAnswers(
        azure,
        FakeRetailPrices(),
        "/api/retail/prices",
        {"BillingCurrency": "USD", "Items": items, "NextPageLink": None, "Count": len(items)},
        lambda body: body["Items"],
        fair=r"savingsPlan\.(deleted|\d+\.deleted|= (None|\[\]))",
    )
