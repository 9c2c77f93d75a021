"""Hyperstack's price book and flavors, according to its OpenAPI document 1.0 (`PricebookModel`, `FlavorFields`)."""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from tests.fakes.server import HttpAnswer, HttpRequest
from tests.fakes.strict import StrictBody

HYPERSTACK_KEY = "secret_hyperstack_key"


class HyperstackPrice(StrictBody):
    id: int = 1
    name: str
    value: float
    original_value: float = 0.0
    discount_applied: bool = False
    start_time: str | None = None
    end_time: str | None = None


class HyperstackFlavor(StrictBody):
    id: int = 7
    name: str
    display_name: str = ""
    region_name: str
    cpu: int = 28
    ram: float = 180.0
    disk: int = 100
    ephemeral: int = 750
    gpu: str
    gpu_count: int = 1
    stock_available: bool = True
    created_at: str = "2024-06-04T10:00:00"
    labels: list[Any] = Field(default_factory=list)
    features: dict[str, bool] = Field(default_factory=dict)


class HyperstackMarket:
    """Answers ``GET /pricebook`` and ``GET /core/flavors``."""

    def __init__(self, prices: Sequence[HyperstackPrice], flavors: Sequence[HyperstackFlavor]) -> None:
        self.prices = prices
        self.flavors = flavors

    def groups(self) -> list[dict[str, Any]]:
        """The flavors, by GPU and region."""
        grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for one in self.flavors:
            grouped.setdefault((one.gpu, one.region_name), []).append(one.model_dump())
        return [{"gpu": gpu, "region_name": place, "flavors": rows} for (gpu, place), rows in grouped.items()]

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if request.headers.get("api_key") != HYPERSTACK_KEY:
            return HttpAnswer(401, {"status": False, "message": "Unauthorized", "error_reason": "unauthorized"})
        match request.method, request.path:
            case "GET", "/pricebook":
                return HttpAnswer(200, [one.model_dump() for one in self.prices])
            case "GET", "/core/flavors":
                return HttpAnswer(200, {"status": True, "message": "Success", "data": self.groups()})
        return HttpAnswer(404, {"status": False, "message": "Not found", "error_reason": "not_found"})
