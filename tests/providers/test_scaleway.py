"""Scaleway's machines become offers, in dollars."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from broker.core.errors import Malformed
from broker.core.market.offers import Availability, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.scaleway import Scaleway, ScalewaySettings, read_rate
from tests.contracts.http_faults import HttpFaults
from tests.contracts.provider_contract import NOW, ProviderContract
from tests.fakes.asking import until_error
from tests.fakes.mutate import JsonAnswers
from tests.fakes.scaleway import (
    RATE,
    ScalewayInstance,
    ScalewayLocality,
    ScalewayMarket,
    ScalewayMoney,
    ScalewayPrice,
    ScalewayProduct,
    ScalewayProperties,
    ScalewayUnit,
    rates,
    scaleway_machine,
)
from tests.fakes.server import FakeServer, Fault, Market

EIGHT = scaleway_machine("H100-SXM-8-80G", "H100-SXM", 8, "25.3308", "fr-par-2")
ONE = scaleway_machine("H100-1-80G", "H100-PCIe", 1, "2.8665", "pl-waw-2")
L4 = scaleway_machine("L4-2-24G", "L4", 2, "1.5", "fr-par-1")
RENDER = scaleway_machine("RENDER-S", "P100", 1, "1.221", "fr-par-2")
MACHINES = (EIGHT, ONE, L4, RENDER)
STOCK = {
    "fr-par-2": {"H100-SXM-8-80G": "shortage", "RENDER-S": "scarce"},
    "pl-waw-2": {"H100-1-80G": "available", "L4-2-24G": "available"},
}
VOLUME = ScalewayProduct(
    sku="/storage/block",
    locality=ScalewayLocality(region="fr-par"),
    price=ScalewayPrice(retail_price=ScalewayMoney(nanos=1)),
    properties=ScalewayProperties(block_storage={}),
)
OTHERS = (
    VOLUME,
    scaleway_machine("POP2-HC-2C-4G", "", 0, "0.0532", "fr-par-2"),
    scaleway_machine("H100-2-80G", "", 0, "5.4", "fr-par-2"),  # its cards are not told
    EIGHT.model_copy(update={"status": "end_of_sale"}),
    EIGHT.model_copy(update={"unit_of_measure": ScalewayUnit(unit="month")}),
    EIGHT.model_copy(update={"properties": ScalewayProperties(instance=ScalewayInstance(offer_id="H100-SXM-8-80G"))}),
    scaleway_machine("X900-1-80G", "X900", 1, "2", "fr-par-2"),
    scaleway_machine("L4-4-24G", "L4", 2, "3", "fr-par-1"),
    L4.model_copy(update={"price": ScalewayPrice(retail_price=ScalewayMoney(currency_code="GBP", units=1))}),
)


def scaleway(url: str, clock: ManualClock, **settings: Any) -> Scaleway:
    return Scaleway(clock=clock, settings=ScalewaySettings(**{"base_url": url, "rates_url": url, **settings}))


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(ScalewayMarket([*MACHINES, *OTHERS], STOCK)) as running:
        yield running


class TestScalewayIsAProvider(ProviderContract):
    plugin = "scaleway"

    @pytest.fixture
    def provider(self, clock: ManualClock, server: FakeServer) -> Scaleway:
        return scaleway(server.url, clock)


class TestFaultsOfScaleway(HttpFaults):
    def market(self) -> Market:
        return ScalewayMarket(MACHINES, STOCK)

    def make(self, url: str, clock: ManualClock, **settings: Any) -> Scaleway:
        return scaleway(url, clock, **settings)


def test_a_machine_is_an_offer_at_the_rate_of_the_day(server: FakeServer) -> None:
    provider = scaleway(server.url, ManualClock(NOW))
    rows = list(provider.offers(OfferQuery()))
    found = {(row.zone, row.machine): row for row in rows if isinstance(row, Offer)}
    assert {key: row.price for key, row in found.items()} == {
        ("fr-par-2", "H100:8"): Money.usd("29.348265"),  # 25.3308 × 1.1586 = 29.34826488
        ("pl-waw-2", "H100-PCIe:1"): Money.usd("3.321127"),  # 2.8665 × 1.1586 = 3.3211269
        ("fr-par-1", "L4:2"): Money.usd("1.7379"),
        ("fr-par-2", "P100:1"): Money.usd("1.414651"),  # 1.221 × 1.1586 = 1.4146506
    }
    eight = found["fr-par-2", "H100:8"]
    assert (eight.region, eight.interconnect, eight.memory_gib) == ("fr-par", Interconnect.NVLINK, 240)
    assert [row.availability.value for row in found.values()] == ["unavailable", "available", "unknown", "available"]
    assert eight.unavailable_because
    assert provider.conversions() == (f"1 EUR = {RATE} USD, the European Central Bank's reference rate of 2026-11-20",)


def test_what_is_no_offer_is_counted_and_what_has_no_gpu_is_not(server: FakeServer) -> None:
    rows = scaleway(server.url, ManualClock(NOW)).offers(OfferQuery())
    assert sorted(row.reason for row in rows if isinstance(row, SkippedRow)) == [
        "conflicting_row",
        "foreign_currency",
        "malformed_row",
        "malformed_row",
        "not_sold",
        "unknown_accelerator",
        "unknown_unit",
    ]


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b"<html>Down for maintenance", "no rate to convert"),
        (rates("2026-11-10"), "2026-11-10"),
        (rates("2026-11-24"), "2026-11-24"),
        (rates(usd="11.586"), "implausible"),
        (rates(usd="0"), "implausible"),
        (rates(usd="NaN"), "decimal"),
        (rates().replace(b"USD", b"CHF"), "0 rates"),
        (rates().replace(b"JPY", b"USD"), "2 rates"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]>' + rates(), "definitions"),
        (f'<!DOCTYPE a [<!ENTITY b "1.16">]>{rates(usd="&b;").decode().partition("?>")[2]}'.encode("utf-16"), "UTF-8"),
    ],
)
def test_without_a_rate_of_these_days_nothing_is_converted(document: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        read_rate(document, NOW)


def test_machines_without_a_rate_are_counted_by_name_and_the_poll_fails() -> None:
    with FakeServer(ScalewayMarket(MACHINES, STOCK, rates("2026-10-01"))) as server:
        provider = scaleway(server.url, ManualClock(NOW))
        rows, error = until_error(provider)
    assert isinstance(error, Malformed)
    assert [row.reason for row in rows if isinstance(row, SkippedRow)] == ["no_exchange_rate"] * 4
    assert not provider.conversions()


def test_a_rate_holds_over_the_longest_holidays() -> None:
    assert str(read_rate(rates("2026-11-15"), NOW + timedelta(hours=1)).day) == "2026-11-15"


def test_stock_that_cannot_be_had_costs_no_price(server: FakeServer) -> None:
    server.order(Fault.SERVER_ERROR, at="pl-waw-2")
    rows, error = until_error(scaleway(server.url, ManualClock(NOW), attempts=1))
    there = {row.zone: row.availability for row in rows if isinstance(row, Offer)}
    assert error is not None
    assert (there["pl-waw-2"], there["fr-par-2"]) == (Availability.UNKNOWN, Availability.AVAILABLE)


def answers() -> JsonAnswers:
    market = ScalewayMarket(MACHINES, STOCK)
    return JsonAnswers(
        lambda url, clock: scaleway(url, clock, attempts=1),
        market,
        "/product-catalog/v2alpha1/public-catalog/products",
        market.body(),
        lambda body: body["products"],
        prices=r"(?i)price|unit|nanos|currency|size|row \d+: (= |$)",
    )
