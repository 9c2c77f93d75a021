"""Prime Intellect's availability, according to its OpenAPI document and its SDK ``prime`` (`GPUAvailability`)."""

from collections.abc import Sequence

from pydantic import Field

from tests.fakes.server import HttpAnswer, HttpRequest
from tests.fakes.strict import StrictBody

PRIME_KEY = "secret_prime_key"


class PrimePrices(StrictBody):
    onDemand: float | None = None
    communityPrice: float | None = None
    isVariable: bool | None = None
    currency: str | None = "USD"


class PrimeResource(StrictBody):
    minCount: int | None = None
    defaultCount: int | None = None
    maxCount: int | None = None
    pricePerUnit: float | None = None
    step: int | None = None
    defaultIncludedInPrice: bool | None = None
    additionalInfo: str | None = None


class PrimeMachine(StrictBody):
    cloudId: str
    gpuType: str
    socket: str | None = "SXM5"
    provider: str | None
    dataCenter: str | None = None
    country: str | None = "US"
    gpuCount: int = 1
    gpuMemory: int
    disk: PrimeResource = Field(default_factory=PrimeResource)
    vcpu: PrimeResource = Field(default_factory=lambda: PrimeResource(defaultCount=26))
    memory: PrimeResource = Field(default_factory=lambda: PrimeResource(defaultCount=200))
    internetSpeed: float | None = None
    interconnect: int | None = None
    interconnectType: str | None = None
    provisioningTime: int | None = None
    stockStatus: str = "Available"
    security: str | None = "secure_cloud"
    prices: PrimePrices
    images: list[str] | None = None
    isSpot: bool | None = None
    prepaidTime: int | None = None


class PrimeMarket:
    """Answers ``GET /api/v1/availability/gpus``, with at most ``a_page`` machines per answer."""

    def __init__(self, machines: Sequence[PrimeMachine], a_page: int = 100) -> None:
        self.machines = machines
        self._a_page = a_page

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if request.headers.get("authorization") != f"Bearer {PRIME_KEY}":
            return HttpAnswer(401, {"detail": "Unauthorized"})
        if (request.method, request.path) != ("GET", "/api/v1/availability/gpus"):
            return HttpAnswer(404, {"detail": "Not Found"})
        size = min(self._a_page, int(request.query.get("page_size", "100")))
        first = (int(request.query.get("page", "1")) - 1) * size
        page = [one.model_dump() for one in self.machines[first : first + size]]
        return HttpAnswer(200, {"items": page, "totalCount": len(self.machines)})
