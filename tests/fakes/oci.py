"""The two documents of Oracle's cost estimator, with their real structure, including unused fields."""

from decimal import Decimal

from pydantic import Field

from tests.fakes.server import HttpAnswer, HttpRequest
from tests.fakes.strict import StrictBody


class OciChoice(StrictBody):
    value: str


class OciPart(StrictBody):
    partNumber: str
    qty: int | Decimal | None
    type: OciChoice = OciChoice(value="ocpu")


class OciShape(StrictBody):
    """One of ``items`` in shapes.json."""

    name: str
    hidden: bool = False
    status: str = "ACTIVE"
    allowPreemptible: bool = False
    bundleMemoryQty: int | None
    gpuQty: int | None
    gpuMemoryQty: int | None
    processorType: OciChoice = OciChoice(value="hopper")
    shapeType: OciChoice = OciChoice(value="bm")
    subType: OciChoice = OciChoice(value="gpu")
    products: list[OciPart]


class OciPrice(StrictBody):
    model: str = "PAY_AS_YOU_GO"
    value: int | Decimal


class Localization(StrictBody):
    currencyCode: str
    prices: list[OciPrice]


class Product(StrictBody):
    """One of ``items`` in products.json."""

    partNumber: str
    billingModel: str = "UCM"
    pricetype: str = "HOUR"
    currencyCodeLocalizations: list[Localization] = Field(default_factory=list)


def gpu_shape(
    name: str,
    gpus: int,
    gpu_memory: int,
    part: str,
    ocpus: int | None,
    memory: int | None,
    *,
    preemptible: bool = False,
) -> OciShape:
    return OciShape(
        name=name,
        allowPreemptible=preemptible,
        bundleMemoryQty=memory,
        gpuQty=gpus,
        gpuMemoryQty=gpu_memory,
        products=[OciPart(partNumber=part, qty=ocpus)],
    )


def product(part: str, usd: int | Decimal) -> Product:
    """A product priced in dollars, preceded by another currency."""
    yen = Localization(currencyCode="JPY", prices=[OciPrice(value=usd * 155)])
    return Product(
        partNumber=part, currencyCodeLocalizations=[yen, Localization(currencyCode="USD", prices=[OciPrice(value=usd)])]
    )


class OciMarket:
    """Answers with the two documents."""

    def __init__(self, shapes: list[OciShape], products: list[Product]) -> None:
        self.documents: dict[str, list[OciShape] | list[Product]] = {"/shapes.json": shapes, "/products.json": products}

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        found = self.documents.get(request.path)
        if request.method != "GET" or found is None:
            return HttpAnswer(404, b"<html>not found</html>")
        return HttpAnswer(200, {"buildId": "1", "count": len(found), "items": [row.model_dump() for row in found]})
