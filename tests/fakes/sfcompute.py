"""SF Compute's market: quotes, orders and contracts, with exactly the fields of its command line's types."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from tests.fakes.server import HttpAnswer, HttpRequest

Json = dict[str, Any]


class _SfcomputeBody(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _OrderFlags(_SfcomputeBody):
    market: bool = False
    post_only: bool = False
    ioc: bool = False


class _BuyOrder(_SfcomputeBody):
    side: Literal["buy"]
    instance_type: str
    quantity: int
    start_at: datetime
    end_at: datetime
    price: int
    flags: _OrderFlags = _OrderFlags()


class _AskedQuote(_SfcomputeBody):
    side: Literal["buy"]
    min_start_date: str
    max_start_date: str
    duration: int
    quantity: int
    instance_type: str = ""


@dataclass
class SfcomputeMarket:
    """``cents``: the price of a node per hour, by instance type; ``bid``: the price paid for a node-hour of a contract
    (None: nobody buys). Orders are filled by `fill`.
    """

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    cents: dict[str, int] = field(default_factory=lambda: {"h100i": 1600})
    orders: list[Json] = field(default_factory=list)
    contracts: list[Json] = field(default_factory=list)
    keys: dict[str, tuple[Json, Json]] = field(default_factory=dict)
    token: str = "sk_live_test"

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return _error(401, "not_authenticated", "no such token")
        try:
            return self._answer(request)
        except (ValidationError, ValueError) as error:
            return _error(400, "invalid_request", str(error))

    def fill(self) -> None:
        """Fill every open order; a bought one becomes a contract."""
        for row in self.orders:
            if row["status"] not in ("pending", "open"):
                continue
            row |= {"status": "filled", "executed": True, "execution_price": row["price"]}
            if row["side"] == "buy":
                shape = {"intervals": [row["start_at"], row["end_at"]], "quantities": [row["quantity"], 0]}
                self.contracts.append(
                    {
                        "object": "contract",
                        "status": "active",
                        "id": f"cont_{len(self.contracts)}",
                        "created_at": row["created_at"],
                        "instance_type": row["instance_type"],
                        "shape": shape,
                    }
                )

    def _answer(self, request: HttpRequest) -> HttpAnswer:
        match request.method, request.path.split("/")[2:]:
            case "GET", ["quote"]:
                return self._quote(_AskedQuote.model_validate(request.query))
            case "POST", ["orders"]:
                return self._place(request)
            case "GET", ["orders"]:
                start, limit = int(request.query.get("offset", 0)), int(request.query.get("limit", 20))
                rows = sorted(self.orders, key=lambda row: row["created_at"], reverse=True)
                more = start + limit < len(rows)
                return HttpAnswer(200, {"object": "list", "data": rows[start : start + limit], "has_more": more})
            case "DELETE", ["orders", id]:
                for row in self.orders:
                    if row["id"] == id and row["status"] in ("pending", "open"):
                        row |= {"status": "cancelled", "cancelled": True}
                        return HttpAnswer(200, {"object": "pending"})
                return _error(404, "order.not_found", id)
            case "GET", ["contracts"]:
                return HttpAnswer(200, {"object": "list", "data": self.contracts, "has_more": False})
        return _error(404, "not_found", request.path)

    def _quote(self, asked: _AskedQuote) -> HttpAnswer:
        now = self.now()
        starts = now if asked.min_start_date == "NOW" else datetime.fromisoformat(asked.min_start_date)
        last = now if asked.max_start_date == "NOW" else datetime.fromisoformat(asked.max_start_date)
        if last - starts > timedelta(hours=24) or starts > last:
            return _error(400, "invalid_request", "at most 24 hours between the start dates")
        ends = starts + timedelta(seconds=asked.duration)
        if ends != ends.replace(minute=0, second=0, microsecond=0):
            ends = ends.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        per_hour = self.cents.get(asked.instance_type)
        told: Json | None = None
        if per_hour is not None:
            hours = (ends - starts) / timedelta(hours=1)
            told = {
                "price": round(per_hour * asked.quantity * hours),
                "quantity": asked.quantity,
                "start_at": _stamp(starts),
                "end_at": _stamp(ends),
                "instance_type": asked.instance_type,
            }
        return HttpAnswer(200, {"object": "quote", "side": asked.side, "quote": told})

    def _place(self, request: HttpRequest) -> HttpAnswer:
        key = request.headers.get("idempotency-key", "")
        if key and (before := self.keys.get(key)) is not None:
            if before[0] != request.body:
                return _error(400, "idempotency_mismatch", "the key was used with another order")
            return HttpAnswer(200, {"object": "order", "id": before[1]["id"], "status": "pending"})
        asked = _BuyOrder.model_validate(request.body)
        if asked.end_at.minute or asked.end_at <= asked.start_at:
            return _error(400, "invalid_request", "orders end on the hour")
        row: Json = {
            "object": "order",
            "id": f"ordr_{len(self.orders)}",
            "side": asked.side,
            "status": "pending",
            "instance_type": asked.instance_type,
            "quantity": asked.quantity,
            "start_at": _stamp(asked.start_at),
            "end_at": _stamp(asked.end_at),
            "price": asked.price,
            "flags": asked.flags.model_dump(),
            "executed": False,
            "cancelled": False,
            "created_at": self.now().isoformat(),
        }
        self.orders.append(row)
        if key:
            self.keys[key] = (request.body, row)
        return HttpAnswer(200, {"object": "order", "id": row["id"], "status": "pending"})


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _error(status: int, code: str, message: str) -> HttpAnswer:
    return HttpAnswer(status, {"object": "error", "code": code, "message": message})
