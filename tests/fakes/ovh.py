"""OVHcloud's public catalogue of its Public Cloud, with the fields of ``order.catalog.public.Catalog``."""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from tests.fakes.server import HttpAnswer, HttpRequest
from tests.fakes.strict import StrictBody


class OvhPricing(StrictBody):
    capacities: list[str] = Field(default_factory=lambda: ["consumption"])
    commitment: int = 0
    description: str = "hourly"
    interval: int = 1
    intervalUnit: str = "hour"
    mode: str = "default"
    phase: int = 0
    price: int
    strategy: str = "tiered"
    tax: int = 0
    type: str = "consumption"


class OvhAddon(StrictBody):
    planCode: str
    invoiceName: str
    product: str = "publiccloud-instance"
    pricingType: str = "consumption"
    consumptionConfiguration: dict[str, Any] | None = None
    pricings: list[OvhPricing]
    configurations: list[dict[str, Any]] = Field(default_factory=list)
    addonFamilies: list[Any] = Field(default_factory=list)
    blobs: dict[str, Any] | None = None


def ovh_machine(name: str, gpu: str, number: int, gib: int, usd: float, *regions: str, **more: Any) -> OvhAddon:
    """A machine by the hour, without regions, as in the catalogue."""
    technical = {
        "name": name,
        "cpu": {"cores": 30, "type": "vCore", "frequency": 3.3},
        "memory": {"size": 380, "unit": "GB"},
        "gpu": {"model": gpu, "number": number, "brand": "nvidia", "memory": {"size": gib}},
        "os": {"family": "linux"},
    }
    places = [{"name": "region", "isCustom": False, "isMandatory": False, "values": list(regions)}] if regions else []
    plain: dict[str, Any] = {
        "planCode": f"{name}.consumption",
        "invoiceName": name,
        "pricings": [OvhPricing(price=round(usd * 10**8))],
        "configurations": places,
        "blobs": {"commercial": {"brick": "gpu"}, "tags": ["active"], "technical": technical},
    }
    return OvhAddon(**{**plain, **more})


class OvhMarket:
    """Answers ``GET /order/catalog/public/cloud``: in US dollars for ``WE`` and ``US``, in euros otherwise."""

    def __init__(self, addons: Sequence[OvhAddon]) -> None:
        self.addons = addons

    def body(self, currency: str = "USD") -> dict[str, Any]:
        locale = {"currencyCode": currency, "subsidiary": "WE", "taxRate": 0}
        return {"catalogId": 15, "locale": locale, "plans": [], "addons": [one.model_dump() for one in self.addons]}

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if (request.method, request.path) != ("GET", "/order/catalog/public/cloud"):
            return HttpAnswer(404, {"message": "The requested URL does not exist"})
        return HttpAnswer(200, self.body("USD" if request.query.get("ovhSubsidiary") in ("WE", "US") else "EUR"))
