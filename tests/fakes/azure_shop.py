"""The products that Azure sells: capacity reservations in groups, reservations.

Bodies of azure-mgmt-compute are checked against its models; the others may have only the fields of Microsoft's
reference.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from azure.mgmt.compute import models

from tests.fakes.azure_models import faults
from tests.fakes.server import HttpAnswer, HttpRequest

Json = dict[str, Any]
_JSON = {"Content-Type": "application/json; charset=utf-8"}
# "Reservation Order - Purchase": the request body.
_RESERVED = {
    "reservedResourceType", "billingScopeId", "term", "billingPlan", "quantity", "displayName", "appliedScopes",
    "appliedScopeType", "appliedScopeProperties", "renew", "reservedResourceProperties", "reviewDateTime",
}  # fmt: skip


@dataclass
class AzureShop:
    """``price``: of one reserved machine for its term (USD).

    ``reserved``: capacity reservations by group and name; ``orders``: reservation orders.
    ``resource_groups``: those that exist. ``in_use``: machines are allocated in every capacity reservation.
    """

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    price: int = 500_000
    refund: Decimal = Decimal("450000")
    policy_error: str = ""
    resource_groups: set[str] = field(default_factory=lambda: {"gpubroker"})
    groups: dict[str, Json] = field(default_factory=dict)
    reserved: dict[str, Json] = field(default_factory=dict)
    orders: dict[str, Json] = field(default_factory=dict)
    quoted: int = 0
    in_use: bool = False

    def serve(self, request: HttpRequest) -> HttpAnswer | None:
        """The answer to a request about these products; None for others."""
        for method, pattern, name in _ROUTES:
            found = re.fullmatch(pattern, request.path)
            if found and request.method == method:
                answer: HttpAnswer = getattr(self, name)(request, *found.groups())
                return answer
        return None

    def _resource_group(self, request: HttpRequest, name: str) -> HttpAnswer:
        if name not in self.resource_groups:
            return _error(404, "ResourceGroupNotFound", f"Resource group '{name}' could not be found.")
        return HttpAnswer(200, {"name": name, "location": "eastus"}, _JSON)

    def _put_group(self, request: HttpRequest, name: str) -> HttpAnswer:
        _check(models.CapacityReservationGroup, request.body)
        self.groups[name] = {**request.body, "id": _id(name), "name": name}
        return HttpAnswer(200, self.groups[name], _JSON)

    def _patch_group(self, request: HttpRequest, name: str) -> HttpAnswer:
        _check(models.CapacityReservationGroupUpdate, request.body)
        if name not in self.groups:
            return _error(404, "ResourceNotFound", name)
        self.groups[name] |= request.body
        return HttpAnswer(200, self.groups[name], _JSON)

    def _get_group(self, request: HttpRequest, name: str) -> HttpAnswer:
        row = self.groups.get(name)
        return HttpAnswer(200, row, _JSON) if row else _error(404, "ResourceNotFound", name)

    def _put_reservation(self, request: HttpRequest, group: str, name: str) -> HttpAnswer:
        _check(models.CapacityReservation, request.body)
        if group not in self.groups:
            return _error(404, "ResourceNotFound", group)
        before = self.reserved.get(name)
        if before is None:
            about = {"provisioningState": "Creating", "timeCreated": self.now().isoformat()}
            id = f"{_id(group)}/capacityReservations/{name}"
            self.reserved[name] = {**request.body, "id": id, "name": name, "properties": about}
        return HttpAnswer(201 if before is None else 200, self.reserved[name], _JSON)

    def _listed(self, request: HttpRequest, group: str) -> HttpAnswer:
        rows = [row for row in self.reserved.values() if f"/{group}/capacityReservations/" in row["id"]]
        return HttpAnswer(200, {"value": rows}, _JSON)

    def _get_reservation(self, request: HttpRequest, group: str, name: str) -> HttpAnswer:
        row = self.reserved.get(name)
        return HttpAnswer(200, row, _JSON) if row else _error(404, "ResourceNotFound", name)

    def _delete_reservation(self, request: HttpRequest, group: str, name: str) -> HttpAnswer:
        if self.in_use:
            return _error(409, "OperationNotAllowed", "machines are allocated in it")
        return HttpAnswer(200 if self.reserved.pop(name, None) else 204, b"")

    def _calculate(self, request: HttpRequest) -> HttpAnswer:
        about = _fields(request.body, {"sku", "location", "properties"}, _RESERVED)
        self.quoted += 1
        total = {"currencyCode": "USD", "amount": self.price * about["quantity"]}
        told = {
            "billingCurrencyTotal": total, "pricingCurrencyTotal": total, "reservationOrderId": f"order-{self.quoted}",
            "skuTitle": "Reserved VM Instance", "isBillingPartnerManaged": False,
        }  # fmt: skip
        return HttpAnswer(200, {"properties": told}, _JSON)

    def _purchase(self, request: HttpRequest, id: str) -> HttpAnswer:
        about = _fields(request.body, {"sku", "location", "properties"}, _RESERVED)
        if int(id.removeprefix("order-")) > self.quoted:
            return _error(400, "InvalidReservationOrderId", id)
        if id in self.orders:
            return _error(400, "ReservationOrderIdAlreadyExists", id)
        path = f"/providers/Microsoft.Capacity/reservationOrders/{id}"
        self.orders[id] = {
            "id": path,
            "name": id,
            "type": "Microsoft.Capacity/reservationOrders",
            "properties": {
                "displayName": about["displayName"],
                "createdDateTime": self.now().isoformat(),
                "originalQuantity": about["quantity"],
                "term": about["term"],
                "billingPlan": about["billingPlan"],
                "provisioningState": "PendingBilling",
                "reservations": [{"id": f"{path}/reservations/r1"}],
            },
        }
        return HttpAnswer(202, self.orders[id], _JSON)

    def _order(self, request: HttpRequest, id: str) -> HttpAnswer:
        row = self.orders.get(id)
        return HttpAnswer(200, row, _JSON) if row else _error(404, "NotFound", id)

    def _refund(self, request: HttpRequest, id: str) -> HttpAnswer:
        assert set(request.body) == {"id", "properties"}
        errors = [{"code": "RefundLimitExceeded", "message": self.policy_error}] if self.policy_error else []
        amount = {"currencyCode": "USD", "amount": self.refund}
        told = {
            "sessionId": "session-1", "quantity": request.body["properties"]["reservationToReturn"]["quantity"],
            "billingRefundAmount": amount, "pricingRefundAmount": amount,
            "policyResult": {"properties": {"policyErrors": errors}},
        }  # fmt: skip
        return HttpAnswer(200, {"id": id, "properties": told}, _JSON)

    def _return(self, request: HttpRequest, id: str) -> HttpAnswer:
        if request.body["properties"].get("sessionId") != "session-1":
            return _error(400, "InvalidSessionId", "calculate the refund first")
        self.orders[id]["properties"]["provisioningState"] = "Cancelled"
        return HttpAnswer(202, self.orders[id], _JSON)


def _fields(body: Json, outer: set[str], inner: set[str]) -> Json:
    assert set(body) <= outer, f"Azure has no {set(body) - outer}"
    about: Json = body["properties"]
    assert set(about) <= inner, f"Azure has no {set(about) - inner}"
    return about


def _check(model: type, body: Any) -> None:
    wrong = faults(model, body)
    assert not wrong, f"Azure would not take it: {wrong[:3]}"


def _id(group: str) -> str:
    compute = "providers/Microsoft.Compute/capacityReservationGroups"
    return f"/subscriptions/x/resourceGroups/gpubroker/{compute}/{group}"


def _error(status: int, code: str, message: str) -> HttpAnswer:
    return HttpAnswer(status, {"error": {"code": code, "message": message}}, _JSON)


_G = r"/subscriptions/[\w-]+/resourceGroups/gpubroker/providers/Microsoft.Compute/capacityReservationGroups/([\w-]+)"
_R = rf"{_G}/capacityReservations/([\w-]+)"
_O = r"/providers/Microsoft.Capacity/reservationOrders/([\w-]+)"
_ROUTES = (
    ("GET", r"/subscriptions/[\w-]+/resourcegroups/([\w-]+)", "_resource_group"),
    ("PUT", _G, "_put_group"),
    ("PATCH", _G, "_patch_group"),
    ("GET", _G, "_get_group"),
    ("GET", rf"{_G}/capacityReservations", "_listed"),
    ("PUT", _R, "_put_reservation"),
    ("GET", _R, "_get_reservation"),
    ("DELETE", _R, "_delete_reservation"),
    ("POST", "/providers/Microsoft.Capacity/calculatePrice", "_calculate"),
    ("PUT", _O, "_purchase"),
    ("GET", _O, "_order"),
    ("POST", f"{_O}/calculateRefund", "_refund"),
    ("POST", f"{_O}/return", "_return"),
)
