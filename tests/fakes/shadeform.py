"""Shadeform's API: machine types according to its OpenAPI document, for requests with the key."""

from pydantic import Field

from tests.fakes.server import HttpAnswer, HttpRequest
from tests.fakes.strict import StrictBody

SHADEFORM_KEY = "secret_shadeform_key"


class ShadeformRegion(StrictBody):
    region: str
    available: bool = True
    display_name: str = "US, Wichita, KS"


class ShadeformConfiguration(StrictBody):
    memory_in_gb: int = 225
    storage_in_gb: int = 512
    vcpus: int = 26
    num_gpus: int = 1
    gpu_type: str
    interconnect: str = "pcie"
    vram_per_gpu_in_gb: int
    os_options: list[str] = Field(default_factory=lambda: ["ubuntu22.04_cuda12.2_shade_os"])
    gpu_manufacturer: str = "nvidia"
    nvlink: bool = False


class ShadeformType(StrictBody):
    cloud: str
    shade_instance_type: str
    cloud_instance_type: str
    configuration: ShadeformConfiguration
    hourly_price: int
    deployment_type: str = "vm"
    availability: list[ShadeformRegion]


class ShadeformMarket:
    """Answers ``GET /v1/instances/types``."""

    def __init__(self, *types: ShadeformType) -> None:
        self.types = types

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if request.headers.get("x-api-key") != SHADEFORM_KEY:
            return HttpAnswer(401, {"message": "unauthorized"})
        if (request.method, request.path) != ("GET", "/v1/instances/types"):
            return HttpAnswer(404, {"message": "not found"})
        return HttpAnswer(200, {"instance_types": [one.model_dump() for one in self.types]})
