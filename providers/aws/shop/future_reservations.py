"""On-demand capacity reservations from a later day on (CreateCapacityReservation with StartDate); with a login.

AWS first assesses the request (minutes to days), then schedules it, delivers it, or refuses it (``unsupported``). The
whole time is committed: it is billed at the on-demand price from delivery on, used or not. Cancelling costs what AWS
quotes; it is free while the request is assessed, and once the delivery is late (``delayed``).

5 to 120 days ahead; machines of 32 vCPUs and more of the families C, M, R, I, T and G; the reservation is targeted (EC2
API reference, CreateCapacityReservation and CancelCapacityReservation, as botocore carries it).
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from broker.core.errors import InvalidInput, Refused, Unreachable
from broker.core.market.offers import SkippedRow
from broker.core.purchases.quotes import (
    CapacityQuote,
    Order,
    OrderState,
    PurchaseProduct,
    QuoteRequest,
    Undo,
    UndoTerms,
)
from broker.core.values.money import Money
from providers.aws.machines import machine
from providers.aws.settings import NAME, utc
from providers.aws.shop.counter import matching_types
from providers.aws.shop.reservations import CapacityReservations

_DAY = timedelta(days=1)
_AHEAD = (5 * _DAY, 120 * _DAY)
_SHORTEST = 14 * _DAY
_FAMILIES = tuple("cmritg")
_VCPUS = 32
_WIND_DOWN = "commitment-wind-down"
_FREE = ("assessing", "delayed")


class FutureReservations(CapacityReservations):
    """See `SellsProduct`."""

    product, undone = PurchaseProduct.FUTURE_RESERVATION, Undo.QUOTE

    def quotes(self, request: QuoteRequest) -> Iterator[CapacityQuote | SkippedRow]:
        """One quote for each zone that has the machines. AWS says only after the order whether it can deliver."""
        starts = request.earliest
        if starts is None or not _AHEAD[0] <= starts - self._counter.now() <= _AHEAD[1]:
            raise InvalidInput("AWS takes requests 5 to 120 days ahead", where="--from", hint="--from 14d")
        if request.length < _SHORTEST or request.length % timedelta(hours=1):
            raise InvalidInput(f"AWS wants 14 days or more; got {request.length}", where="--for", hint="--for 14d")
        yield from self._in_zones(
            request, starts, [instance_type for instance_type in matching_types(request) if _is_sold(instance_type)]
        )

    def _parameters(self, quote: CapacityQuote, key: str) -> Mapping[str, Any]:
        return {
            **super()._parameters(quote, key),
            "InstanceMatchCriteria": "targeted",
            "StartDate": quote.starts,
            "CommitmentDuration": quote.length // timedelta(seconds=1),
            "DeliveryPreference": "incremental",
        }

    def undo_terms(self, quote: CapacityQuote, order: Order) -> UndoTerms:
        """Free, or by a cancellation quote of EC2, which is valid for a day."""
        if order.word in _FREE or order.state is not OrderState.HELD:
            return UndoTerms(way="cancel")
        answer = self._counter.login().call(
            "ec2", quote.region, "create_capacity_reservation_cancellation_quote", CapacityReservationId=order.id
        )
        cancellation = answer.get("CapacityReservationCancellationQuote") or {}
        if cancellation.get("QuoteState") == "pending":
            cancellation = self._cancellation_quote(
                quote.region, str(cancellation.get("CapacityReservationCancellationQuoteId"))
            )
        return UndoTerms(
            way="cancel",
            charge=sum((_charge(term, quote) for term in cancellation.get("CancellationTerms") or ()), Money.ZERO),
            reference=str(cancellation["CapacityReservationCancellationQuoteId"]),
            until=utc(cancellation.get("ExpirationTime")),
        )

    def _cancellation_quote(self, region: str, id: str) -> Mapping[str, Any]:
        operation = "describe_capacity_reservation_cancellation_quotes"
        answer = self._counter.login().call("ec2", region, operation, CapacityReservationCancellationQuoteIds=[id])
        rows: list[Mapping[str, Any]] = answer.get("CapacityReservationCancellationQuotes") or [{}]
        if rows[0].get("QuoteState") != "active":
            raise Unreachable("EC2 has not computed the cancellation quote yet", where=NAME, hint="retry in a minute")
        return rows[0]

    def undo(self, quote: CapacityQuote, order: Order, terms: UndoTerms) -> None:
        parameters = {"QuoteId": terms.reference, "ApplyCancellationCharges": _WIND_DOWN} if terms.reference else {}
        self._counter.login().call_once(
            "ec2", quote.region, "cancel_capacity_reservation", CapacityReservationId=order.id, **parameters
        )


def _charge(term: Mapping[str, Any], quote: CapacityQuote) -> Money:
    machines, hours = term.get("CommittedInstanceCount"), term.get("ChargeCommitmentDurationHours")
    if not isinstance(machines, int) or not isinstance(hours, int):
        raise Refused("EC2's cancellation quote does not say how many hours it charges", where=NAME)
    return quote.per_machine_hour * machines * hours


def _is_sold(name: str) -> bool:
    shape = machine(name)
    return name.startswith(_FAMILIES) and shape.cpus is not None and shape.cpus >= _VCPUS
