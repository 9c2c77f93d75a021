"""The two documents behind Oracle's cost estimator, as they are shaped (with the fields beside those that matter)."""

from __future__ import annotations

from decimal import Decimal

from pydantic import BaseModel, ConfigDict, Field

from tests.fakes.server import Answer, Request


class _Schema(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)


class Choice(_Schema):
    value: str


class Part(_Schema):
    partNumber: str
    qty: int | Decimal | None
    type: Choice = Choice(value="ocpu")


class Shape(_Schema):
    """One of ``items`` in shapes.json."""

    name: str
    hidden: bool = False
    status: str = "ACTIVE"
    allowPreemptible: bool = False
    bundleMemoryQty: int | None
    gpuQty: int | None
    gpuMemoryQty: int | None
    processorType: Choice = Choice(value="hopper")
    shapeType: Choice = Choice(value="bm")
    subType: Choice = Choice(value="gpu")
    products: list[Part]


class Price(_Schema):
    model: str = "PAY_AS_YOU_GO"
    value: int | Decimal


class Localization(_Schema):
    currencyCode: str
    prices: list[Price]


class Product(_Schema):
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
) -> Shape:
    return Shape(
        name=name,
        allowPreemptible=preemptible,
        bundleMemoryQty=memory,
        gpuQty=gpus,
        gpuMemoryQty=gpu_memory,
        products=[Part(partNumber=part, qty=ocpus)],
    )


def product(part: str, usd: int | Decimal) -> Product:
    """Priced in dollars, and in another currency before them."""
    yen = Localization(currencyCode="JPY", prices=[Price(value=usd * 155)])
    return Product(
        partNumber=part, currencyCodeLocalizations=[yen, Localization(currencyCode="USD", prices=[Price(value=usd)])]
    )


class OciMarket:
    """Answers the two documents."""

    def __init__(self, shapes: list[Shape], products: list[Product]) -> None:
        self.documents: dict[str, list[Shape] | list[Product]] = {"/shapes.json": shapes, "/products.json": products}

    def __call__(self, request: Request) -> Answer:
        found = self.documents.get(request.path)
        if request.method != "GET" or found is None:
            return Answer(404, b"<html>not found</html>")
        return Answer(200, {"buildId": "1", "count": len(found), "items": [row.model_dump() for row in found]})
