"""On-demand reservations from now on (reservations.insert); with a login.

A reservation is billed at the on-demand price of its machines until it is deleted, used or not; it deletes itself at
its end. It can be deleted at any time while no machine uses it. It is open: machines of its type in its zone use it
without naming it.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType, SkippedRow
from broker.core.purchases.quotes import CapacityQuote, Order, OrderState, PurchaseProduct, QuoteRequest, UndoTerms
from providers.gcp.calls import utc
from providers.gcp.refusals import NotFound
from providers.gcp.shop.counter import GcpCounter, ResourceKind, find, insert, priced_rows, quote_fields, request_id
from providers.shops import CloudProduct

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
