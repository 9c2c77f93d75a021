"""On-demand reservations from now on (reservations.insert); with a login.

A reservation is billed at the on-demand price of its machines until it is deleted, used or not; it deletes itself at
its end. It can be deleted at any time while no machine uses it. It is open: machines of its type in its zone use it
without naming it.

Future reservations in calendar mode (futureReservations.insert): machines for a period that Google has free; with a
login.

The advice service says when and where the machines are free. The price is at most the on-demand price of the machines,
which is what is quoted and held: the lower price of calendar mode is an offer of its own (``…+calendar``), and on
Google's bill. Google does not cancel an approved one after its lock time, so a quote says that it cannot be undone, and
two people approve it.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType, SkippedRow
from broker.core.purchases.quotes import (
    CapacityQuote,
    Order,
    OrderState,
    PurchaseProduct,
    QuoteRequest,
    Undo,
    UndoTerms,
)
from providers.gcp.calls import GcpCaller, resource_name, utc
from providers.gcp.holdings import MACHINES
from providers.gcp.machines import GcpMachine
from providers.gcp.refusals import NotFound
from providers.gcp.settings import NAME
from providers.gcp.shop.counter import GcpCounter, ResourceKind, find, insert, priced_rows, quote_fields, request_id
from providers.shops import CloudProduct, undo_refusal

# Compute Engine knows a request by its id for an hour ("Request IDs"); the name guards longer.
REPEATS_FOR = timedelta(minutes=50)
_STATES = {
    "CREATING": OrderState.PENDING,
    "READY": OrderState.HELD,
    "UPDATING": OrderState.HELD,
    "DELETING": OrderState.UNDOING,
    "INVALID": OrderState.REFUSED,
}


def reservation_order(row: Any, key: str) -> Order:
    """A reservation as an order."""
    state = _STATES.get(row.status, OrderState.PENDING)
    started = utc(row.creation_timestamp) if state is not OrderState.PENDING else None
    return Order(id=row.name or key, state=state, word=row.status.lower(), billed_from=started)


_RESERVATION = ResourceKind("ReservationsClient", "reservation", "reservation_resource", reservation_order)


class GcpReservations(CloudProduct[GcpCounter]):
    """See `SellsProduct`."""

    repeats_for = REPEATS_FOR

    def quotes(self, request: QuoteRequest) -> Iterator[CapacityQuote | SkippedRow]:
        """One quote a zone that has the machines, at the on-demand price. Whether machines are free there is known only
        when one is ordered."""
        if request.earliest is not None:
            raise InvalidInput(
                "a reservation begins with its order",
                where="--from",
                hint="leave it out, or ask for --product future-reservation",
            )
        for row in priced_rows(self._counter, request, CapacityType.ON_DEMAND):
            if isinstance(row, SkippedRow):
                yield row
                continue
            shape, offer = row
            fields = quote_fields(self._counter, request, PurchaseProduct.CAPACITY_RESERVATION, shape, offer.price)
            yield CapacityQuote(**fields, at_once=True)

    def try_order(self, quote: CapacityQuote, key: str) -> None:
        """Check the login; Google has no dry run of this call."""
        self._counter.asking()

    def order(self, quote: CapacityQuote, key: str) -> Order:
        return insert(self._counter.asking(), _RESERVATION, quote, key, reservation_body(quote))

    def find_orders(self, quote: CapacityQuote, key: str) -> Sequence[Order]:
        return find(self._counter.asking(), _RESERVATION, quote, key)

    def undo_terms(self, quote: CapacityQuote, order: Order) -> UndoTerms:
        return UndoTerms(way="delete")

    def undo(self, quote: CapacityQuote, order: Order, terms: UndoTerms) -> None:
        caller = self._counter.asking()
        try:
            caller.call_once(
                "ReservationsClient",
                "delete_unary",
                str(quote.zone),
                project=caller.login.project,
                zone=quote.zone,
                reservation=order.id,
                request_id=request_id(order.id, "undo"),
            )
        except NotFound:
            return  # it is gone


def reservation_body(quote: CapacityQuote) -> dict[str, Any]:
    """The body of a reservation, without its name."""
    properties = {"machine_type": quote.instance_type}
    return {
        "description": "bought by gpubroker",
        "specific_reservation": {"count": quote.machines, "instance_properties": properties},
        "specific_reservation_required": False,
        "delete_at_time": quote.ends.isoformat(),
    }


# Calendar mode: 1 to 90 days, beginning within 120 days ("Future reservation requests in calendar mode overview").
_DAY, _LONGEST, _AHEAD = timedelta(days=1), timedelta(days=90), timedelta(days=120)
_SPEC = "machines"
_FUTURE_STATES = {
    "DRAFTING": OrderState.PENDING,
    "PENDING_APPROVAL": OrderState.PENDING,
    "APPROVED": OrderState.HELD,
    "COMMITTED": OrderState.HELD,
    "PROCURING": OrderState.HELD,
    "PROVISIONING": OrderState.HELD,
    "FULFILLED": OrderState.HELD,
    "FAILED_PARTIALLY_FULFILLED": OrderState.HELD,
    "PENDING_AMENDMENT_APPROVAL": OrderState.HELD,
    "CANCELLED": OrderState.OVER,
    "DECLINED": OrderState.REFUSED,
    "FAILED": OrderState.REFUSED,
}
_DELIVERED = ("FULFILLED", "FAILED_PARTIALLY_FULFILLED")


def _order(row: Any, key: str) -> Order:
    word = row.status.procurement_status
    started = utc(row.time_window.start_time) if word in _DELIVERED else None
    state = _FUTURE_STATES.get(word, OrderState.PENDING)
    return Order(id=row.name or key, state=state, word=word.lower(), billed_from=started)


_FUTURE = ResourceKind("FutureReservationsClient", "future_reservation", "future_reservation_resource", _order)


class GcpFutureReservations(CloudProduct[GcpCounter]):
    """See `SellsProduct`."""

    repeats_for = REPEATS_FOR

    def quotes(self, request: QuoteRequest) -> Iterator[CapacityQuote | SkippedRow]:
        """The period that Google recommends in each region, at the on-demand price."""
        if not _DAY <= request.length <= _LONGEST or request.length % _DAY:
            raise InvalidInput(
                f"Google reserves by calendar for 1 to 90 whole days; got {request.length}",
                where="--for",
                hint="--for 7d",
            )
        caller, seen = self._counter.asking(), set[tuple[str, str]]()
        rows = list(priced_rows(self._counter, request, CapacityType.ON_DEMAND))
        prices = {(row[0].name, row[0].zone): row for row in rows if not isinstance(row, SkippedRow)}
        yield from (row for row in rows if isinstance(row, SkippedRow))
        for shape, _ in prices.values():
            if (shape.region, shape.name) in seen:
                continue
            seen.add((shape.region, shape.name))
            for zone, starts, ends in self._free(caller, request, shape):
                if (priced := prices.get((shape.name, zone))) is not None:
                    yield self._quote(request, priced, starts, ends)

    def _quote(
        self, request: QuoteRequest, priced: tuple[GcpMachine, Any], starts: datetime, ends: datetime
    ) -> CapacityQuote:
        shape, offer = priced
        fields = quote_fields(self._counter, request, PurchaseProduct.FUTURE_RESERVATION, shape, offer.price)
        total = offer.price.for_duration(ends - starts) * request.machines
        return CapacityQuote(
            **{**fields, "starts": starts, "ends": ends, "total": total, "undo": Undo.NONE, "terms": "calendar"}
        )

    def _free(
        self, caller: GcpCaller, request: QuoteRequest, shape: GcpMachine
    ) -> Iterator[tuple[str, datetime, datetime]]:
        """Zone, start and end of what Google recommends."""
        now = self._counter.now()
        earliest = request.earliest or now
        latest = request.latest or max(earliest, now + _AHEAD)
        duration = f"{request.length // timedelta(seconds=1)}s"
        spec = {
            "target_resources": {
                "specific_sku_resources": {"machine_type": shape.name, "instance_count": request.machines}
            },
            "time_range_spec": {
                "start_time_not_earlier_than": earliest.isoformat(),
                "start_time_not_later_than": latest.isoformat(),
                "min_duration": duration,
                "max_duration": duration,
            },
        }
        answer = caller.call(
            "AdviceClient",
            "calendar_mode",
            shape.region,
            project=caller.login.project,
            region=shape.region,
            calendar_mode_advice_request_resource={"future_resources_specs": {_SPEC: spec}},
        )
        for recommendation in answer.recommendations:
            period = recommendation.recommendations_per_spec.get(_SPEC)
            if period is None or period.recommendation_type != "FUTURE_RESERVATION":
                continue
            starts, ends = utc(period.start_time), utc(period.end_time)
            if starts is not None and ends is not None and starts < ends:
                yield resource_name(period.location), starts, ends

    def try_order(self, quote: CapacityQuote, key: str) -> None:
        """Check the login; Google has no dry run of this call."""
        self._counter.asking()

    def order(self, quote: CapacityQuote, key: str) -> Order:
        return insert(self._counter.asking(), _FUTURE, quote, key, _request_body(quote, key))

    def find_orders(self, quote: CapacityQuote, key: str) -> Sequence[Order]:
        return find(self._counter.asking(), _FUTURE, quote, key)

    def undo_terms(self, quote: CapacityQuote, order: Order) -> UndoTerms:
        caller = self._counter.asking()
        parameters = {"project": caller.login.project, "zone": quote.zone, "future_reservation": order.id}
        row = caller.call("FutureReservationsClient", "get", str(quote.zone), **parameters)
        lock, word = utc(row.status.lock_time), row.status.procurement_status
        if word not in ("PENDING_APPROVAL", "APPROVED") or (lock is not None and lock <= self._counter.now()):
            raise undo_refusal(NAME, "this future reservation", f"it is locked ({word.lower()})")
        if word == "APPROVED" and lock is None:
            raise undo_refusal(NAME, "this future reservation", "Google names no time until which it can be cancelled")
        return UndoTerms(way="cancel", until=lock)

    def undo(self, quote: CapacityQuote, order: Order, terms: UndoTerms) -> None:
        caller = self._counter.asking()
        parameters = {"project": caller.login.project, "zone": quote.zone, "future_reservation": order.id}
        caller.call_once(
            "FutureReservationsClient",
            "cancel_unary",
            str(quote.zone),
            **parameters,
            request_id=request_id(order.id, "undo"),
        )


def _request_body(quote: CapacityQuote, key: str) -> Mapping[str, Any]:
    return {
        "description": f"bought by gpubroker at {NAME}",
        "planning_status": "SUBMITTED",
        "reservation_mode": "CALENDAR",
        "reservation_name": f"{key}{MACHINES}",
        "specific_reservation_required": True,
        "auto_delete_auto_created_reservations": True,
        "share_settings": {"share_type": "LOCAL"},
        "time_window": {"start_time": quote.starts.isoformat(), "end_time": quote.ends.isoformat()},
        "specific_sku_properties": {
            "total_count": quote.machines,
            "instance_properties": {"machine_type": quote.instance_type},
        },
    }
