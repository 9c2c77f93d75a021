"""Future reservations in calendar mode (futureReservations.insert): machines for a period that Google has free; with a
login.

The advice service says when and where the machines are free. The price is at most the on-demand price of the machines,
which is what is quoted and held: the lower price of calendar mode is an offer of its own (``…+calendar``), and on
Google's bill. Google does not cancel an approved one after its lock time, so a quote says that it cannot be undone, and
two people approve it.
"""

from __future__ import annotations

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
from providers.gcp.calls import GcpCaller, last, utc
from providers.gcp.holdings import MACHINES
from providers.gcp.machines import GcpMachine
from providers.gcp.settings import NAME
from providers.gcp.shop.counter import GcpCounter, ResourceKind, find, insert, quoted, request_id, sold
from providers.gcp.shop.reservations import REPEATS_FOR
from providers.shops import CloudProduct, cannot_be_undone

# Calendar mode: 1 to 90 days, beginning within 120 days ("Future reservation requests in calendar mode overview").
_DAY, _LONGEST, _AHEAD = timedelta(days=1), timedelta(days=90), timedelta(days=120)
_SPEC = "machines"
_STATES = {
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
    begun = utc(row.time_window.start_time) if word in _DELIVERED else None
    state = _STATES.get(word, OrderState.PENDING)
    return Order(id=row.name or key, state=state, word=word.lower(), billed_from=begun)


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
        asking, seen = self._counter.asking(), set[tuple[str, str]]()
        priced = list(sold(self._counter, request, CapacityType.ON_DEMAND))
        prices = {(row[0].name, row[0].zone): row for row in priced if not isinstance(row, SkippedRow)}
        yield from (row for row in priced if isinstance(row, SkippedRow))
        for shape, _ in prices.values():
            if (shape.region, shape.name) in seen:
                continue
            seen.add((shape.region, shape.name))
            for zone, starts, ends in self._free(asking, request, shape):
                if (found := prices.get((shape.name, zone))) is not None:
                    yield self._quote(request, found, starts, ends)

    def _quote(
        self, request: QuoteRequest, priced: tuple[GcpMachine, Any], starts: datetime, ends: datetime
    ) -> CapacityQuote:
        shape, offer = priced
        fields = quoted(self._counter, request, PurchaseProduct.FUTURE_RESERVATION, shape, offer.price)
        total = offer.price.for_duration(ends - starts) * request.machines
        return CapacityQuote(
            **{**fields, "starts": starts, "ends": ends, "total": total, "undo": Undo.NONE, "terms": "calendar"}
        )

    def _free(
        self, asking: GcpCaller, request: QuoteRequest, shape: GcpMachine
    ) -> Iterator[tuple[str, datetime, datetime]]:
        """Zone, start and end of what Google recommends."""
        now = self._counter.now()
        earliest = request.earliest or now
        latest = request.latest or max(earliest, now + _AHEAD)
        days = f"{request.length // timedelta(seconds=1)}s"
        spec = {
            "target_resources": {
                "specific_sku_resources": {"machine_type": shape.name, "instance_count": request.machines}
            },
            "time_range_spec": {
                "start_time_not_earlier_than": earliest.isoformat(),
                "start_time_not_later_than": latest.isoformat(),
                "min_duration": days,
                "max_duration": days,
            },
        }
        answer = asking.call(
            "AdviceClient",
            "calendar_mode",
            shape.region,
            project=asking.login.project,
            region=shape.region,
            calendar_mode_advice_request_resource={"future_resources_specs": {_SPEC: spec}},
        )
        for one in answer.recommendations:
            found = one.recommendations_per_spec.get(_SPEC)
            if found is None or found.recommendation_type != "FUTURE_RESERVATION":
                continue
            starts, ends = utc(found.start_time), utc(found.end_time)
            if starts is not None and ends is not None and starts < ends:
                yield last(found.location), starts, ends

    def try_order(self, quote: CapacityQuote, key: str) -> None:
        """Check the login; Google has no dry run of this call."""
        self._counter.asking()

    def order(self, quote: CapacityQuote, key: str) -> Order:
        return insert(self._counter.asking(), _FUTURE, quote, key, _asked(quote, key))

    def find_orders(self, quote: CapacityQuote, key: str) -> Sequence[Order]:
        return find(self._counter.asking(), _FUTURE, quote, key)

    def undo_terms(self, quote: CapacityQuote, order: Order) -> UndoTerms:
        asking = self._counter.asking()
        where = {"project": asking.login.project, "zone": quote.zone, "future_reservation": order.id}
        row = asking.call("FutureReservationsClient", "get", str(quote.zone), **where)
        lock, word = utc(row.status.lock_time), row.status.procurement_status
        if word not in ("PENDING_APPROVAL", "APPROVED") or (lock is not None and lock <= self._counter.now()):
            raise cannot_be_undone(NAME, "this future reservation", f"it is locked ({word.lower()})")
        if word == "APPROVED" and lock is None:
            raise cannot_be_undone(
                NAME, "this future reservation", "Google names no time until which it can be cancelled"
            )
        return UndoTerms(way="cancel", until=lock)

    def undo(self, quote: CapacityQuote, order: Order, terms: UndoTerms) -> None:
        asking = self._counter.asking()
        where = {"project": asking.login.project, "zone": quote.zone, "future_reservation": order.id}
        asking.call_once(
            "FutureReservationsClient",
            "cancel_unary",
            str(quote.zone),
            **where,
            request_id=request_id(order.id, "undo"),
        )


def _asked(quote: CapacityQuote, key: str) -> Mapping[str, Any]:
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
