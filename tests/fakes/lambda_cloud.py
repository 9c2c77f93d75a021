"""Lambda's Cloud API: instance types according to its OpenAPI document, for requests with the key."""

from tests.fakes.server import HttpAnswer, HttpRequest
from tests.fakes.strict import StrictBody

KEY = "secret_lambda_key"


class Region(StrictBody):
    name: str
    description: str = "somewhere"


class Specs(StrictBody):
    vcpus: int
    memory_gib: int
    storage_gib: int = 1400
    gpus: int


class LambdaInstanceType(StrictBody):
    name: str
    description: str = ""
    gpu_description: str
    price_cents_per_hour: int
    specs: Specs
    architecture: str = "x86_64"


class Item(StrictBody):
    instance_type: LambdaInstanceType
    regions_with_capacity_available: list[Region]


class LambdaMarket:
    """Answers ``GET /api/v1/instance-types``."""

    def __init__(self, *items: Item) -> None:
        self.items = list(items)

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return HttpAnswer(
                401, {"error": {"code": "global/invalid-api-key", "message": "API key was invalid, expired"}}
            )
        if (request.method, request.path) != ("GET", "/api/v1/instance-types"):
            return HttpAnswer(404, {"error": {"code": "global/not-found", "message": "not found"}})
        return HttpAnswer(200, {"data": {item.instance_type.name: item.model_dump() for item in self.items}})
