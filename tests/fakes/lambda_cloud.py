"""Lambda's Cloud API: instance types as its OpenAPI document has them, for whoever has the key."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from tests.fakes.server import Answer, Request

KEY = "secret_lambda_key"


class _Schema(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Region(_Schema):
    name: str
    description: str = "somewhere"


class Specs(_Schema):
    vcpus: int
    memory_gib: int
    storage_gib: int = 1400
    gpus: int


class InstanceType(_Schema):
    name: str
    description: str = ""
    gpu_description: str
    price_cents_per_hour: int
    specs: Specs
    architecture: str = "x86_64"


class Item(_Schema):
    instance_type: InstanceType
    regions_with_capacity_available: list[Region]


class LambdaMarket:
    """Answers ``GET /api/v1/instance-types``."""

    def __init__(self, *items: Item) -> None:
        self.items = list(items)

    def __call__(self, request: Request) -> Answer:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return Answer(401, {"error": {"code": "global/invalid-api-key", "message": "API key was invalid, expired"}})
        if (request.method, request.path) != ("GET", "/api/v1/instance-types"):
            return Answer(404, {"error": {"code": "global/not-found", "message": "not found"}})
        return Answer(200, {"data": {item.instance_type.name: item.model_dump() for item in self.items}})
