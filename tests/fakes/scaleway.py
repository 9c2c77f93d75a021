"""Scaleway's product catalogue and stock, according to its SDK (`PublicCatalogProduct`), and the reference rates."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from tests.fakes.server import HttpAnswer, HttpRequest
from tests.fakes.strict import StrictBody

RATE = "1.1586"


def rates(day: str = "2026-11-20", usd: str = RATE) -> bytes:
    """The European Central Bank's document of one day."""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<gesmes:Envelope xmlns:gesmes="http://www.gesmes.org/xml/2002-08-01" '
        'xmlns="http://www.ecb.int/vocabulary/2002-08-01/eurofxref"><gesmes:subject>Reference rates</gesmes:subject>'
        f"<Cube><Cube time='{day}'><Cube currency='USD' rate='{usd}'/><Cube currency='JPY' rate='181.1'/></Cube></Cube>"
        "</gesmes:Envelope>"
    ).encode()


class ScalewayMoney(StrictBody):
    currency_code: str = "EUR"
    units: int = 0
    nanos: int = 0


class ScalewayPrice(StrictBody):
    retail_price: ScalewayMoney | None


class ScalewayGpu(StrictBody):
    description: str = "NVIDIA GPU"
    count: int
    type: str


class ScalewayHardware(StrictBody):
    cpu: dict[str, Any] | None = Field(default_factory=lambda: {"description": "x64", "arch": "x64", "threads": 24})
    ram: dict[str, Any] | None = Field(default_factory=lambda: {"description": "240 GiB", "size": 240 * 2**30})
    storage: dict[str, Any] | None = None
    network: dict[str, Any] | None = None
    gpu: ScalewayGpu | None = None


class ScalewayInstance(StrictBody):
    range: str = "GPU"
    offer_id: str
    recommended_replacement_offer_ids: list[str] = Field(default_factory=list)


class ScalewayProperties(StrictBody):
    hardware: ScalewayHardware | None = None
    instance: ScalewayInstance | None = None
    block_storage: dict[str, Any] | None = None


class ScalewayLocality(StrictBody):
    zone: str | None = None
    region: str | None = None


class ScalewayUnit(StrictBody):
    unit: str = "hour"
    size: int = 1


class ScalewayProduct(StrictBody):
    sku: str
    service_category: str = "Compute"
    product_category: str = "Instance"
    product: str = ""
    variant: str = ""
    description: str = ""
    locality: ScalewayLocality
    price: ScalewayPrice | None
    properties: ScalewayProperties
    environmental_impact_estimation: dict[str, float] | None = None
    unit_of_measure: ScalewayUnit | None = Field(default_factory=ScalewayUnit)
    status: str = "general_availability"
    badges: list[str] = Field(default_factory=list)
    end_of_life_at: str | None = None


def scaleway_machine(kind: str, gpu: str, count: int, euro: str, zone: str, **more: Any) -> ScalewayProduct:
    """A machine with GPUs, or without if ``gpu`` is empty. ``euro``: per hour, with a decimal point."""
    units, _, nanos = euro.partition(".")
    has = ScalewayHardware(gpu=ScalewayGpu(count=count, type=gpu) if gpu else None)
    plain: dict[str, Any] = {
        "sku": f"/compute/{kind.lower().replace('-', '_')}/run_{zone}",
        "locality": ScalewayLocality(zone=zone),
        "price": ScalewayPrice(retail_price=ScalewayMoney(units=int(units), nanos=int(nanos.ljust(9, "0")))),
        "properties": ScalewayProperties(hardware=has, instance=ScalewayInstance(offer_id=kind)),
    }
    return ScalewayProduct(**{**plain, **more})


class ScalewayMarket:
    """Answers the catalogue, the stock of each zone, and the bank's document: one server for both."""

    def __init__(
        self,
        products: Sequence[ScalewayProduct],
        stock: Mapping[str, Mapping[str, str]] | None = None,
        document: bytes | None = None,
    ) -> None:
        self.products = products
        self.stock = stock or {}
        self.document = rates() if document is None else document

    def body(self) -> dict[str, Any]:
        return {"products": [one.model_dump() for one in self.products], "total_count": len(self.products)}

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        match request.method, request.path.split("/")[1:]:
            case "GET", ["product-catalog", "v2alpha1", "public-catalog", "products"]:
                size = int(request.query.get("page_size", "50"))
                first = (int(request.query.get("page", "1")) - 1) * size
                return HttpAnswer(200, {**self.body(), "products": self.body()["products"][first : first + size]})
            case "GET", ["instance", "v1", "zones", zone, "products", "servers", "availability"]:
                size = int(request.query.get("per_page", "50"))
                first = (int(request.query.get("page", "1")) - 1) * size
                there = list(self.stock.get(zone, {}).items())[first : first + size]
                return HttpAnswer(200, {"servers": {kind: {"availability": said} for kind, said in there}})
            case "GET", ["stats", "eurofxref", "eurofxref-daily.xml"]:
                return HttpAnswer(200, self.document, {"ETag": '"rate"'})
        return HttpAnswer(404, {"message": "resource is not found"})
