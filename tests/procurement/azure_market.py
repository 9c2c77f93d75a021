"""What Azure sells, behind TLS and a line that can be spoilt."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from broker.core.purchases.quotes import PurchaseProduct, QuoteRequest
from broker.core.values.money import Money
from tests.fakes.azure_cloud import SUBSCRIPTION, AzureCloud, Credential, serve_tls
from tests.fakes.azure_retail import FakeRetailPrices, RetailItem, SavingsPlan
from tests.fakes.server import FakeServer, HttpAnswer
from tests.procurement.conftest import NOW
from tests.procurement.markets import DAY, YEAR, Stall
from tests.procurement.spoilt import SpoiltLine

H100 = "Standard_ND96isr_H100_v5"
_LOST = {"error": {"code": "ResourceNotFound", "message": "not found"}}
_CONFIRMED = {"reserved": "Succeeded", "orders": "Succeeded", "aliases": "Succeeded"}


def _prices() -> FakeRetailPrices:
    plain = "ND96isrH100v5"
    common: dict[str, Any] = {
        "armSkuName": H100, "productName": "Virtual Machines NDsr H100 v5 Series", "armRegionName": "eastus",
        "meterName": plain, "skuName": plain,
    }  # fmt: skip
    plans = [SavingsPlan(unitPrice=Decimal("60"), retailPrice=Decimal("60"), term="1 Year")]
    return FakeRetailPrices(
        RetailItem(**common, retailPrice=Decimal("98.32"), savingsPlan=plans),
        RetailItem(**common, retailPrice=Decimal("551155"), type="Reservation", reservationTerm="1 Year"),
    )


def _azure(product: PurchaseProduct, rows: str, path: str, length: timedelta, upfront: Money = Money.ZERO) -> Stall:
    cloud = AzureCloud()
    cloud.shop.now = lambda: NOW
    world: dict[str, Any] = getattr(cloud.shop, rows)

    def pay() -> None:
        for row in world.values():
            if row["properties"]["provisioningState"] != "Cancelled":
                row["properties"]["provisioningState"] = _CONFIRMED[rows]

    line = SpoiltLine(
        cloud,
        is_order=lambda request: request.method == "PUT" and path in request.path,
        is_look=lambda request: request.method == "GET" and path in request.path,
        nothing=lambda request: HttpAnswer(404, _LOST, {"Content-Type": "application/json"}),
    )

    @contextmanager
    def serve(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
        from providers.azure import pipeline

        monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", SUBSCRIPTION)
        monkeypatch.setenv("AZURE_CLIENT_SECRET", "not-a-secret")
        monkeypatch.setattr(pipeline, "credential", lambda settings, managed_identity: Credential())
        with ExitStack() as stack:
            server, bundle = stack.enter_context(serve_tls(line, home))
            prices = stack.enter_context(FakeServer(_prices()))
            yield {
                "management_url": server.url,
                "ca_bundle": str(bundle),
                "retail_prices_url": prices.url,
                "regions": ["eastus"],
            }

    return Stall(
        provider="azure",
        request=QuoteRequest(machines=2, instance_type=H100, length=length, region="eastus", products=(product,)),
        line=line,
        settings=lambda url: {},
        bought=lambda: list(world.values()),
        pay=pay,
        upfront=upfront,
        serve=serve,
    )


def azure_reservation() -> Stall:
    return _azure(PurchaseProduct.CAPACITY_RESERVATION, "reserved", "/capacityReservations/", 3 * DAY)


def azure_reserved() -> Stall:
    total = Money.usd(1_000_000)
    return _azure(PurchaseProduct.RESERVED_INSTANCES, "orders", "/reservationOrders/", YEAR, total)
