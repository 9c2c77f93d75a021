"""Verda's API: login, instance types, stock of each location, and long-term periods."""

from decimal import Decimal

from pydantic import Field

from tests.fakes.server import HttpAnswer, HttpRequest
from tests.fakes.strict import StrictBody

CLIENT_ID, CLIENT_SECRET, TOKEN = "client-1", "s3cret-of-client-1", "token-abc"


class Cpu(StrictBody):
    description: str = "30 CPU"
    number_of_cores: int = 30


class Gpu(StrictBody):
    description: str = ""
    number_of_gpus: int = 1


class Size(StrictBody):
    description: str = ""
    size_in_gigabytes: int


class VerdaDescribed(StrictBody):
    description: str = "dynamic"


class VerdaInstanceType(StrictBody):
    """As in the API's document and the recorded example; prices are text."""

    instance_type: str
    price_per_hour: str
    spot_price: str | None
    model: str
    name: str
    id: str = "c01dd00d-0000-480b-ae4e-d429115d055b"
    best_for: list[str] = Field(default_factory=list)
    cpu: Cpu = Cpu()
    gpu: Gpu = Gpu()
    memory: Size = Size(size_in_gigabytes=120)
    gpu_memory: Size = Size(size_in_gigabytes=80)
    storage: VerdaDescribed = VerdaDescribed()
    currency: str = "usd"
    description: str = "Dedicated Hardware Instance"
    deploy_warning: str | None = None
    display_name: str | None = None
    manufacturer: str = "NVIDIA"
    p2p: str | None = None
    supported_os: list[str] = Field(default_factory=list)


class VerdaPeriod(StrictBody):
    code: str
    name: str
    is_enabled: bool
    unit_name: str
    unit_value: int
    discount_percentage: Decimal


class VerdaMarket:
    """Answers the token endpoint and three lists. ``stock`` and ``spot_stock``: location → instance types."""

    def __init__(
        self,
        *types: VerdaInstanceType,
        stock: dict[str, list[str]] | None = None,
        spot_stock: dict[str, list[str]] | None = None,
        periods: tuple[VerdaPeriod, ...] = (),
    ) -> None:
        self.types = list(types)
        self.stock = {"false": stock or {}, "true": spot_stock or {}}
        self.periods = periods

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if request.path == "/v1/oauth2/token":
            body = request.body or {}
            asked = (request.method, body.get("grant_type"), body.get("client_id"), body.get("client_secret"))
            if asked != ("POST", "client_credentials", CLIENT_ID, CLIENT_SECRET):
                said = f"bad client_secret {body.get('client_secret')}"
                return HttpAnswer(400, {"code": "invalid_request", "message": said})
            return HttpAnswer(200, {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600})
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return HttpAnswer(401, {"code": "unauthorized_request", "message": "Access token is invalid"})
        if request.path == "/v1/instance-types":
            return HttpAnswer(200, [kind.model_dump() for kind in self.types])
        if request.path == "/v1/instance-availability":
            stock = self.stock[request.query["is_spot"]]
            return HttpAnswer(
                200, [{"location_code": place, "availabilities": kinds} for place, kinds in stock.items()]
            )
        if request.path == "/v1/long-term/periods/instances":
            return HttpAnswer(200, [period.model_dump() for period in self.periods])
        return HttpAnswer(404, {"code": "not_found", "message": "no such thing"})
