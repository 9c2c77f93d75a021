"""Shared by the products of Google Cloud: the login, the prices, and how an order is placed and found again.

An order has the purchase's key as its name, so there can be only one: Compute Engine refuses a second resource of a
name. Each request carries an id that is derived from the key; the operation that it started can be found by that id,
even if the answer was lost, or the resource was never created or is already deleted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from broker.core.errors import OutcomeUnknown, Refused
from broker.core.market.offers import CapacityType, Offer, SkippedRow
from broker.core.purchases.quotes import CapacityQuote, Order, OrderState, PurchaseProduct, QuoteRequest, Undo
from broker.core.values.clock import Clock
from broker.core.values.money import Money
from providers.gcp.calls import GcpCaller, ListMethod, utc
from providers.gcp.machines import GcpMachine
from providers.gcp.refusals import AlreadyExists, NotFound
from providers.gcp.settings import NAME

_ZONAL = ListMethod("ZoneOperationsClient", "list", "OperationList", "items")
_REGIONAL = ListMethod("RegionOperationsClient", "list", "OperationList", "items")
PricedMachines = Iterable[tuple[GcpMachine, Offer] | SkippedRow]


@dataclass(frozen=True, slots=True)
class GcpCounter:
    """``asking`` raises `NoLogin` without a login. ``priced``: the machines that a request may mean, with their list
    prices of these capacity types; a zone's machines on demand, a region's for a term."""

    asking: Callable[[], GcpCaller]
    priced: Callable[[QuoteRequest, tuple[CapacityType, ...]], PricedMachines]
    clock: Clock

    def now(self) -> datetime:
        """The time in whole seconds (UTC)."""
        return self.clock.now().replace(microsecond=0)


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """One kind of Compute Engine's resources, by the SDK's names: its client, the field of its name and of its body,
    whether it is in a region instead of a zone. ``read``: a resource as an order."""

    client: str
    name: str
    body: str
    read: Callable[[Any, str], Order]
    regional: bool = False

    def place(self, quote: CapacityQuote) -> dict[str, str]:
        """The place of the resource, by the SDK's names."""
        return {"region": quote.region} if self.regional else {"zone": str(quote.zone)}


def insert(caller: GcpCaller, kind: ResourceKind, quote: CapacityQuote, key: str, body: Mapping[str, Any]) -> Order:
    """Make the resource ``key``. Raises as `GcpCaller.call_once`; a resource of that name is this order."""
    place = kind.place(quote)
    try:
        operation = caller.call_once(
            kind.client,
            "insert_unary",
            quote.zone or quote.region,
            project=caller.login.project,
            request_id=request_id(key),
            **place,
            **{kind.body: {"name": key, **body}},
        )
    except AlreadyExists as error:
        orders = find(caller, kind, quote, key)
        if not orders:
            raise OutcomeUnknown(error.message, where=error.where) from error
        return orders[0]
    if (failure := _failure(operation)) is not None:
        raise Refused(failure, where=f"{NAME}: {key}")
    return Order(id=key, state=OrderState.PENDING, word=_status(operation))


def find(caller: GcpCaller, kind: ResourceKind, quote: CapacityQuote, key: str) -> list[Order]:
    """The order ``key``: the resource; without one, the result of the operations that should make or delete it."""
    place = kind.place(quote)
    try:
        row = caller.call(kind.client, "get", project=caller.login.project, **place, **{kind.name: key})
        return [kind.read(row, key)]
    except NotFound:
        pass
    undo_operation = _operation(caller, kind, place, request_id(key, "undo"))
    if undo_operation is not None and _failure(undo_operation) is None:
        is_done = _status(undo_operation) == "done"
        return [Order(id=key, state=OrderState.OVER if is_done else OrderState.UNDOING, word="deleted")]
    operation = _operation(caller, kind, place, request_id(key))
    if operation is not None and (failure := _failure(operation)) is not None:
        return [Order(id=key, state=OrderState.REFUSED, word=failure)]
    if (deletion := _deletion(caller, kind, place, key)) is not None:
        word = f"deleted by {deletion.user}" if deletion.user else "deleted"
        return [Order(id=key, state=OrderState.OVER, word=word, billed_to=utc(deletion.end_time))]
    if operation is None:
        return []
    return [Order(id=key, state=OrderState.PENDING, word=_status(operation))]


def request_id(key: str, action: str = "order") -> str:
    """The id of a request for a purchase: the same for each repetition of it."""
    return str(uuid5(NAMESPACE_URL, f"gpubroker:{key}/{action}"))


def quote_fields(
    counter: GcpCounter, request: QuoteRequest, product: PurchaseProduct, shape: GcpMachine, price: Money
) -> dict[str, Any]:
    """The fields of a quote that all kinds have in common, from now on. ``price``: USD per machine and hour."""
    now = counter.now()
    starts = request.earliest or now
    return {
        "product": product,
        "provider": NAME,
        "offering": f"{shape.name}/{shape.zone}",
        "region": shape.region,
        "zone": shape.zone,
        "instance_type": shape.name,
        "accelerator": shape.accelerator,
        "count": shape.count,
        "machines": request.machines,
        "starts": starts,
        "ends": starts + request.length,
        "total": price.for_duration(request.length) * request.machines,
        "undo": Undo.ANY_TIME,
        "quoted_at": now,
        "upfront": Money.ZERO,
    }


def priced_rows(counter: GcpCounter, request: QuoteRequest, *kinds: CapacityType) -> Iterator[Any]:
    """Machines with a price in USD per hour, and rows that cannot be read."""
    for row in counter.priced(request, kinds):
        if isinstance(row, SkippedRow) or row[1].price is not None:
            yield row


def _deletion(caller: GcpCaller, kind: ResourceKind, place: Mapping[str, str], key: str) -> Any:
    """The operation by which another user deleted the resource ``key``; Google lists it for some days."""
    listing = _REGIONAL if kind.regional else _ZONAL
    rows = caller.rows(listing, project=caller.login.project, filter=f'targetLink eq ".*/{key}"', **place)
    deletions = (item.row for item in rows if not isinstance(item, SkippedRow) and item.row.operation_type == "delete")
    return next((row for row in deletions if _status(row) == "done" and _failure(row) is None), None)


def _operation(caller: GcpCaller, kind: ResourceKind, place: Mapping[str, str], id: str) -> Any:
    listing = _REGIONAL if kind.regional else _ZONAL
    query = f'clientOperationId = "{id}"'
    rows = caller.rows(listing, project=caller.login.project, filter=query, **place)
    return next(
        (item.row for item in rows if not isinstance(item, SkippedRow) and item.row.client_operation_id == id), None
    )


def _status(operation: Any) -> str:
    """``done``, ``pending`` or ``running``: the SDK's only enumeration where other fields are text."""
    names = operation.DESCRIPTOR.fields_by_name["status"].enum_type.values_by_number
    return str(names[operation.status].name).lower()


def _failure(operation: Any) -> str | None:
    """Why the operation failed; None if it did not."""
    errors = [f"{error.code}: {error.message}" for error in operation.error.errors]
    if not errors and not operation.http_error_status_code:
        return None
    return "; ".join(errors) or str(operation.http_error_message) or f"HTTP {operation.http_error_status_code}"
