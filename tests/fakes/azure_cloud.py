"""Azure Resource Manager over TLS, with one small subscription.

Answers for which azure-mgmt-compute has models are checked against them; the others have the documented shape. As at
Azure, links to a next page contain Azure's own host name. ``AzureCloud`` has the state that tests set.
"""

import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import trustme
from azure.core.credentials import AccessToken
from azure.mgmt.compute import models

from tests.fakes.azure_models import faults
from tests.fakes.azure_shop import AzureShop
from tests.fakes.server import FakeServer, HttpAnswer, HttpRequest

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/ml"
COMPUTE = "/providers/Microsoft.Compute"
_JSON = {"Content-Type": "application/json; charset=utf-8"}


class Credential:
    """A credential that returns a token; ``expires_in``: seconds."""

    def __init__(self, token: str = "t0ken-of-the-test", expires_on: int = 4_000_000_000) -> None:
        self.token = token
        self.expires_on = expires_on
        self.asked: list[tuple[str, ...]] = []

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        self.asked.append(scopes)
        return AccessToken(self.token, self.expires_on)


def sku(name: str, region: str, family: str, *restrictions: dict[str, Any], zones: tuple[str, ...] = ()) -> Any:
    """A machine in the form of Resource SKUs."""
    return {
        "resourceType": "virtualMachines",
        "name": name,
        "tier": "Standard",
        "size": name.removeprefix("Standard_"),
        "family": family,
        "locations": [region],
        "locationInfo": [{"location": region, "zones": list(zones), "zoneDetails": []}],
        "capabilities": [{"name": "vCPUs", "value": "96"}, {"name": "GPUs", "value": "8"}],
        "restrictions": list(restrictions),
    }


def closed(region: str, code: str = "NotAvailableForSubscription", *zones: str) -> dict[str, Any]:
    """A restriction of a region, or of some zones of it."""
    inside: dict[str, Any] = {"locations": [region], **({"zones": list(zones)} if zones else {})}
    kind = "Zone" if zones else "Location"
    return {"type": kind, "values": [region], "restrictionInfo": inside, "reasonCode": code}


def usage(name: str, used: int, limit: int) -> dict[str, Any]:
    return {
        "unit": "Count",
        "currentValue": used,
        "limit": limit,
        "name": {"value": name, "localizedValue": f"{name} vCPUs"},
    }


def reservation(group: str, name: str, size: str, capacity: int, used: int, **more: Any) -> dict[str, Any]:
    """A capacity reservation with its instance view, as a GET with ``$expand=instanceView`` gives it."""
    row: dict[str, Any] = {
        "id": f"{GROUP}{COMPUTE}/capacityReservationGroups/{group}/capacityReservations/{name}",
        "name": name,
        "type": "Microsoft.Compute/capacityReservationGroups/capacityReservations",
        "location": "eastus",
        "sku": {"name": size, "capacity": capacity},
        "zones": ["1"],
        "properties": {
            "reservationId": "0d5e1a9c-0000-0000-0000-000000000000",
            "provisioningState": "Succeeded",
            "timeCreated": "2026-11-01T08:00:00.1234567+00:00",
            "instanceView": {
                "utilizationInfo": {
                    "currentCapacity": capacity,
                    "virtualMachinesAllocated": [
                        {"id": f"{GROUP}{COMPUTE}/virtualMachines/used-{number}"} for number in range(used)
                    ],
                },
                "statuses": [{"code": "ProvisioningState/succeeded", "level": "Info"}],
            },
        },
    }
    properties = {**row["properties"], **more.pop("properties", {})}
    return {**row, **more, "properties": properties}


def bought(id: str, size: str, quantity: int, **more: Any) -> dict[str, Any]:
    """A reservation in the form of Microsoft.Capacity."""
    properties = {
        "reservedResourceType": "VirtualMachines",
        "instanceFlexibility": "On",
        "displayName": id,
        "quantity": quantity,
        "provisioningState": "Succeeded",
        "effectiveDateTime": "2026-03-01T10:00:00.1234567Z",
        "expiryDate": "2027-03-01",
        "expiryDateTime": "2027-03-01T10:00:00.1234567Z",
        "term": "P1Y",
        **more,
    }
    return {
        "id": f"/providers/Microsoft.Capacity/reservationOrders/order/reservations/{id}",
        "name": f"order/{id}",
        "type": "Microsoft.Capacity/reservationOrders/reservations",
        "location": "eastus",
        "sku": {"name": size},
        "etag": 1,
        "properties": properties,
    }


def plan(id: str, **more: Any) -> dict[str, Any]:
    """A savings plan in the form of Microsoft.BillingBenefits."""
    properties = {
        "displayName": id,
        "provisioningState": "Succeeded",
        "term": "P3Y",
        "commitment": {"currencyCode": "USD", "amount": 12.5, "grain": "Hourly"},
        "effectiveDateTime": "2026-01-01T00:00:00Z",
        "expiryDateTime": "2029-01-01T00:00:00Z",
        **more,
    }
    return {
        "id": f"/providers/Microsoft.BillingBenefits/savingsPlanOrders/order/savingsPlans/{id}",
        "name": f"order/{id}",
        "type": "Microsoft.BillingBenefits/savingsPlanOrders/savingsPlans",
        "sku": {"name": "Compute_Savings_Plan"},
        "properties": properties,
    }


def machine(name: str, size: str = "Standard_ND96isr_H100_v5", **more: Any) -> dict[str, Any]:
    properties = {
        "vmId": "7d5c-0000",
        "hardwareProfile": {"vmSize": size},
        "provisioningState": "Succeeded",
        "timeCreated": "2026-11-20T10:00:00+00:00",
        **more.pop("properties", {}),
    }
    return {
        "id": f"{GROUP}{COMPUTE}/virtualMachines/{name}",
        "name": name,
        "type": "Microsoft.Compute/virtualMachines",
        "location": "eastus",
        "properties": properties,
        **more,
    }


@dataclass
class AzureCloud:
    """The state of the cloud.

    ``page``: rows per page. ``stuck``: every page links to the second. ``gap``: the second page is empty. ``answers``:
    returned by an operation instead of its answer, by a part of its path, permanently. ``mangle``: changes the bytes.
    """

    skus: list[dict[str, Any]] = field(default_factory=list)
    usages: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    groups: dict[str, str | None] = field(default_factory=dict)
    reservations: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    machines: list[dict[str, Any]] = field(default_factory=list)
    power: dict[str, str] = field(default_factory=dict)
    scores: dict[tuple[str, str], tuple[str, bool]] = field(default_factory=dict)
    evictions: list[dict[str, Any]] = field(default_factory=list)
    costs: list[list[Any]] = field(default_factory=list)
    cost_columns: tuple[str, ...] = ("Cost", "CostUSD", "UsageDate", "TagKey", "TagValue", "Currency")
    bought: list[dict[str, Any]] = field(default_factory=list)
    plans: list[dict[str, Any]] = field(default_factory=list)
    zones: dict[str, dict[str, str]] = field(default_factory=dict)
    page: int = 2
    stuck: bool = False
    gap: bool = False
    answers: dict[str, HttpAnswer] = field(default_factory=dict)
    mangle: dict[str, Callable[[bytes], bytes]] = field(default_factory=dict)
    token: str = "t0ken-of-the-test"
    shop: AzureShop = field(default_factory=AzureShop)

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if request.path.startswith("/metadata") or not request.headers.get("authorization", "").startswith("Bearer "):
            return _error(401, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
        if request.headers["authorization"] != f"Bearer {self.token}":
            return _error(401, "ExpiredAuthenticationToken", "The access token expiry UTC time is earlier than now.")
        for part, answer in self.answers.items():
            if part in request.path:
                return answer
        if "api-version" not in request.query:
            return _error(400, "MissingApiVersionParameter", "The api-version query parameter is required.")
        answer = self.shop.serve(request) or self._route(request)
        for part, change in self.mangle.items():
            if part in request.path and answer.status == 200:
                return HttpAnswer(200, change(answer.payload()), _JSON)
        return answer

    def _route(self, request: HttpRequest) -> HttpAnswer:
        for method, pattern, name in _ROUTES:
            found = re.fullmatch(pattern, request.path)
            if found and request.method == method:
                answer: HttpAnswer = getattr(self, name)(request, *found.groups())
                return answer
        return _error(404, "InvalidResourceType", f"{request.method} {request.path}")

    # One method per operation.

    def _skus(self, request: HttpRequest) -> HttpAnswer:
        wanted = re.fullmatch(r"location eq '(\w+)'", request.query.get("$filter", ""))
        assert wanted, "only the filter by location is known to Azure"
        return self._list(request, models.ResourceSku, [row for row in self.skus if wanted[1] in row["locations"]])

    def _usages(self, request: HttpRequest, region: str) -> HttpAnswer:
        return self._list(request, models.Usage, self.usages.get(region, []))

    def _groups(self, request: HttpRequest) -> HttpAnswer:
        rows = [
            {
                "id": f"{GROUP}{COMPUTE}/capacityReservationGroups/{name}",
                "name": name,
                "location": "eastus",
                "type": "Microsoft.Compute/capacityReservationGroups",
                "properties": {"reservationType": kind} if kind else {},
            }
            for name, kind in self.groups.items()
        ]
        rows += self.shop.groups.values()
        return self._list(request, models.CapacityReservationGroup, rows)

    def _reservations(self, request: HttpRequest, group: str) -> HttpAnswer:
        rows = [{**row, "properties": {**row["properties"]}} for row in self.reservations.get(group, [])]
        for row in rows:
            row["properties"].pop("instanceView", None)
        return self._list(request, models.CapacityReservation, rows)

    def _reservation(self, request: HttpRequest, group: str, name: str) -> HttpAnswer:
        for row in self.reservations.get(group, []):
            if row["name"] == name and request.query.get("$expand") == "instanceView":
                return _checked(models.CapacityReservation, row)
        return _error(404, "ResourceNotFound", name)

    def _machines(self, request: HttpRequest) -> HttpAnswer:
        return self._list(request, models.VirtualMachine, self.machines)

    def _view(self, request: HttpRequest, name: str) -> HttpAnswer:
        if name not in {row["name"] for row in self.machines}:
            return _error(404, "ResourceNotFound", name)
        codes = ["ProvisioningState/succeeded"]
        if power := self.power.get(name, "running"):
            codes.append(f"PowerState/{power}")
        return _checked(models.VirtualMachineInstanceView, {"statuses": [{"code": c, "level": "Info"} for c in codes]})

    def _delete(self, request: HttpRequest, name: str) -> HttpAnswer:
        before = len(self.machines)
        self.machines = [row for row in self.machines if row["name"] != name]
        if len(self.machines) == before:
            return HttpAnswer(204, b"")
        where = f"https://management.azure.com/subscriptions/{SUBSCRIPTION}{COMPUTE}/locations/eastus/operations/1"
        return HttpAnswer(202, b"", {"Location": f"{where}?api-version=2025-11-01", "Retry-After": "10"})

    def _locations(self, request: HttpRequest) -> HttpAnswer:
        rows = [
            {
                "id": f"/subscriptions/{SUBSCRIPTION}/locations/{region}",
                "name": region,
                "displayName": region.title(),
                "metadata": {"regionType": "Physical"},
                "availabilityZoneMappings": [
                    {"logicalZone": logical, "physicalZone": physical} for logical, physical in zones.items()
                ],
            }
            for region, zones in self.zones.items()
        ]
        logical = {"name": "unitedstates", "displayName": "United States", "metadata": {"regionType": "Logical"}}
        return HttpAnswer(200, {"value": [*rows, logical]}, _JSON)

    def _scores(self, request: HttpRequest, region: str) -> HttpAnswer:
        asked = request.body
        assert set(asked) == {"desiredLocations", "desiredSizes", "desiredCount", "availabilityZones"}
        assert region in asked["desiredLocations"]
        if len(asked["desiredLocations"]) > 8 or len(asked["desiredSizes"]) > 5:
            return _error(400, "InvalidParameter", "at most 8 regions and 5 sizes")
        rows = [
            {"sku": size["sku"], "region": place, "score": score, "isQuotaAvailable": quota}
            for place in asked["desiredLocations"]
            for size in asked["desiredSizes"]
            for score, quota in [self.scores.get((place, size["sku"]), ("DataNotFoundOrStale", True))]
        ]
        return HttpAnswer(200, {**asked, "placementScores": rows}, _JSON)

    def _graph(self, request: HttpRequest) -> HttpAnswer:
        asked = request.body
        assert "subscriptions" not in asked, "SpotResources answers for a tenant, not for a subscription"
        assert asked["query"].startswith("SpotResources | where type =~ 'microsoft.compute/skuspotevictionrate/")
        start = int(asked["options"].get("$skipToken", 0))
        rows = self.evictions[start : start + self.page]
        answer: dict[str, Any] = {
            "totalRecords": len(self.evictions), "count": len(rows), "data": rows, "facets": [],
            "resultTruncated": "false",
        }  # fmt: skip
        if self.stuck or start + self.page < len(self.evictions):
            answer["$skipToken"] = str(self.page if self.stuck else start + self.page)
        return HttpAnswer(200, answer, _JSON)

    def _costs(self, request: HttpRequest) -> HttpAnswer:
        assert request.body["dataset"]["grouping"] == [{"type": "TagKey", "name": "gpubroker"}]
        start = int(request.query.get("$skiptoken", 0))
        link = f"https://management.azure.com{request.path}?" + urlencode(
            {"api-version": request.query["api-version"], "$skiptoken": self.page if self.stuck else start + self.page}
        )
        more = self.stuck or start + self.page < len(self.costs)
        kinds = {"Cost": "Number", "CostUSD": "Number", "UsageDate": "Number"}
        properties = {
            "nextLink": link if more else None,
            "columns": [{"name": name, "type": kinds.get(name, "String")} for name in self.cost_columns],
            "rows": self.costs[start : start + self.page],
        }
        about = {"id": "q-1", "name": "q-1", "type": "Microsoft.CostManagement/query"}
        return HttpAnswer(200, {**about, "properties": properties}, _JSON)

    def _bought(self, request: HttpRequest) -> HttpAnswer:
        return self._list(request, None, self.bought)

    def _plans(self, request: HttpRequest) -> HttpAnswer:
        return self._list(request, None, self.plans)

    def _list(self, request: HttpRequest, model: type | None, rows: list[Any]) -> HttpAnswer:
        wrong = [fault for row in rows if model for fault in faults(model, row)]
        assert not wrong, f"the fake says what Azure cannot say: {wrong[:3]}"
        token = request.query.get("$skiptoken", "0")
        start = int(token.rstrip("+"))
        gap = self.gap and token == str(self.page)
        shown = [] if gap else rows[start : start + self.page]
        following = str(self.page if self.stuck else start + self.page)
        answer: dict[str, Any] = {"value": shown}
        if gap:
            following = f"{token}+"  # the rows follow the empty page
        if self.stuck or gap or int(following) < len(rows):
            query = urlencode({**request.query, "$skiptoken": following})
            answer["nextLink"] = f"https://management.azure.com:443{request.path}?{query}"
        return HttpAnswer(200, answer, _JSON)


_S = f"/subscriptions/{SUBSCRIPTION}"
_G = f"{_S}/resourceGroups/ml{COMPUTE}"
_ROUTES = (
    ("GET", f"{_S}{COMPUTE}/skus", "_skus"),
    ("GET", rf"{_S}{COMPUTE}/locations/(\w+)/usages", "_usages"),
    ("GET", f"{_S}{COMPUTE}/capacityReservationGroups", "_groups"),
    ("GET", rf"{_G}/capacityReservationGroups/([\w-]+)/capacityReservations", "_reservations"),
    ("GET", rf"{_G}/capacityReservationGroups/([\w-]+)/capacityReservations/([\w-]+)", "_reservation"),
    ("GET", f"{_S}{COMPUTE}/virtualMachines", "_machines"),
    ("GET", rf"{_G}/virtualMachines/([\w-]+)/instanceView", "_view"),
    ("DELETE", rf"{_G}/virtualMachines/([\w-]+)", "_delete"),
    ("GET", f"{_S}/locations", "_locations"),
    ("POST", rf"{_S}{COMPUTE}/locations/(\w+)/placementScores/spot/generate", "_scores"),
    ("POST", "/providers/Microsoft.ResourceGraph/resources", "_graph"),
    ("POST", f"{_S}/providers/Microsoft.CostManagement/query", "_costs"),
    ("GET", "/providers/Microsoft.Capacity/reservations", "_bought"),
    ("GET", "/providers/Microsoft.BillingBenefits/savingsPlans", "_plans"),
)


def _checked(model: type, body: dict[str, Any]) -> HttpAnswer:
    wrong = faults(model, body)
    assert not wrong, f"the fake says what Azure cannot say: {wrong[:3]}"
    return HttpAnswer(200, body, _JSON)


def _error(status: int, code: str, message: str) -> HttpAnswer:
    return HttpAnswer(status, {"error": {"code": code, "message": message}}, _JSON)


@contextmanager
def serve_tls(market: Callable[[HttpRequest], HttpAnswer], folder: Path) -> Iterator[tuple[FakeServer, Path]]:
    """Runs a server on loopback with a certificate of its own authority; yields it with the file of the authority's
    certificate.
    """
    authority = trustme.CA()
    bundle = folder / "authority.pem"
    authority.cert_pem.write_to_path(str(bundle))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with FakeServer(market, tls=context) as server:
        yield server, bundle


def cost(amount: str, day: int, key: str = "", currency: str = "USD") -> list[Any]:
    return [Decimal(amount), Decimal(amount), day, "gpubroker" if key else "", key, currency]
